"""One region that a rule found: where it begins and ends, and what stands between its end mark and the end."""

from __future__ import annotations

from dataclasses import dataclass

Location = tuple[str, int]
"""A source file and a line of it."""
OUTER = {"loops": 0, "ranges": 1, "lines": 2}
"""How regions nest that share a gap and are of one size. A range that holds a whole loop begins before the loop's
label, in another gap."""
OPERATION = 4
MOMENT = 3
"""A wait for a value has no instruction of its own: it goes between its line and the operation that needs the value."""


@dataclass(frozen=True)
class FoundRegion:
    """`begins` and `ends` are gaps; there are several where control comes or leaves in several places."""

    kind: str
    words: str
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    location: Location | None
    number: int
    awaits: tuple[str, ...] = ()
    """Registers whose values must have arrived before the end is stamped."""
    counter: str = ""
    """A register that holds the iteration number."""
    starts: tuple[int, ...] = ()
    """Gaps at which that register is set to zero."""
    size: int = 0
    """Units inside, where there may be several blocks of them: of two that share a gap the larger one is outside."""

    @property
    def begin(self) -> int:
        return self.begins[0]

    @property
    def gaps(self) -> set[int]:
        return {*self.begins, *self.ends}

    @property
    def rank(self) -> int:
        if self.kind in OUTER:
            return OUTER[self.kind]
        return MOMENT if self.ends == self.begins else OPERATION

    @property
    def opening(self) -> tuple[int, ...]:
        """Begins that share a gap, in this order: what holds others, the largest first, then moments and operations."""
        return (max(self.rank, max(OUTER.values())), -self.size, self.rank)

    @property
    def closing(self) -> tuple[int, ...]:
        """Ends that share a gap, in this order: the innermost first."""
        return (-max(self.rank, max(OUTER.values())), self.size, -self.rank, -self.begin)
