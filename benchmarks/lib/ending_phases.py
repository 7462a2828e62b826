"""How long the steps at the end of a profile take."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from warplens.decode import capture_decoder
from warplens.launch.collected_run import CollectedRun
from warplens.profiling import profile
from warplens.session import Session

_STEPS: tuple[tuple[Any, str, str], ...] = (
    (Session, "collect", "collect"),
    (CollectedRun, "collect", "bring home"),
    (profile, "sample_launches", "sample"),
    (profile, "decode", "decode"),
    (capture_decoder, "decode_all", "decode rows"),
    (capture_decoder, "fit_launches", "fit clocks"),
    (profile.Profile, "_save", "save"),
)


@contextmanager
def timed_steps() -> Iterator[dict[str, list[float]]]:
    """For each step inside, the seconds of wall time and of the ending thread's processor time. Steps contain others:
    `collect` brings home, and `decode` decodes rows and fits clocks."""
    found: dict[str, list[float]] = {}

    def timed(step: Callable[..., Any], name: str) -> Callable[..., Any]:
        def run(*given: Any, **named: Any) -> Any:
            wall, cpu = time.perf_counter(), time.thread_time()
            try:
                return step(*given, **named)
            finally:
                so_far = found.setdefault(name, [0.0, 0.0])
                so_far[0] += time.perf_counter() - wall
                so_far[1] += time.thread_time() - cpu

        return run

    patches = [mock.patch.object(where, step, timed(getattr(where, step), name)) for where, step, name in _STEPS]
    for patch in patches:
        patch.start()
    try:
        yield found
    finally:
        for patch in patches:
            patch.stop()
