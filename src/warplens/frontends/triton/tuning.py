"""Launches that somebody times: an autotuner's, or those of a benchmark loop. Timed launches run the plain kernel."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from warplens.frontends.intercept.name_swap import swap
from warplens.frontends.wrap import wrap
from warplens.launch.timed_stretches import timed_stretch
from warplens.threads import assigned

UNTIMED_CALLS = (0, 6)
"""Calls of its function that `triton.testing.do_bench` does not time: the first, and the first of its warm-up, which
follows five calls that estimate the time."""


class _Thread(threading.local):
    """What holds for the launches of one thread."""

    tuning = False
    """Whether somebody times them."""
    unwatched = False
    """Whether kernels that it loads keep their launchers."""


thread = _Thread()


def tuning(on: bool = True) -> AbstractContextManager[None]:
    """Leave the launches of this thread alone inside the block."""
    return assigned(thread, tuning=on)


def unwatched() -> AbstractContextManager[None]:
    """Let kernels that this thread loads inside the block keep their launchers: somebody keeps a copy of those."""
    return assigned(thread, unwatched=True)


def leave_calls_alone(original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """A wrapper for functions of an autotuner: leave the launches inside each call alone."""
    with tuning(), timed_stretch():
        return original(*arguments, **options)


def leave_tuning_alone() -> list[Callable[[], None]]:
    """Follow Triton's autotuner and its benchmark functions. Return functions that end this."""
    from triton import testing
    from triton.runtime.autotuner import Autotuner

    undo = [wrap(Autotuner, "_bench", leave_calls_alone)]
    for name in ("do_bench", "do_bench_cudagraph"):
        original = getattr(testing, name, None)
        if original is not None:
            undo.append(swap(original, _benchmark(original, UNTIMED_CALLS if name == "do_bench" else (0,))))
    return undo


def _benchmark(original: Callable[..., Any], untimed: tuple[int, ...]) -> Callable[..., Any]:
    """A benchmark function whose timed launches are left alone."""

    def benchmark(fn: Callable[[], Any], *arguments: Any, **options: Any) -> Any:
        if thread.tuning:
            return original(fn, *arguments, **options)
        calls = 0

        def counted() -> Any:
            nonlocal calls
            number, calls = calls, calls + 1
            with tuning(number not in untimed):
                return fn()

        with timed_stretch():
            return original(counted, *arguments, **options)

    return benchmark
