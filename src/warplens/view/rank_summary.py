"""What the view of a job asks each rank for: a few lines about what it does, small and quickly made."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NoReturn


@dataclass(frozen=True)
class LiveCollective:
    """The newest collective of a group that a rank has entered: how long ago, and whether it is still in it."""

    group: str
    number: int
    operation: str
    waits_for: str
    ago_s: float
    inside: bool


@dataclass(frozen=True)
class RankSummary:
    """A rank `age_s` seconds ago. `running` has the kernels that run with their time in seconds, `launched` how often
    kernels were launched, and `where` the foremost group of warps of each launch that runs."""

    ended: bool = False
    age_s: float = 0.0
    running: Mapping[str, float] = field(default_factory=dict)
    launched: Mapping[str, int] = field(default_factory=dict)
    launches: int = 0
    last_launch: tuple[str, float] | None = None
    """The kernel that was launched last, recorded or not, and how many seconds ago."""
    collectives: Sequence[LiveCollective] = ()
    where: Sequence[str] = ()

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), allow_nan=False).encode()

    @classmethod
    def from_json(cls, text: bytes) -> RankSummary:
        """The inverse of `to_json`; raises ValueError at anything else."""
        try:
            known = json.loads(text, parse_constant=_refuse)
            last = known["last_launch"]
            return cls(
                bool(known["ended"]),
                float(known["age_s"]),
                _mapping(known["running"], float),
                _mapping(known["launched"], int),
                int(known["launches"]),
                None if last is None else (str(last[0]), float(last[1])),
                [_collective(**one) for one in known["collectives"]],
                [str(line) for line in known["where"]],
            )
        except (TypeError, LookupError, AttributeError, OverflowError, RecursionError) as error:
            raise ValueError(f"malformed ({error!r})") from None


def _collective(group: str, number: int, operation: str, waits_for: str, ago_s: float, inside: bool) -> LiveCollective:
    return LiveCollective(str(group), int(number), str(operation), str(waits_for), float(ago_s), bool(inside))


def _mapping(known: Any, kind: Callable[[Any], Any]) -> dict[str, Any]:
    return {str(name): kind(value) for name, value in known.items()}


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")
