"""Notice that this process joins the process group of a job, whatever started it, and that it leaves."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from warplens.frontends.import_hook import when_imported
from warplens.frontends.library_hooks import remover
from warplens.frontends.wrap import wrap

_PACKAGE = "torch.distributed"


def watch_membership(joined: Callable[[int, int], None], leaving: Callable[[], None]) -> Callable[[], None]:
    """Call `joined` with the rank and the number of ranks once torch.distributed knows them, and `leaving` before it
    forgets them. Return a function that stops this."""
    undo: list[Callable[[], None]] = []

    def follow(_: str) -> None:
        distributed: Any = sys.modules[_PACKAGE]

        def init(original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
            result = original(*arguments, **named)
            joined(int(distributed.get_rank()), int(distributed.get_world_size()))
            return result

        def destroy(original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
            leaving()
            return original(*arguments, **named)

        for name, wrapper in (("init_process_group", init), ("destroy_process_group", destroy)):
            known = getattr(distributed, name, None)  # a torch that is built without it has neither
            # Other modules of the package, such as device_mesh, have taken the function from its own.
            for module in [one for path, one in sys.modules.items() if path.startswith(_PACKAGE)]:
                if known is not None and vars(module).get(name) is known:
                    undo.append(wrap(module, name, wrapper))

    undo.append(when_imported({_PACKAGE: follow}))
    return remover(undo)
