"""Launch by the function in C that Triton compiled for a kernel, without the Python that stands in front of it.

There, Triton asks its allocators for scratch memory and adds what it keeps of the kernel. For a launch that goes
through warplens this is known before, and leaving it out saves about as much time as warplens takes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

Launch = Callable[..., Any]
"""Takes profile scratch (None for none), then what Triton's launchers take."""

_TRITON_S_OWN = "triton.backends.nvidia.driver"
_GRID, _STREAM, _FUNCTION = (2, 3, 5), 7, 11
_REST = tuple(object() for _ in range(6))
"""A launch that is tried: kernel metadata, launch metadata, two hooks, and two arguments of the kernel."""


def straight_launch(launcher: Any, scratch: int | None = None) -> Launch | None:
    """A function that launches as `launcher` does; None where that may do more than pass its arguments on.

    `scratch` is what Triton's profile allocator gives now, for a kernel that asks for it.
    """
    if getattr(type(launcher).__call__, "__module__", None) != _TRITON_S_OWN:
        return None  # somebody else stands in front of it
    if getattr(launcher, "global_scratch_size", 0):
        return None  # the program's own allocator is asked at each launch
    passed: list[tuple[Any, ...]] = []
    probe = copy.copy(launcher)
    probe.launch = lambda *given: passed.append(given)
    try:
        probe(*_GRID, _STREAM, _FUNCTION, *_REST)
        c_launch, given = launcher.launch, passed[0]
        settings = given[5:7]  # whether the launch is cooperative, and whether it may overlap the one before
    except Exception:  # a launcher of a kind that is not known; its own launches tell what is wrong
        return None
    if given == (*_GRID, _STREAM, _FUNCTION, *settings, None, scratch, *_REST):
        return lambda scratch, x, y, z, stream, function, *rest: c_launch(
            x, y, z, stream, function, *settings, None, scratch, *rest
        )
    form = given[13:15]  # how the kernel's arguments are passed, in newer versions of Triton
    if given == (*_GRID, _STREAM, _FUNCTION, *settings, *_REST[:4], None, scratch, *form, _REST[4:]):
        return lambda scratch, x, y, z, stream, function, about, launch, enter, leave, *rest: c_launch(
            x, y, z, stream, function, *settings, about, launch, enter, leave, None, scratch, *form, rest
        )
    return None
