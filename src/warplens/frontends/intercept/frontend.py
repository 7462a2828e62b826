"""What every intercepted library does when a profile starts."""

from __future__ import annotations

from collections.abc import Callable

from warplens import session
from warplens.frontends.intercept.interceptor import Launches
from warplens.session import Profile

Install = Callable[[Launches], list[Callable[[], None]]]
"""Puts a library's hooks in place and gives what takes each of them away again."""

_attached: dict[str, Callable[[Profile], Callable[[], None] | None]] = {}


def attach(library: str, install: Install) -> None:
    """Let profiles with automatic marks reach `library`; joins one that already runs."""
    if library in _attached:
        return

    def start(profile: Profile) -> Callable[[], None] | None:
        if not profile.options.marks:
            return None
        if profile.options.buffer != "global":
            profile.note(library, f"its kernels run unmarked: buffer={profile.options.buffer!r} is for Triton kernels")
            return None
        try:
            undo = install(Launches(profile))
        except (ImportError, AttributeError) as error:
            # Interception leans on names that a library does not promise: the program must run without them.
            profile.note(library, f"its kernels run unmarked: warplens does not know this version of it ({error})")
            return None

        def stop() -> None:
            while undo:
                undo.pop()()

        return stop

    _attached[library] = start
    session.attach(start)
