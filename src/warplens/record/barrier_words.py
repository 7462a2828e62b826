"""What a warp did with a barrier, as the value of one record: the operation, the barrier and its phase.

The word takes 53 bits, so that it is exact as a double, which is how a trace stores values:

    bits 0..31    the barrier: a shared address, the number of a named barrier, the cluster, or the key of an event
    bits 32..35   the operation
    bit  36       the parity of the phase, for waits that name it
    bits 37..52   `extra`: the threads of a named barrier, or the place of the block in its cluster
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

OPERATION_SHIFT, PARITY_SHIFT, EXTRA_SHIFT = 32, 36, 37
MAX_BARRIER = (1 << OPERATION_SHIFT) - 1
MAX_EXTRA = (1 << 16) - 1
OFFSET_BITS = 24
"""The bits of a shared address inside one block; the bits above hold the rank of a block in its cluster."""

AFTER = 1
"""The `extra` of a wait whose record was made behind it: it begins with the region around the record."""


class Operation(IntEnum):
    """What the warp did. The words of marks are the names in lower case (weave/mark_comments.py)."""

    NONE = 0
    """Nothing: an instruction whose predicate was false, or a test that failed."""
    ARRIVE = 1
    COPY = 2
    """An asynchronous copy that completes on the barrier, or an arrival that expects its bytes."""
    WAIT = 3
    """A wait for the phase of a given parity. The wait begins at the record, unless `extra` is AFTER."""
    WAIT_STATE = 4
    """A wait for the phase of the warp's own last arrival."""
    SYNC = 5
    """A named barrier: arrive and wait."""
    NAMED_ARRIVE = 6
    CLUSTER_ARRIVE = 7
    CLUSTER_WAIT = 8
    EVENT_START = 9
    """A region begins here that any warp of the block may end."""
    EVENT_END = 10
    REMOTE_ARRIVE = 11
    """An arrival at a barrier of another block of the cluster: the target's rank is above OFFSET_BITS, and `extra` is
    the own rank | (blocks of the cluster along x - 1) << 4 | (along y - 1) << 8."""
    MULTICAST = 12
    """A copy to several blocks of the cluster: `extra` is their mask; above OFFSET_BITS are the own rank and, 4 bits
    higher, the blocks of the cluster along x - 1."""


@dataclass(frozen=True)
class BarrierWord:
    """The parts of one word."""

    operation: Operation
    barrier: int
    parity: int = 0
    extra: int = 0

    def pack(self) -> int:
        """The word as a record stores it. Raises ValueError if a part does not fit."""
        if not 0 <= self.barrier <= MAX_BARRIER:
            raise ValueError(f"barrier {self.barrier} is outside 0..{MAX_BARRIER}")
        if self.parity not in (0, 1):
            raise ValueError(f"parity {self.parity} is neither 0 nor 1")
        if not 0 <= self.extra <= MAX_EXTRA:
            raise ValueError(f"extra {self.extra} is outside 0..{MAX_EXTRA}")
        return (
            self.barrier | self.operation << OPERATION_SHIFT | self.parity << PARITY_SHIFT | self.extra << EXTRA_SHIFT
        )

    @classmethod
    def unpack(cls, word: int) -> BarrierWord:
        """The inverse of `pack`. An operation that this version does not know reads as NONE."""
        code = word >> OPERATION_SHIFT & 15
        operation = Operation(code) if code < len(Operation) else Operation.NONE
        return cls(operation, word & MAX_BARRIER, word >> PARITY_SHIFT & 1, word >> EXTRA_SHIFT & MAX_EXTRA)
