"""Programs of one warp: the records they leave, and the rows that a decoder must give for them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from warplens.decode import decode
from warplens.native import load
from warplens.record.capture import Capture, Device, Launch
from warplens.record.layout import Kind
from warplens.record.track_writer import TrackWriter
from warplens.trace.model import Trace

REGIONS = {1: "load", 2: "mma", 7: "wait", 4096: "store", 1 << 23: "epilogue"}
MHZ = 1000.0
"""One cycle is one ns, so that expected times are plain numbers."""


@dataclass
class Program:
    """What one warp does, as it is meant: rows to expect beside the records that say so."""

    capacity: int
    full: str = "stop"
    start: int = 1000
    wide: bool = False
    steps: list[tuple[str, int, int]] = field(default_factory=list)


def ns_of(clock: int) -> int:
    return 1_000_000 + clock


def write(program: Program, *, block: int = 0, warp: int = 0, sm: int = 0, exits: bool = True) -> np.ndarray:
    writer = TrackWriter(program.capacity, block=block, warp=warp, sm=sm, full=program.full, wide=program.wide)
    clock = program.start
    writer.start(clock, ns_of(clock))
    stack: list[int] = []
    for what, region, gap in program.steps:
        clock += gap
        if what == "begin":
            stack.append(region)
            writer.record(Kind.BEGIN, region, clock)
        elif what == "end":
            writer.record(Kind.END, stack.pop(), clock)
        elif what == "instant":
            writer.record(Kind.INSTANT, region, clock)
        elif what == "value":
            writer.value(region, clock, gap)
        else:
            writer.anchor(clock, ns_of(clock))
    if exits:
        writer.exit(clock + 10, ns_of(clock + 10))
    return writer.to_bytes()


def expected(program: Program) -> list[tuple]:
    """(region, kind, depth, parent, start, duration, value, open) of each row, walked the slow and obvious way."""
    rows: list[list] = []
    stack: list[int] = []
    clock = program.start
    slots = 0
    lost_before = 0
    total = sum(2 if what in ("value", "anchor") else 1 for what, _, _ in program.steps)
    if program.full == "ring":
        lost_before = max(total - program.capacity, 0)
    for what, region, gap in program.steps:
        clock += gap
        width = 2 if what in ("value", "anchor") else 1
        record = slots + width - 1
        slots += width
        visible = lost_before <= record < (total if program.full == "ring" else program.capacity)
        if what == "end":
            begun = stack.pop()
            if visible and begun >= 0:
                rows[begun][5] = clock - rows[begun][4]
                rows[begun][7] = False
        elif what != "anchor":
            shown = [row for row in stack if row >= 0]
            if visible:
                whole = record - 1 >= lost_before
                value = float(gap) if what == "value" and whole else None
                kind = "span" if what == "begin" else what
                parent = shown[-1] if shown else -1
                rows.append([REGIONS[region], kind, len(shown), parent, clock, 0, value, what == "begin"])
            if what == "begin":
                stack.append(len(rows) - 1 if visible else -1)
    last = _last_visible(program) if program.full == "stop" and total > program.capacity else clock + 10
    for row in rows:
        if row[7]:
            row[5] = last - row[4]
    return [tuple(row) for row in rows]


def kept(program: Program) -> int:
    """Slots that hold records: a value or anchor at the end of a stopping track fits whole or not at all."""
    widths = [2 if what in ("value", "anchor") else 1 for what, _, _ in program.steps]
    if program.full == "ring":
        return min(sum(widths), program.capacity)
    kept = 0
    for end, width in zip(np.cumsum(widths).tolist(), widths, strict=True):
        kept += width if end <= program.capacity else 0
    return kept


def _last_visible(program: Program) -> int:
    clock, slots, last = program.start, 0, program.start
    for what, _, gap in program.steps:
        clock += gap
        slots += 2 if what in ("value", "anchor") else 1
        if slots <= program.capacity:
            last = clock
    return last


def capture_of(tracks: list[np.ndarray], capacity: int, full: str = "stop", blocks: int = 64) -> Capture:
    launch = Launch("kernel", (blocks, 1, 1), (1024, 1, 1), REGIONS, capacity, np.concatenate(tracks), full)
    return Capture([launch], Device(clock_mhz=MHZ))


def rows_of(trace: Trace, track: int = 0) -> list[tuple]:
    part = trace.select(track=track) if len(trace) else trace
    names = ("region", "kind", "depth", "parent", "start_cycle", "dur_cycles", "value", "open")
    return list(zip(*(part.spans[name].to_pylist() for name in names), strict=True))


def both(capture: Capture) -> Trace:
    """Decode natively and in numpy; the two must agree to the last byte."""
    assert load() is not None, "no C compiler: the native decoder cannot be tested"
    native, plain = decode(capture), decode(capture, native=False)
    assert native.spans.equals(plain.spans)
    assert native.meta == plain.meta
    return native


@st.composite
def programs(draw: st.DrawFn, full: str | None = None) -> Program:
    steps: list[tuple[str, int, int]] = []
    depth = 0
    gaps = st.one_of(st.integers(0, 500), st.sampled_from([1 << 20, 3 << 30]))
    for _ in range(draw(st.integers(0, 40))):
        choices = ["begin", "instant", "value", "anchor", *(["end", "end"] if depth else [])]
        what = draw(st.sampled_from(choices))
        depth += {"begin": 1, "end": -1}.get(what, 0)
        steps.append((what, draw(st.sampled_from(sorted(REGIONS))), draw(gaps)))
    if draw(st.booleans()):
        steps += [("end", 1, draw(gaps)) for _ in range(depth)]
    capacity = draw(st.sampled_from([0, 1, 5, 16, 128]))
    start = draw(st.sampled_from([0, 1000, (1 << 32) - 200, (5 << 32) + 17]))
    return Program(capacity, full or draw(st.sampled_from(["stop", "ring"])), start, steps=steps)
