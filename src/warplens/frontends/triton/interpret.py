"""Marks under TRITON_INTERPRET=1: host time, one track per program."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from warplens.errors import UsageError
from warplens.launch.variant import Variant
from warplens.record.capture import VARIANT, Launch
from warplens.record.layout import Kind, linear_block, track_stride
from warplens.record.track_writer import TrackWriter
from warplens.weave.mark_comments import KINDS

_Event = tuple[Kind, int, int, int, Any]


class Interpreted:
    """One interpreted launch: what each program marked, in order."""

    def __init__(self, kernel: str, variant: Variant | None = None) -> None:
        self.kernel, self.variant = kernel, variant
        self.grid = (1, 1, 1)
        self.regions: dict[str, int] = {}
        self.events: dict[int, list[_Event]] = {}
        self.over = False

    @property
    def launch(self) -> Launch | None:
        """The launch once it is over."""
        return self.collect() if self.over else None

    def add(self, kind: Kind, name: str, tag: int = 0, payload: Any = None) -> None:
        clock = time.perf_counter_ns()
        region = self.regions.setdefault(name, len(self.regions) + 1)
        self.events.setdefault(self._block(), []).append((kind, region, clock, tag, payload))

    def _block(self) -> int:
        from triton.runtime.interpreter import interpreter_builder

        x, y, z = interpreter_builder.grid_dim
        self.grid = (int(x), int(y), int(z))
        index = interpreter_builder.grid_idx
        return linear_block((int(index[0]), int(index[1]), int(index[2])), self.grid)

    def collect(self) -> Launch:
        """The launch as if one warp per program had recorded it."""
        slots = [sum(2 if kind is Kind.VALUE else 1 for kind, *_ in events) for events in self.events.values()]
        capacity = max(slots, default=0)
        raw = np.empty((len(self.events), track_stride(capacity)), np.uint8)
        offset = time.time_ns() - time.perf_counter_ns()
        for row, (block, events) in zip(raw, self.events.items(), strict=True):
            writer = TrackWriter(capacity, block=block)
            writer.start(events[0][2], events[0][2] + offset)
            for kind, region, clock, tag, payload in events:
                if kind is Kind.VALUE:
                    writer.value(region, clock, payload)
                else:
                    writer.record(kind, region, clock, tag)
            writer.exit(events[-1][2], events[-1][2] + offset)
            row[:] = writer.to_bytes()
        names = {number: name for name, number in self.regions.items()}
        described = {} if self.variant is None else {VARIANT: dict(self.variant.describe())}
        return Launch(self.kernel, self.grid, (1, 1, 1), names, capacity, raw.reshape(-1), clock="cpu", extra=described)


_current: Interpreted | None = None


def mark(letter: str, name: str, tag: int = 0) -> None:
    """A mark reached by the interpreter; outside a profiled launch it does nothing."""
    if _current is not None:
        _current.add(KINDS[letter], name, tag)


def value(name: str, v: Any) -> None:
    if _current is not None:
        if getattr(getattr(v, "type", None), "is_block", bool)():
            shape = list(v.handle.data.shape)
            raise UsageError(f"value {name!r} is a block of shape {shape}: reduce it to a scalar first")
        _current.add(Kind.VALUE, name, payload=scalar(v))


def scalar(v: Any) -> Any:
    """A Python number from a constexpr, a number or the interpreter's tensor."""
    v = getattr(v, "value", v)
    handle = getattr(v, "handle", None)
    return v if handle is None else handle.data.reshape(-1)[0].item()


@contextmanager
def recording(launch: Interpreted) -> Iterator[None]:
    global _current
    before, _current = _current, launch
    try:
        yield
    finally:
        _current, launch.over = before, True
