"""One statement an analysis makes: what, evidence, size, what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

Number = float | int | str


@dataclass(frozen=True)
class Finding:
    """`gain` is the estimated share of the kernel's time that acting on it would save, `gain_ns` the same per launch.

    `withheld` says why the statement should not be believed: it is smaller than the clock's error or the profiler's
    own cost, or the trace does not hold what it needs. Gains of different findings overlap; they do not add up.
    """

    kind: str
    what: str
    advice: str
    gain: float
    kernel: str
    evidence: Mapping[str, Number] = field(default_factory=dict)
    region: str = ""
    sms: Sequence[int] = ()
    warps: Sequence[int] = ()
    blocks: Sequence[int] = ()
    gain_ns: float = 0.0
    kernel_share: float = 1.0
    withheld: str = ""

    @property
    def rank(self) -> float:
        """What findings are ordered by: the gain in terms of everything the trace saw."""
        return self.gain * self.kernel_share

    def to_json(self) -> dict[str, Any]:
        document = asdict(self)
        document["evidence"] = {name: _plain(value) for name, value in self.evidence.items()}
        return document


def numbers(values: Iterable[int], most: int = 8) -> str:
    """`0-3, 7, 9 and 4 more`: a list of numbers as people write it."""
    ordered = sorted({int(value) for value in values})
    runs: list[list[int]] = []
    for value in ordered:
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    words = [f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    rest = sum(len(run) for run in runs[most:])
    return ", ".join(words[:most]) + (f" and {rest} more" if rest else "")


def percent(share: float) -> str:
    return f"{100 * share:.0f} %" if abs(share) >= 0.0995 else f"{100 * share:.1f} %"


def digits(value: float) -> str:
    """Three digits, and never fewer than a whole number needs."""
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.3g}"


def duration(ns: float) -> str:
    """A time in the unit that reads best."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if abs(ns) >= size:
            return f"{digits(ns / size)} {unit}"
    return f"{ns:.0f} ns"


def _plain(value: Any) -> Number:
    """Numpy's numbers as Python's own, so that they are JSON."""
    plain: Number = value.item() if hasattr(value, "item") else value
    return plain
