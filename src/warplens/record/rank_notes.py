"""What one rank of a job notes of its clocks and its collectives, by which all ranks get one time axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

ALL, NONE = "all", "none"
"""Whom a rank waits for in a collective: all ranks of its group, or none of them. Else it is the number of a rank."""
WALL = "wall"
"""The key of the samples of the host's Unix time, which launches without a GPU are timed by."""
_LARGEST = 1 << 62


class ClockSample(NamedTuple):
    """A clock that was read between two readings of the host's clock, all in ns."""

    before_ns: int
    clock_ns: int
    after_ns: int


class CollectiveCall(NamedTuple):
    """One call of a collective by one rank: the `number`-th call of its `group`, counted from 0.

    Times are of the host's clock. `end_ns` is 0 if the host did not wait for the end. `device_begin_ns` and
    `device_end_ns` are the device's globaltimer when its stream reached the collective and when it was over; 0 if the
    data is on the host.
    """

    group: str
    number: int
    operation: str
    waits_for: str
    begin_ns: int
    end_ns: int
    device: int = 0
    device_begin_ns: int = 0
    device_end_ns: int = 0


@dataclass(frozen=True)
class HostClock:
    """The host of a rank. Ranks with the same `key` read the same clock.

    `error_ns` bounds the error of its Unix time if `source` vouches for it; 0 if nothing does.
    """

    key: str = ""
    name: str = ""
    source: str = ""
    error_ns: int = 0


@dataclass(frozen=True)
class RankNotes:
    """`samples` are readings of each device's globaltimer by its number, and of the Unix time (`WALL`). If the rank has
    not `ended`, it was killed after it wrote this, or still runs."""

    host: HostClock = HostClock()
    samples: Mapping[str, Sequence[ClockSample]] = field(default_factory=dict)
    calls: Sequence[CollectiveCall] = ()
    ended: bool = True

    def to_json(self) -> dict[str, Any]:
        return {
            "host": dict(vars(self.host)),
            "samples": {name: [list(one) for one in some] for name, some in self.samples.items()},
            "calls": [list(call) for call in self.calls],
            "ended": self.ended,
        }

    @classmethod
    def from_json(cls, document: Any) -> RankNotes:
        """The inverse of `to_json`; raises ValueError at anything else."""
        try:
            host = {name: document["host"][name] for name in vars(HostClock()) if name in document["host"]}
            found = cls(
                HostClock(**host),
                {name: [ClockSample(*one) for one in some] for name, some in document["samples"].items()},
                [CollectiveCall(*call) for call in document["calls"]],
                bool(document.get("ended", True)),  # older versions do not say it
            )
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"malformed ({error!r})") from None
        host_kinds = tuple(type(value) for value in vars(HostClock()).values())
        rows: list[tuple[Sequence[Any], tuple[type, ...]]] = [(tuple(vars(found.host).values()), host_kinds)]
        rows += [(one, (int,) * 3) for some in found.samples.values() for one in some]
        rows += [(call, (str, int, str, str, *(int,) * 5)) for call in found.calls]
        for row, kinds in rows:
            for value, kind in zip(row, kinds, strict=True):
                if type(value) is not kind or (isinstance(value, int) and not 0 <= value < _LARGEST):
                    raise ValueError(f"{value!r:.40} is no {kind.__name__} in range")
        if any(one.after_ns < one.before_ns for some in found.samples.values() for one in some):
            raise ValueError("a clock was read after it was read")
        return found
