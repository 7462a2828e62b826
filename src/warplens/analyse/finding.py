"""A finding: one statement of an analysis with its evidence, its size and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

Number = float | int | str


@dataclass(frozen=True)
class Finding:
    """`gain` is the estimated share of the kernel's time that acting on it would save, `gain_ns` the same per launch.

    `withheld` says why the finding is not reliable: it is smaller than the clock's error or the profiling overhead, or
    the trace lacks data for it. Gains of different findings overlap; they do not add up.
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
        """The gain as a share of the whole trace, by which findings are ordered."""
        return self.gain * self.kernel_share

    def to_json(self) -> dict[str, Any]:
        document = asdict(self)
        document["evidence"] = {name: _plain(value) for name, value in self.evidence.items()}
        return document


def _plain(value: Any) -> Number:
    """Convert numpy numbers to Python numbers for JSON."""
    plain: Number = value.item() if hasattr(value, "item") else value
    return plain
