"""A finding in words: the same in the terminal, in reports and in tests."""

from __future__ import annotations

from warplens.analyse.finding import NOTHING_TO_FIX, UNDECIDED, UNMARKED_TIME, Finding, Number, Spread
from warplens.wording import digits, duration, numbered, percent

_SHOWN = 6
_SHARES = (
    "share",
    "waiting",
    "of_peak",
    "efficiency",
    "exposed",
    "gaps",
    "tail",
    "unused",
    "idle",
    "fetch_without",
    "work_without",
    "without_work",
    "purity",
    "complete",
    "_wait",
)


def gain_text(one: Finding) -> str:
    """`saves 24.0 to 48.0 % (12.1 µs to 24.2 µs per launch)`, `saves up to 9.0 % (4.5 µs per launch)`, or that there is
    no gain in time."""
    if one.gain.high <= 0:
        return "no gain in time" if one.kind != NOTHING_TO_FIX else "nothing to gain"
    low, high = percent(one.gain.low).removesuffix(" %"), percent(one.gain.high)
    if one.kind == NOTHING_TO_FIX:
        return f"at most {high}"
    if one.kind in (UNDECIDED, UNMARKED_TIME):
        return f"may save up to {high}"
    if float(low) <= 0:
        return f"saves up to {high} ({duration(one.gain_ns.high)} per launch)"
    saves = f"saves {low} to {high}" if low != high.removesuffix(" %") else f"saves {high}"
    return f"{saves} ({duration(one.gain_ns.low)} to {duration(one.gain_ns.high)} per launch)"


def place_text(one: Finding) -> str:
    """Where it is: the region with its line, the warps, blocks and SMs."""
    parts = [f"`{one.region}`" + (f" at {one.line}" if one.line else "")] if one.region else []
    named = (("SM", one.sms), ("block", one.blocks), ("warp", one.warps))
    parts += [numbered(word, values) for word, values in named if len(values)]
    return ", ".join(parts)


def evidence_text(one: Finding) -> str:
    """The numbers behind it, with their spread where it is known."""
    named = {name: name.removesuffix("_ns").replace("_", " ") for name in one.evidence}
    shown = [f"{named[name]} {_number(name, value)}" for name, value in one.evidence.items()]
    return "; ".join(shown[: _SHOWN + 2])


def _number(name: str, value: Number) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Spread):
        if value.samples < 2:
            return _plain(name, value.value)
        inside = f"{_plain(name, value.low)} to {_plain(name, value.high)} over {value.samples:,} {value.over}"
        return f"{_plain(name, value.value)} ({inside})"
    return _plain(name, value)


def _plain(name: str, value: float) -> str:
    if name.endswith("_ns"):
        return duration(value)
    if isinstance(value, int):
        return f"{value:,}"
    if 0 <= value <= 1 and any(word in name for word in _SHARES):
        return percent(value)
    return digits(value)
