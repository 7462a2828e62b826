"""How far to trust a trace, in sentences: what was lost, what the clock's error is, what warplens itself cost."""

from __future__ import annotations

from warplens.trace.model import Trace
from warplens.wording import plural

_WORDS = {
    "tracks_invalid": "{} had impossible headers and were not read",
    "tracks_without_exit": "{} never exited (a trap or a hang); their open spans end at their last record",
    "orphan_ends": "{} had no begin",
    "mismatched_ends": "{} did not close the innermost region",
    "open_spans": "{} never ended; they are flagged `open` and left out of durations",
    "empty_slots": "{} inside tracks were never written",
    "torn_payloads": "{} lost their payload",
    "unknown_regions": "{} name a region that the capture does not know",
    "clock_backward": "{} ran a little backward",
    "clock_ambiguous": "{} may hide a gap longer than the 32-bit clock; add anchors",
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
    "clock_ambiguous": "track",
}


def warnings_of(trace: Trace) -> list[str]:
    """One line for each thing that a reader of the numbers must know; empty for a clean trace."""
    losses = trace.meta.losses
    lines = []
    if losses.records_lost:
        full = plural(losses.tracks_full, "warp")
        lines.append(
            f"{losses.records_lost:,} of {plural(losses.records_written, 'record')} did not fit ({full} full); "
            f"profile again with records_per_warp={losses.most_written} or more, or full='ring' to keep the latest"
        )
    for name, words in _WORDS.items():
        count = getattr(losses, name)
        if count:
            lines.append(words.format(plural(count, _NOUNS[name])))
    lines += losses.details[:5]
    if trace.meta.clock.method in ("nominal", "unknown"):
        lines.append(f"times in ns are not measured: the clock rate is {trace.meta.clock.method}; cycles are exact")
    return lines


def clock_line(trace: Trace) -> str:
    """The clock fit in one sentence."""
    clock = trace.meta.clock
    if not clock.anchors:
        return "no anchors: times in ns are unknown"
    return (
        f"{clock.mhz_min:,.0f} to {clock.mhz_max:,.0f} MHz (mean {clock.mhz_mean:,.0f}), placed within "
        f"{clock.residual_p50_ns:.0f} ns (median), {clock.residual_p99_ns:.0f} ns (p99), "
        f"{clock.residual_max_ns:.0f} ns (max) by {clock.anchors:,} anchors on {clock.sms:,} SMs"
        + (f" with {plural(clock.clocks, 'clock')}" if clock.clocks else "")
    )
