"""The barrier records of a trace: rows of kind `value` whose value is a barrier word, and what released each wait."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from warplens.record.barrier_words import (
    AFTER,
    EXTRA_SHIFT,
    MAX_BARRIER,
    MAX_EXTRA,
    OPERATION_SHIFT,
    PARITY_SHIFT,
    Operation,
)

Int = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

NO_RECORD, UNKNOWN_ARRIVAL, NO_WAIT = -1, -2, -3
"""Values of the column `released_by` besides row numbers: the row is no barrier record; it waited, and the arrival that
released it was not recorded; it is an arrival, or a wait that had nothing to wait for."""

IMMEDIATE_CYCLES = 192
"""A wait for a copy that took no longer than this found the data there: a test of a completed barrier, and the records
around it, took 62 to 127 cycles on an H200."""
WORD_LIMIT = 1 << 53
"""Barrier words take 53 bits."""
COPIES = (Operation.COPY, Operation.MULTICAST)


def is_barrier_word(values: npt.NDArray[np.float64]) -> Mask:
    """Whether each value is a whole number of the bits that barrier words take."""
    return np.asarray((values >= 0) & (values < WORD_LIMIT) & (values == np.floor(values)))


class BarrierWords:
    """The parts of many barrier words."""

    def __init__(self, values: npt.NDArray[np.float64]) -> None:
        word = values.astype(np.int64)
        self.barrier: Int = word & MAX_BARRIER
        self.operation: Int = word >> OPERATION_SHIFT & 15
        self.parity: Int = word >> PARITY_SHIFT & 1
        self.extra: Int = word >> EXTRA_SHIFT & MAX_EXTRA

    def is_any(self, operations: tuple[Operation, ...]) -> Mask:
        return np.isin(self.operation, operations)


def began_before(words: BarrierWords) -> Mask:
    """The waits that began with the region around them, before their record."""
    return np.asarray(words.is_any((Operation.WAIT, Operation.WAIT_STATE)) & (words.extra == AFTER))


def did_wait(begin: Int, end: Int, arrived: Int, is_copy: Mask) -> Mask:
    """Whether each wait had to wait: its arrival came after it began, or its copy ended long after. In cycles."""
    return np.asarray((arrived > begin) | (is_copy & (end - begin > IMMEDIATE_CYCLES)))
