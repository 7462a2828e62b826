"""See the collectives that C++ starts by itself, such as those of DistributedDataParallel's reducer.

Whoever starts a collective, torch calls an operator for it (`c10d::allreduce_`), with the process group as an argument.
A kernel for the operator's autograd key is called before the backend's own, which it then calls.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

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

Around = Callable[[str, Any, dict[str, Any]], AbstractContextManager[object]]


def watch_operators(around: Around) -> Callable[[], None]:
    """Make each collective of torch inside `around(function, group, arguments)`, where the arguments are by the
    operator's own names. Return a function that stops this. Raise AttributeError where torch has no such operators."""
    torch: Any = sys.modules["torch"]
    group_of = torch.distributed.ProcessGroup.unbox
    below = torch._C._after_autograd_keyset
    library = torch.library.Library("c10d", "IMPL")

    def follow(function: str, operator: Any) -> Callable[..., Any]:
        names = [one.name for one in operator._schema.arguments]

        def kernel(keys: Any, *arguments: Any, **named: Any) -> Any:
            given = {**dict(zip(names, arguments, strict=False)), **named}
            with around(function, group_of(given.pop("process_group")), given):
                return operator.redispatch(keys & below, *arguments, **named)

        return kernel

    for name, function in FUNCTIONS.items():
        packet = getattr(torch.ops.c10d, name, None)
        if packet is not None:
            library.impl(name, follow(function, packet.default), "Autograd", with_keyset=True)
    stop: Callable[[], None] = library._destroy
    return stop
