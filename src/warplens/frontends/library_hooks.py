"""Put the hooks of a library in place when a profile starts, or say why its kernels run unmarked."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from warplens.errors import WarplensError

if TYPE_CHECKING:
    from warplens.session import Session

Undo = list[Callable[[], None]]


def hook_library(
    running: Session, library: str, why_not: Callable[[], str], install: Callable[[], Undo]
) -> Callable[[], None] | None:
    """Unless `why_not` names a reason, call `install`, which returns a function for each hook that removes it; return
    one that removes all. Hooks rely on names that a library does not promise: where they are missing, the program runs
    without them, with a note."""
    try:
        if reason := why_not():
            raise WarplensError(reason)
        undo = install()
    except (ImportError, AttributeError) as error:
        running.note(library, f"its kernels run unmarked: warplens does not know this version of it ({error})")
        return None
    except WarplensError as error:
        running.note(library, f"its kernels run unmarked: {error}")
        return None
    return remover(undo)


def remover(undo: Undo) -> Callable[[], None]:
    """A function that calls all of `undo` once, the last first."""

    def stop() -> None:
        while undo:
            undo.pop()()

    return stop
