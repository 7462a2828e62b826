"""How much of a cycle spent in a region reaches the end of its kernel, measured with delays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from warplens.analyse.delay_fit import DelayFit, Estimate

HIDDEN, PARTLY, CRITICAL, SERIALISED, UNDECIDED = "hidden", "partly", "critical", "serialised", "undecided"
_NEAR = 0.15
"""A slope whose interval stays within this distance of 0 or 1 counts as it."""
_WIDE = 0.5
"""An interval that is wider than this decides nothing."""
_NUMBERS = (
    "slope", "low", "high", "executions", "base_ns", "base_spread", "probe_cost", "hidden_up_to", "launches", "rounds",
    "path_share",
)  # fmt: skip
_SEVERAL = 1.3
"""From this slope on, more than one warp's delay reaches the end: they take turns."""


@dataclass(frozen=True)
class RegionSensitivity:
    """One region of one kernel variant.

    `slope` is the share of a cycle in the region that reaches the kernel's end: 0 hidden, 1 critical, more than 1 where
    warps take turns in it. `low` and `high` bound it with 95 % confidence. `executions` is how often the region is
    executed one after the other in a launch. `delays` are cycles per execution, and `extra_ns` what each added to the
    kernel, with bounds. `base_ns` is the kernel's time with a delay of 0, `base_spread` its spread, and `probe_cost`
    what the probe alone costs against the plain kernel. `hidden_up_to` is the longest delay without effect, in cycles,
    where a longer one had one. `path_share` is the region's share of the critical path in the recorded trace. `reason`
    says why there is no slope.
    """

    kernel: str
    variant: str
    region: str
    slope: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: str = UNDECIDED
    executions: float = 0.0
    delays: Sequence[float] = ()
    extra_ns: Sequence[Sequence[float]] = ()
    base_ns: float = 0.0
    base_spread: float = 0.0
    probe_cost: float | None = None
    hidden_up_to: float = 0.0
    launches: int = 0
    rounds: int = 0
    path_share: float | None = None
    reason: str = ""
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Sensitivity:
    """The answer of one experiment. `results` says whether the program's results stayed the same under delays:
    `identical`, `different`, `varying` (they differ without delays too) or `not checked`."""

    regions: Sequence[RegionSensitivity]
    results: str = "not checked"
    device: str = ""
    notes: Sequence[str] = field(default_factory=tuple)

    def __getitem__(self, region: str) -> RegionSensitivity:
        """The only region of this name; `sensitivity.of` finds one of several kernels."""
        return self.of(region)

    def of(self, region: str, kernel: str | None = None) -> RegionSensitivity:
        """The region of a kernel; of several variants, the one with most launches."""
        found = [one for one in self.regions if one.region == region and kernel in (None, one.kernel)]
        if not found:
            raise KeyError(region)
        return max(found, key=lambda one: one.launches)

    def to_json(self) -> dict[str, Any]:
        return _finite(asdict(self))  # type: ignore[no-any-return]

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Sensitivity:
        """The inverse of `to_json`. A trace file may hold anything: what is not of its type is left out."""
        listed = document.get("regions")
        regions = [_region(one) for one in listed if isinstance(one, dict)] if isinstance(listed, (list, tuple)) else []
        more = {key: document[key] for key in ("results", "device") if isinstance(document.get(key), str)}
        return cls(tuple(one for one in regions if one is not None), notes=_texts(document.get("notes")), **more)


def judge(one: RegionSensitivity, fit: DelayFit, cycles_per_ns: float) -> RegionSensitivity:
    """Turn a fit into the answer for a region, whose executions are known."""
    scale = one.executions or math.nan
    slope = Estimate(fit.rate.value / scale, fit.rate.low / scale, fit.rate.high / scale)
    return replace(
        one,
        slope=slope.value,
        low=slope.low,
        high=slope.high,
        verdict=verdict_of(slope),
        delays=tuple(point.delay for point in fit.points),
        extra_ns=tuple(
            (p.extra.value / cycles_per_ns, p.extra.low / cycles_per_ns, p.extra.high / cycles_per_ns)
            for p in fit.points
        ),
        base_ns=fit.base_cycles / cycles_per_ns,
        base_spread=fit.base_spread,
        # A region that is hidden altogether has no point from which on it is not.
        hidden_up_to=0.0 if verdict_of(slope) == HIDDEN else fit.hidden_up_to,
        rounds=fit.rounds,
    )


def verdict_of(slope: Estimate) -> str:
    """A slope in one word."""
    if not slope.high - slope.low <= _WIDE and not slope.low > _SEVERAL:
        return UNDECIDED
    if slope.low > _SEVERAL:
        return SERIALISED
    if slope.high < _NEAR:
        return HIDDEN
    return CRITICAL if slope.value > 1 - _NEAR and slope.low > 1 - 2 * _NEAR else PARTLY


def ranked(regions: Iterable[RegionSensitivity]) -> tuple[RegionSensitivity, ...]:
    """By kernel in order of appearance, then from the most critical region to those without an answer."""
    some = list(regions)
    kernels = list(dict.fromkeys((one.kernel, one.variant) for one in some))
    return tuple(
        sorted(some, key=lambda one: (kernels.index((one.kernel, one.variant)), one.slope is None, -(one.slope or 0.0)))
    )


def _region(document: Mapping[str, Any]) -> RegionSensitivity | None:
    """A region of a document; None where it does not say which."""
    texts = {name: document.get(name) for name in ("kernel", "variant", "region", "verdict", "reason")}
    if not all(isinstance(texts[name], str) for name in ("kernel", "variant", "region")):
        return None
    known: dict[str, Any] = {name: text for name, text in texts.items() if isinstance(text, str)}
    for name in _NUMBERS:
        value = document.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
            known[name] = value
    if any(name not in known for name in ("slope", "low", "high")):
        for name in ("slope", "low", "high"):
            known.pop(name, None)
    known["delays"] = _floats(document.get("delays"))
    extra = document.get("extra_ns")
    known["extra_ns"] = tuple(_floats(one) for one in extra) if isinstance(extra, (list, tuple)) else ()
    return RegionSensitivity(**known, notes=_texts(document.get("notes")))


def _floats(value: Any) -> tuple[float, ...]:
    some = value if isinstance(value, (list, tuple)) else ()
    return tuple(float(one) for one in some if isinstance(one, (int, float)) and math.isfinite(one))


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, (list, tuple)) else ()


def _finite(value: Any) -> Any:
    """The same document without numbers that JSON cannot hold."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value
