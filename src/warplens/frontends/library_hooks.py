"""Put the hooks of a library in place when a profile starts, or say what is not recorded without them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from warplens.errors import WarplensError

if TYPE_CHECKING:
    from warplens.session import Session

Undo = list[Callable[[], None]]


def hook_library(
    running: Session,
    library: str,
    install: Callable[[], Undo],
    why_not: Callable[[], str] | None = None,
    without: str = "its kernels run unmarked",
) -> Callable[[], None] | None:
    """Unless `why_not` names a reason, call `install`, which returns a function for each hook that removes it; return
    one that removes all. Hooks rely on names that a library does not promise: where they are missing, the program runs
    without them, with a note."""
    try:
        if why_not is not None and (reason := why_not()):
            raise WarplensError(reason)
        return remover(install())
    except (ImportError, AttributeError) as error:
        reason = f"warplens does not know this version of it ({error})"
    except WarplensError as error:
        reason = str(error)
    running.note(library, f"{without}: {reason}")
    return None


def remover(undo: Undo) -> Callable[[], None]:
    """A function that calls all of `undo` once, the last first."""

    def stop() -> None:
        while undo:
            undo.pop()()

    return stop
