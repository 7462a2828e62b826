"""What every intercepted library does when a profile starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from warplens.frontends.intercept.interceptor import Interceptor
from warplens.frontends.library_hooks import hook_library
from warplens.session import Session, StartFrontEnd

Install: TypeAlias = Callable[[Interceptor], list[Callable[[], None]]]
"""Put the hooks of a library in place; return a function for each that removes it."""


def intercepted(library: str, install: Install, *, by_hand: bool = False) -> StartFrontEnd:
    """The `start` of a front end that intercepts the launches of `library` where automatic marks are asked for; with
    `by_hand` also where they are not, for kernels that bring their own marks."""

    def start(running: Session) -> Callable[[], None] | None:
        options = running.options
        if not options.marks and not by_hand:
            return None
        if options.buffer != "global":
            if options.marks:
                running.note(library, f"its kernels run unmarked: buffer={options.buffer!r} is for Triton kernels")
            return None
        return hook_library(running, library, lambda: install(Interceptor(running)))

    return start
