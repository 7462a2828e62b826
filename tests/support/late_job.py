"""A trace of several ranks that enter collectives, some of them late for a known reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.support.builders import Span, make_trace
from warplens.analyse.findings import Findings
from warplens.record.rank_notes import ALL, WALL, ClockSample, CollectiveCall, HostClock, RankNotes
from warplens.trace.io import save_rank
from warplens.trace.model import Trace
from warplens.trace.rank_clocks import RankCall, RankClock, RankClocks, TiedHost

STEPS = 8
_HOST_NS = 50_000_000
"""What the host's clock says when the job begins."""
LATE_JOBS: Mapping[str, Mapping[str, Any]] = {
    "a region": {"late": {2: {"softmax": 40_000}}},
    "two ranks": {"late": {1: {"load": 30_000}, 3: {"store": 60_000}}},
    "outside": {"late": {}, "pause": {3: 70_000}},
    "few launches": {"late": {2: {"softmax": 40_000}}, "steps": 24, "recorded": 4},
    "no cause": {"late": {2: {"softmax": 40_000}}, "recorded": 1},
    "nobody": {"late": {}},
    "no collective": {"late": {2: {"softmax": 40_000}}, "calls": False},
}


def late_job(
    late: Mapping[int, Mapping[str, int]],
    *,
    ranks: int = 4,
    steps: int = STEPS,
    bound_ns: float = 2_000,
    pause: Mapping[int, int] | None = None,
    hosts: int = 1,
    calls: bool = True,
    scatter: Callable[[], int] = lambda: 0,
    recorded: int | None = None,
) -> Trace:
    """Ranks that run `attn` with three regions, then `other`, then enter a collective. `late` adds to the regions of
    some ranks, `scatter` to all, and `pause` to their time before the collective. Launches of the first
    `recorded` steps are in the trace, by default of all."""
    spans, entered = [], []
    begin = dict.fromkeys(range(ranks), 0)
    for step in range(steps):
        entry = {}
        for rank in range(ranks):
            at, more = begin[rank], scatter()
            for block in range(4):
                place = at
                for region, lasts in (("load", 20_000), ("softmax", 30_000), ("store", 5_000)):
                    lasts += late.get(rank, {}).get(region, 0) + more * (region == "softmax")
                    spans.append(Span(region, place, lasts, block, launch=2 * step, rank=rank, kernel="attn"))
                    place += lasts
            spans.append(Span("copy", place, 10_000, launch=2 * step + 1, rank=rank, kernel="other"))
            entry[rank] = place + 12_000 + (pause or {}).get(rank, 0)
        end = max(entry.values()) + 3_000
        entered += [RankCall(rank, "world", step, "all_reduce", at, end - at) for rank, at in entry.items()]
        begin = dict.fromkeys(range(ranks), end + 1_000)
    trace = make_trace([span for span in spans if recorded is None or span.launch < 2 * recorded])
    clocks = RankClocks(
        {rank: RankClock(rank % hosts, bound_ns / 2 if hosts == 1 else 0.0) for rank in range(ranks)},
        [TiedHost(f"node{at}", "collectives", bound_ns if at else 0.0) for at in range(hosts)],
        entered if calls else [],
    ).with_worst()
    return Trace(trace.spans, replace(trace.meta, rank_clocks=clocks.to_json()))


def write_late_job(folder: Path, trace: Trace) -> Path:
    """The same job as its ranks write it: each a part on the clock of its own GPU, with what it noted of its clocks and
    its collectives."""
    calls = RankClocks.of(trace.meta).calls
    end = max((info.end_ns for info in trace.meta.launches), default=0) + 1_000_000
    for rank in sorted({info.rank for info in trace.meta.launches}):
        ahead = 7_000_000 * rank
        part = trace.select(rank=rank)
        samples = [ClockSample(at + _HOST_NS - 500, at + ahead, at + _HOST_NS + 500) for at in range(0, end, 100_000)]
        noted = [
            CollectiveCall("0:0-3", call.number, call.operation, ALL, *_on_host(call.begin_ns, call.stay_ns))
            for call in calls
            if call.rank == rank
        ]
        notes = RankNotes(HostClock("boot", "node"), {"0": samples, WALL: samples[:1]}, noted)
        meta = replace(part.meta, rank_clocks={}, rank_notes={str(rank): notes.to_json()}, origin_ns=ahead)
        save_rank(Trace(part.spans, meta), folder, rank)
    return folder


def _on_host(begin_ns: int, stay_ns: int) -> tuple[int, int]:
    return begin_ns + _HOST_NS, begin_ns + _HOST_NS + stay_ns


def late_verdicts(found: Findings) -> list[dict[str, Any]]:
    """What findings say of late ranks, without evidence about blocks."""
    verdicts = (*found.supported, *found.undecided, *found.withheld, *found.refuted)
    documents = [one.to_json() for one in verdicts if one.kind == "late rank"]
    for document in documents:
        document["evidence"].pop("block_ns", None)
    return sorted(documents, key=lambda one: str(one["kernel"]))
