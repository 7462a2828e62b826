"""One region that a rule found: where it begins and ends, and how it nests with others."""

from __future__ import annotations

from dataclasses import dataclass

Location = tuple[str, int]
"""A source file and a line of it."""
OUTER = {"body": 0, "loops": 0, "ranges": 1, "lines": 2}
"""The nesting order, outermost first, of regions that share a gap and have the same size. A range that encloses a whole
loop begins in another gap, before the loop's label."""
_INNERMOST_OUTER = max(OUTER.values())
OPERATION = 4
VALUE_WAIT = 3
"""A wait for a value contains no instruction; it nests between its line and the operation that needs the value."""


@dataclass(slots=True)
class FoundRegion:
    """A region between gaps. It has several begins or ends if control enters or leaves in several places."""

    kind: str
    prefix: str
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    location: Location | None
    number: int
    awaits: tuple[str, ...] = ()
    """Registers whose values must have arrived before the end is recorded."""
    counter: str = ""
    """A register that holds the iteration number."""
    starts: tuple[int, ...] = ()
    """Gaps at which that register is set to zero."""
    size: int = 0
    """The number of units inside, if the region may span several blocks; the larger of two regions is the outer one."""

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
        return VALUE_WAIT if self.ends == self.begins else OPERATION

    @property
    def nesting(self) -> tuple[int, int, int]:
        """Sort key of begins that share a gap: enclosing regions by size, then value waits, then operations."""
        rank = self.rank
        return (rank if rank > _INNERMOST_OUTER else _INNERMOST_OUTER, -self.size, rank)
