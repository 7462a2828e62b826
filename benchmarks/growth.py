"""How time grows with the size of a trace: processor seconds at three sizes, and the exponent of the growth.

    PYTHONPATH=src python -m benchmarks.growth [--only WORD]

Processor time, so that what else the machine does has little say; the fastest of some tries, each on a trace whose
columns and answers are not known yet.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.support.builders import Span, make_trace
from tests.support.small_launches import small_launches
from tests.support.synthetic_capture import make_capture
from warplens.analyse.findings import findings
from warplens.analyse.region_tree import region_tree
from warplens.decode import decode
from warplens.record.capture import Capture, Device, Launch
from warplens.record.layout import Kind
from warplens.record.track_writer import TrackWriter
from warplens.trace.model import Trace

_TRIES = 3
_ENOUGH_S = 3.0
"""Work that takes long is not tried again."""
MOST_LAUNCHES = 8000
"""Launches of one kernel that must decode in 2 s."""

Fresh = Callable[[], Any]
"""What a try works on, made anew for each."""


def cases() -> dict[str, tuple[tuple[int, ...], Callable[[int], Fresh], Callable[[Any], Any]]]:
    """By name: the sizes, what makes the input of one size, and the work."""
    spans, launches, regions = (250_000, 500_000, 1_000_000), (500, 1000, 2000), (2500, 5000, 10_000)
    opened, levels = (2000, 4000, 8000), (250, 500, 1000)
    works = {"stats": Trace.stats, "findings": findings, "report": _report}
    found: dict[str, Any] = {
        "decode, by launches": (launches, lambda size: _same(small_launches(size)), decode),
        "decode, by spans": (spans, lambda size: _same(make_capture(size)), decode),
        "save, by spans": (spans, _of(make_capture), _save),
    }
    for name, work in works.items():
        found[f"{name}, by spans"] = spans, _of(make_capture), work
        found[f"{name}, by launches"] = launches, _of(lambda size: small_launches(size, blocks=8)), work
        few = tuple(size // 4 for size in regions) if name == "report" else regions
        found[f"{name}, by regions"] = few, _of(lambda size: small_launches(1, blocks=2, spans=size)), work
        found[f"{name}, by open async spans of one track"] = opened, _of(left_open), work
    found["export to Perfetto, by open async spans of one track"] = opened, _of(left_open), _perfetto
    found["region tree, by levels"] = levels, lambda size: _again(nested_levels(size)), region_tree
    found["region tree, by regions"] = regions, found["stats, by regions"][1], region_tree
    return found


def growth(scale: float = 1.0, only: str = "") -> dict[str, dict[str, Any]]:
    """For each kind of work: processor seconds at three sizes, and the exponent between the first and the last."""
    found = {}
    for name, (sizes, make, work) in cases().items():
        if only in name:
            found[name] = _measured([max(int(size * scale), 8) for size in sizes], make, work)
    if not only:
        found[f"decode of {int(MOST_LAUNCHES * scale)} launches"] = _measured(
            [max(int(MOST_LAUNCHES * scale), 8)], lambda size: _same(small_launches(size, blocks=33)), decode
        )
    return found


def nested_levels(count: int) -> Trace:
    """A trace of 10 warps whose regions are nested this deep."""
    spans = [(at, 4 * count - 2 * at, warp) for warp in range(10) for at in range(count)]
    return make_trace([Span(f"level_{at % 7}", at, lasts, warp=warp, depth=at) for at, lasts, warp in spans])


def left_open(count: int) -> Capture:
    """One warp that begins so many asynchronous spans and ends none."""
    writer = TrackWriter(count + 8)
    writer.start(1000, 1_763_000_000_000_000_000)
    for number in range(count):
        writer.record(Kind.ASYNC_BEGIN, 1 + number % 3, 1100 + 20 * number, number % 32)
    last = 1200 + 20 * count
    writer.exit(last, 1_763_000_000_000_000_000 + last // 2)
    launch = Launch("opens", (1, 1, 1), (32, 1, 1), {1: "a", 2: "b", 3: "c"}, count + 8, writer.to_bytes())
    return Capture([launch], Device("one", sm_count=1, clock_mhz=2000.0))


def _same(value: Any) -> Fresh:
    return lambda: value


def _again(trace: Trace) -> Fresh:
    """The trace without what it has computed."""
    table, meta = trace.spans, trace.meta
    return lambda: Trace(table, meta)


def _of(make: Callable[[int], Capture]) -> Callable[[int], Fresh]:
    return lambda size: _again(decode(make(size)))


def _report(trace: Trace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        trace.export(Path(folder) / "out.html")


def _perfetto(trace: Trace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        trace.export(Path(folder) / "out.pftrace")


def _save(trace: Trace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        trace.save(Path(folder) / "out.warplens")


def _measured(sizes: Sequence[int], make: Callable[[int], Fresh], work: Callable[[Any], Any]) -> dict[str, Any]:
    work(make(8)())  # what is imported, compiled or allocated once
    seconds = []
    for size in sizes:
        fresh, tries = make(size), []
        for _ in range(_TRIES):
            given = fresh()
            gc.collect()
            begin = time.process_time()
            work(given)
            tries.append(time.process_time() - begin)
            if sum(tries) > _ENOUGH_S:
                break
        seconds.append(min(tries))
    found: dict[str, Any] = {"sizes": list(sizes), "seconds": seconds}
    if len(sizes) > 1:
        found["exponent"] = math.log(seconds[-1] / max(seconds[0], 1e-9)) / math.log(sizes[-1] / sizes[0])
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="measure only what has this word in its name")
    parser.add_argument("--scale", type=float, default=1.0, help="multiply all sizes")
    given = parser.parse_args()
    print(json.dumps(growth(given.scale, given.only), indent=1))
