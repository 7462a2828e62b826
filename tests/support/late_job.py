"""A trace of several ranks that enter collectives, some of them late for a known reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from tests.support.builders import Span, make_trace
from warplens.trace.model import Trace
from warplens.trace.rank_clocks import RankCall, RankClock, RankClocks, TiedHost

STEPS = 8


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
