"""A finding: the verdict on one possible cause of lost time, with its evidence, its gain and what to do next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

SUPPORTED, UNDECIDED, REFUTED = "supported", "undecided", "refuted"
HIGH, MEDIUM, LOW = "high", "medium", "low"
_WEIGHT = {HIGH: 1.0, MEDIUM: 0.8, LOW: 0.5}
NOTHING_TO_FIX = "nothing to fix"
UNMARKED_TIME = "unmarked time"
WAITS_INSIDE = "waits inside a region"
MINOR = 0.08
"""An expected gain below this is hardly worth the work."""


_FALLS_SHORT, _EXCEEDS = 0.3, 4.5
"""How the odds of a measured gain compare with those of the estimate, at least and at most: in most of the kernels of
docs/results/answers.md, which also says how the intervals do on kernels that these numbers were not chosen with. The
second one holds what lay above the intervals in the ninth set when it was blind: up to 1.5 times the odds of 3.0."""
_TWO_ESTIMATES = 0.5
_APART = 0.05


def _odds_times(share: float, factor: float) -> float:
    """The share whose odds are `factor` times those of `share`."""
    one = min(max(share, 0.0), 1.0)
    return factor * one / (1 - one + factor * one)


class Gain(NamedTuple):
    """The share of the kernel's time that is saved if the cause is removed, as an interval."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2

    @classmethod
    def between(cls, low: float, high: float) -> Gain:
        """An interval inside [0, 1] whose ends are in order."""
        top = min(max(float(high), 0.0), 1.0)
        return cls(min(max(float(low), 0.0), top), top)

    @classmethod
    def around(cls, least: float, most: float | None = None, roof: float = 1.0) -> Gain:
        """The interval around an estimate, or around the least and the largest of several, that ends below `roof`.

        A repair brings less than the removal of its cause would, and an estimate may be wrong either way; the odds of
        the time that is saved err by about the same factor whether that is little or much. Two estimates that differ
        already say part of that.
        """
        top = min(least if most is None else max(most, least), roof)
        bottom = min(least, top)
        part = _TWO_ESTIMATES if top - bottom > _APART else 1.0
        low, high = _odds_times(bottom, _FALLS_SHORT**part), _odds_times(top, _EXCEEDS**part)
        return cls.between(min(low, bottom - _APART), min(max(high, top + _APART / 2), roof))


NO_GAIN = Gain(0.0, 0.0)


class Spread(NamedTuple):
    """A measured number: its median, the 5th and 95th percentile, and over how many blocks, launches, … these are."""

    value: float
    low: float
    high: float
    samples: int
    over: str


Number = float | int | str | Spread


def spread(values: Any, over: str) -> Spread:
    """The spread of measurements that are not empty."""
    low, middle, high = (float(x) for x in np.percentile(values, (5, 50, 95)))
    return Spread(middle, low, high, len(values), over)


@dataclass(frozen=True)
class Finding:
    """What a hypothesis says of one variant of a kernel.

    `kernel` is the variant's label, `line` the source line of the region. `gain` has one meaning everywhere: the share
    of the kernel's time saved if the cause is removed; gains of different findings overlap and do not add up.
    `gain_ns` is the same per launch. `advice` is the next step, or what to record where the verdict is undecided;
    `refuted_by` is an observation that would prove it wrong. `consequences` are findings that this one explains.
    `withheld` says why a supported finding is not claimed.
    """

    kind: str
    what: str
    advice: str
    kernel: str
    gain: Gain = NO_GAIN
    verdict: str = SUPPORTED
    confidence: str = MEDIUM
    refuted_by: str = ""
    evidence: Mapping[str, Number] = field(default_factory=dict)
    region: str = ""
    line: str = ""
    sms: Sequence[int] = ()
    warps: Sequence[int] = ()
    blocks: Sequence[int] = ()
    gain_ns: Gain = NO_GAIN
    kernel_share: float = 1.0
    urgent: bool = False
    """Whether it comes before every finding about time: results that are wrong make their speed irrelevant."""
    withheld: str = ""
    caution: str = ""
    """What the machine code says against the region's time: its main work may be elsewhere. Empty if nothing."""
    consequences: tuple[Finding, ...] = ()

    @property
    def expected(self) -> float:
        """The gain to expect, by which findings of one kernel are ordered: that nothing is to fix comes before what is
        hardly worth it."""
        if self.kind in (NOTHING_TO_FIX, UNDECIDED):
            return MINOR
        if self.kind == UNMARKED_TIME:  # what is known comes before what is not
            return min(self.gain.middle, MINOR)
        return self.gain.middle * _WEIGHT[self.confidence]

    @property
    def rank(self) -> float:
        """The expected gain as a share of the whole trace."""
        return self.expected * self.kernel_share

    def is_about(self, kernel: str, region: str) -> bool:
        """Whether it is about this region, in any variant of the kernel."""
        return (
            bool(region) and self.region == region and (self.kernel == kernel or self.kernel.startswith(f"{kernel}["))
        )

    def with_consequences(self, below: Sequence[Finding]) -> Finding:
        return replace(self, consequences=(*self.consequences, *below))

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {name: getattr(self, name) for name in self.__dataclass_fields__}
        for name in ("gain", "gain_ns"):
            document[name] = {end: getattr(document[name], end) for end in ("low", "high")}
        document["evidence"] = {name: _plain(value) for name, value in self.evidence.items()}
        document |= {name: [int(value) for value in document[name]] for name in ("sms", "warps", "blocks")}
        document["consequences"] = [one.to_json() for one in self.consequences]
        return document


def _plain(value: Any) -> Any:
    """Convert numpy numbers to Python numbers for JSON, and a spread to an object."""
    if isinstance(value, Spread):
        return value._asdict()
    return value.item() if hasattr(value, "item") else value
