"""How many times as long a kernel takes with its marks: measured where it was, else estimated, and which of the two."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from warplens.record.capture import OVERHEAD_BUDGET
from warplens.record.cost_keys import SLOWDOWN, SLOWDOWN_MEASURED, TIMED_PLAIN, TIMED_RECORDED
from warplens.trace.schema import LaunchInfo
from warplens.wording import percent


@dataclass(frozen=True)
class Slowdown:
    """The ratio of recorded to plain time. `plain` and `recorded` count the launches it was measured with. `allowed` is
    the overhead budget, None without one."""

    ratio: float
    measured: bool
    plain: int = 0
    recorded: int = 0
    allowed: float | None = None

    @property
    def is_above(self) -> bool:
        """Whether it was measured to be above the overhead budget."""
        return self.measured and self.allowed is not None and self.ratio > 1 + self.allowed

    def __str__(self) -> str:
        if not self.measured:
            return f"{self.ratio:.2f} (estimated)"
        counts = f", {self.plain:,} plain and {self.recorded:,} recorded launches" * bool(self.plain and self.recorded)
        above = f", above the {percent(self.allowed)} allowed" if self.is_above and self.allowed is not None else ""
        return f"{self.ratio:.2f} (measured{counts}{above})"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def slowdown_of(launches: Sequence[LaunchInfo]) -> Slowdown | None:
    """The slowdown of launches of one kernel: the median over its variants, None where nothing is known of it."""
    measured = {_measurement(info) for info in launches if SLOWDOWN_MEASURED in info.cost}
    if measured:
        ratio = statistics.median(one[0] for one in measured)
        plain, recorded = sum(one[1] for one in measured), sum(one[2] for one in measured)
        return Slowdown(ratio, True, plain, recorded, _allowed(launches))
    estimated = [float(info.cost[SLOWDOWN]) for info in launches if SLOWDOWN in info.cost]
    return Slowdown(statistics.median(estimated), False) if estimated else None


def _allowed(launches: Sequence[LaunchInfo]) -> float | None:
    known = (info.extra.get(OVERHEAD_BUDGET, {}).get("allowed") for info in launches)
    return min((float(one) for one in known if isinstance(one, int | float)), default=None)


def _measurement(info: LaunchInfo) -> tuple[float, int, int]:
    """All launches of a variant carry the same measurement, which counts once."""
    plain, recorded = (int(info.cost.get(key, 0)) for key in (TIMED_PLAIN, TIMED_RECORDED))
    return float(info.cost[SLOWDOWN_MEASURED]), plain, recorded
