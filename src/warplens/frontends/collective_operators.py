"""See the collectives that C++ starts by itself, such as those of DistributedDataParallel's reducer.

Whoever starts a collective, torch calls an operator for it (`c10d::allreduce_`), with the process group as an argument.
A kernel for a dispatch key before the backend's is called first, and calls the backend's own. The key is the one below
autograd (ADInplaceOrView), under which torch's own collectives have no kernel and which functional collectives reach.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from warplens.session.collective_log import OpenCall

FUNCTIONS = {
    "allreduce_": "all_reduce",
    "allreduce_coalesced_": "all_reduce",
    "broadcast_": "broadcast",
    "reduce_": "reduce",
    "allgather_": "all_gather",
    "allgather_coalesced_": "all_gather",
    "_allgather_base_": "all_gather_into_tensor",
    "allgather_into_tensor_coalesced_": "all_gather_into_tensor",
    "reduce_scatter_": "reduce_scatter",
    "_reduce_scatter_base_": "reduce_scatter_tensor",
    "reduce_scatter_tensor_coalesced_": "reduce_scatter_tensor",
    "gather_": "gather",
    "scatter_": "scatter",
    "alltoall_": "all_to_all",
    "alltoall_base_": "all_to_all_single",
    "barrier": "barrier",
}
"""By operator, the function of torch.distributed that does the same."""

Begin = Callable[[str, Callable[[], tuple[Any, dict[str, Any]]]], OpenCall | None]
"""Called with the function of torch.distributed and what returns the group and the arguments."""


def watch_operators(begin: Begin) -> Callable[[], None]:
    """Call `begin` before each collective of torch. It can ask for the group, and for tensors, sizes of splits and the
    root by the operator's own names. Return a function that stops this. Raise AttributeError where torch has no such
    operators."""
    torch: Any = sys.modules["torch"]
    group_of = torch.distributed.ProcessGroup.unbox
    below = torch._C._after_ADInplaceOrView_keyset
    library = torch.library.Library("c10d", "IMPL")

    def follow(function: str, operator: Any) -> Callable[..., Any]:
        names = [one.name for one in operator._schema.arguments]
        group_at = names.index("process_group")
        # Torch gives arguments by place, as far as they are not left to their defaults.
        kept = {at: name for at, name in enumerate(names) if _is_told(name, operator._schema.arguments[at])}

        def kernel(keys: Any, *arguments: Any, **named: Any) -> Any:
            noted = begin(
                function,
                lambda: (
                    group_of(arguments[group_at]),
                    {name: arguments[at] for at, name in kept.items() if at < len(arguments)},
                ),
            )
            try:
                return operator.redispatch(keys & below, *arguments, **named)
            finally:
                if noted is not None:
                    noted.returned = True

        return kernel

    for name, function in FUNCTIONS.items():
        packet = getattr(torch.ops.c10d, name, None)
        if packet is not None:
            library.impl(name, follow(function, packet.default), "ADInplaceOrView", with_keyset=True)
    stop: Callable[[], None] = library._destroy
    return stop


def _is_told(name: str, argument: Any) -> bool:
    return (
        name == "root_rank" or name.endswith("split_sizes") or str(argument.type).startswith(("Tensor", "List[Tensor"))
    )
