"""The quality of a trace in sentences: what was lost, and the error of its clock."""

from __future__ import annotations

import numpy as np

from warplens.record.capture import BY_RATE, FULL, HANG
from warplens.trace.model import Trace
from warplens.trace.rank_clocks import RankClocks
from warplens.wording import duration, number_ranges, plural

HOST_TIME = "times are those of the CPU (TRITON_INTERPRET, or a kernel that was emulated)"
_SENTENCES = {
    "tracks_invalid": "{} had invalid headers and were skipped",
    "tracks_without_exit": "{} never exited (trap or hang); their open spans end at their last record",
    "orphan_ends": "{} had no begin",
    "mismatched_ends": "{} did not close the innermost region",
    "open_spans": "{} never ended; they are flagged `open` and excluded from durations",
    "empty_slots": "{} inside tracks were never written",
    "torn_payloads": "{} lost their payload",
    "unknown_regions": "{} refer to a region that the capture does not list",
    "clock_backward": "{} went slightly backward",
    "damaged_records": "{} had a clock outside the lifetime of the warp or undecided, or impossible numbers: not shown",
    "clock_ambiguous": "{} may contain a gap longer than the clock can count; add anchors",
}
_NOUNS = {
    "tracks_invalid": "track",
    "tracks_without_exit": "warp",
    "orphan_ends": "end",
    "mismatched_ends": "end",
    "open_spans": "span",
    "empty_slots": "slot",
    "torn_payloads": "value",
    "unknown_regions": "record",
    "clock_backward": "clock read",
    "damaged_records": "record",
    "clock_ambiguous": "track",
}


def warnings_of(trace: Trace) -> list[str]:
    """One line per problem that affects the numbers; empty for a clean trace."""
    losses = trace.meta.losses
    lines = [*_hang_lines(trace), *_unfinished_ranks(trace)]
    if losses.records_lost:
        full = plural(losses.tracks_full, "warp")
        is_ring = any(info.extra.get(FULL) == "ring" for info in trace.meta.launches)
        other = "" if is_ring else ", or full='ring' to keep the latest"
        kept = "were overwritten by later ones" if is_ring else "did not fit"
        lines.append(
            f"{losses.records_lost:,} of {plural(losses.records_written, 'record')} {kept} ({full} full); "
            f"profile again with records_per_warp={losses.most_written} or more{other}"
        )
    for name, sentence in _SENTENCES.items():
        count = getattr(losses, name)
        if count:
            lines.append(sentence.format(plural(count, _NOUNS[name])))
    by_rate = sum(int(info.extra.get(BY_RATE) or 0) for info in trace.meta.launches)
    if by_rate:
        lines.append(
            f"{plural(by_rate, 'stretch')} between readings of the timer assumed that the short clock ran within 5 % "
            "of the rates of other warps; otherwise cycles in them are off by whole wraps"
        )
    lines += losses.details[:5]
    if trace.meta.clock.method in ("nominal", "unknown"):
        lines.append(f"times in ns are not measured: the clock rate is {trace.meta.clock.method}; cycles are exact")
    if trace.meta.clock.gap_error_ns > max(trace.meta.clock.residual_max_ns, trace.meta.clock.step_ns):
        clock = trace.meta.clock
        lines.append(
            f"a launch has no anchor for {duration(clock.gap_ns)}: if the clock changed meanwhile, times in ns are off "
            f"by up to {duration(clock.gap_error_ns)} (cycles are exact); record an anchor in its outer loop "
            "(wlt.anchor(), WL_ANCHOR(), wlc.anchor())"
        )
    return lines


def _hang_lines(trace: Trace) -> list[str]:
    if not any(HANG in info.extra for info in trace.meta.launches):
        return []
    from warplens.analyse.rank_hangs import job_lines

    return job_lines(trace)


def _unfinished_ranks(trace: Trace) -> list[str]:
    ranks = [rank for rank, clock in RankClocks.of(trace.meta).ranks.items() if not clock.ended]
    if not ranks:
        return []
    who = f"rank {ranks[0]} has" if len(ranks) == 1 else f"ranks {number_ranges(ranks)} have"
    return [f"{who} not ended: killed, or still running; what is not in the last part is missing"]


def time_line(trace: Trace) -> str:
    """Whose times these are, where it is not a GPU's; empty otherwise."""
    clocks = {info.clock for info in trace.meta.launches}
    if "cpu" in clocks:
        return f"{HOST_TIME}, not those of a GPU"
    return "times are those of a simulated clock, not those of a GPU" if "simulated" in clocks else ""


def clock_line(trace: Trace) -> str:
    """The clock rates and the clock alignment error, in one line."""
    clock = trace.meta.clock
    if not clock.anchors:
        return "no anchors: times in ns are unknown"
    return (
        f"{clock.mhz_min:,.0f} to {clock.mhz_max:,.0f} MHz (mean {clock.mhz_mean:,.0f}"
        + (f", error {clock.mhz_error:,.1f}" if clock.mhz_error else "")
        + "); clock alignment error: "
        f"{duration(clock.residual_p50_ns)} median, {duration(clock.error_p99_ns)} p99, {duration(clock.error_max_ns)} "
        f"max ({plural(clock.anchors, 'anchor')}, {plural(clock.sms, 'SM')}"
        + (f", {plural(clock.clocks, 'clock domain')})" if clock.clocks else ")")
    )


def rank_line(trace: Trace) -> str:
    """How far the times of two ranks may be off against each other; empty for a trace of one rank."""
    ranks = {info.rank for info in trace.meta.launches}
    if len(ranks) < 2:
        return ""
    clocks = RankClocks.of(trace.meta)
    if not clocks.ranks:
        return f"{len(ranks)} ranks, placed by their devices' globaltimers; their clocks were not compared"
    bounds, known = clocks.bounds(), list(clocks.ranks)
    one, other = (known[at] for at in np.unravel_index(bounds.argmax(), bounds.shape))
    methods = sorted({host.method for host in clocks.hosts[1:]})
    tied = f"; hosts tied by {' and '.join(methods)}" if methods else ""
    middle = float(np.median(bounds[np.triu_indices(len(known), 1)])) if len(known) > 1 else 0.0
    return (
        f"{len(known)} ranks on {plural(len(clocks.hosts), 'host')}; clock bound between two ranks: "
        f"{duration(middle)} median, {duration(clocks.worst_ns)} at most (ranks {one} and {other}){tied}"
    )
