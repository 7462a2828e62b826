"""What a trace of several ranks knows of their clocks: a bound for every pair, and the collectives on its time axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from warplens.trace.schema import Meta


@dataclass(frozen=True)
class RankClock:
    """The clock of one rank: its host, the error of its device's times on the host's clock, and the largest bound on
    its times against those of any other rank. `ended` is as in `RankNotes`."""

    host: int = 0
    error_ns: float = 0.0
    worst_ns: float = 0.0
    ended: bool = True

    def to_json(self) -> dict[str, Any]:
        known = asdict(self)
        return known if not self.ended else {name: known[name] for name in known if name != "ended"}


@dataclass(frozen=True)
class TiedHost:
    """A host, how its clock was tied to that of the first one, and the error of that."""

    name: str = ""
    method: str = ""
    error_ns: float = 0.0


class RankCall(NamedTuple):
    """One call of a collective by one rank, in ns from the first record of the trace. It stayed for
    `stay_ns`, -1 if unknown."""

    rank: int
    group: str
    number: int
    operation: str
    begin_ns: int
    stay_ns: int


@dataclass(frozen=True)
class RankClocks:
    """The clocks of all ranks of a trace, empty for a trace of one rank."""

    ranks: Mapping[int, RankClock] = field(default_factory=dict)
    hosts: Sequence[TiedHost] = ()
    calls: Sequence[RankCall] = ()

    @staticmethod
    def of(meta: Meta) -> RankClocks:
        return RankClocks.from_json(meta.rank_clocks) if meta.rank_clocks else RankClocks()

    def bound_ns(self, one: int, other: int) -> float:
        """How far the times of two ranks may be off against each other; infinity for a rank without a clock."""
        if one == other:
            return 0.0
        if one not in self.ranks or other not in self.ranks:
            return float("inf")
        a, b = self.ranks[one], self.ranks[other]
        between = 0.0 if a.host == b.host else self.hosts[a.host].error_ns + self.hosts[b.host].error_ns
        return a.error_ns + b.error_ns + between

    def bounds(self) -> npt.NDArray[np.float64]:
        """The bound of every pair of ranks, in the order of `ranks`."""
        own = np.array([clock.error_ns for clock in self.ranks.values()])
        host = np.array([clock.host for clock in self.ranks.values()], np.int64)
        between = np.array([tied.error_ns for tied in self.hosts])[host] if len(host) else own
        apart = host[:, None] != host[None, :]
        found: npt.NDArray[np.float64] = (
            own[:, None] + own[None, :] + np.where(apart, between[:, None] + between[None, :], 0.0)
        )
        np.fill_diagonal(found, 0.0)
        return found

    @property
    def worst_ns(self) -> float:
        """The largest bound on a pair of ranks."""
        return max((clock.worst_ns for clock in self.ranks.values()), default=0.0)

    def with_worst(self) -> RankClocks:
        """The same with the largest bound of each rank."""
        worst = self.bounds().max(axis=1, initial=0.0).tolist()
        ranks = {rank: replace(self.ranks[rank], worst_ns=most) for rank, most in zip(self.ranks, worst, strict=True)}
        return replace(self, ranks=ranks)

    def to_json(self) -> dict[str, Any]:
        return {
            "ranks": {str(rank): clock.to_json() for rank, clock in self.ranks.items()},
            "hosts": [asdict(host) for host in self.hosts],
            "calls": [list(call) for call in self.calls],
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> RankClocks:
        """The inverse of `to_json`; raises ValueError at anything else."""
        try:
            found = cls(
                {int(rank): RankClock(**clock) for rank, clock in document["ranks"].items()},
                [TiedHost(**host) for host in document["hosts"]],
                [RankCall(*call) for call in document["calls"]],
            )
            clocks = found.ranks.values()
            ok = all(isinstance(one.ended, bool) for one in clocks)
            ok = ok and all(type(one.host) is int and 0 <= one.host < len(found.hosts) for one in clocks)
            ok = ok and all(one.error_ns >= 0 and one.worst_ns >= 0 for one in clocks)
            ok = ok and all(host.error_ns >= 0 and isinstance(host.name + host.method, str) for host in found.hosts)
            kinds = (int, str, int, str, int, int)
            ok = ok and all(
                type(value) is kind for call in found.calls for value, kind in zip(call, kinds, strict=True)
            )
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"malformed ({error!r})") from None
        if not ok:
            raise ValueError("malformed")
        return found
