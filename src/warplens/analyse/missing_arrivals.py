"""For a wait that did not end: which warps arrive at its barrier, and which of them have not."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from warplens.analyse.running_warps import LaunchRows
from warplens.record.barrier_words import AFTER, OFFSET_BITS, Operation
from warplens.trace.barrier_rows import COPIES, BarrierWords, Int

_OFFSET = (1 << OFFSET_BITS) - 1
_ARRIVALS = (Operation.ARRIVE, *COPIES, Operation.REMOTE_ARRIVE)
_REMOTE = (Operation.REMOTE_ARRIVE, Operation.MULTICAST)
_MEETINGS = {
    Operation.SYNC: (Operation.SYNC, Operation.NAMED_ARRIVE),
    Operation.CLUSTER_WAIT: (Operation.CLUSTER_ARRIVE,),
}


@dataclass(frozen=True)
class UnfinishedWait:
    """A barrier, and who has not arrived there in the phase that is waited for.

    `kind` is `mbarrier`, `named` or `cluster`; `phase` is the parity of an mbarrier's phase, -1 if unknown. `missing`
    are warps of the same block. `arrivers` counts the warps that arrive there as far as the trace shows, 0 if it shows
    none. `copies` says that copies complete on it, `remote` that warps of other blocks arrive there.
    """

    kind: str
    barrier: int
    phase: int
    missing: tuple[int, ...] = ()
    arrivers: int = 0
    copies: bool = False
    remote: bool = False


class BarrierHistory:
    """The barrier records of a launch, and of other launches of the same kernel, which show who arrives where."""

    def __init__(self, rows: LaunchRows, warps: int, others: Int) -> None:
        """`warps` is their number in a block, `others` are the barrier rows of all launches of the kernel."""
        self._rows, self._warps = rows, warps
        self._block, self._warp = rows.block[rows.barriers], rows.warp[rows.barriers]
        self._cycle, self._words = rows.cycle[rows.barriers], rows.words
        self._known = BarrierWords(np.nan_to_num(rows.value[others]))
        self._known_warp = rows.warp[others]

    @cached_property
    def _arrives(self) -> np.ndarray:
        return self._words.is_any(_ARRIVALS)

    def wait(self, row: int) -> UnfinishedWait:
        """The wait whose barrier record is at a row of the trace."""
        at = int(np.searchsorted(self._rows.barriers, row))
        operation = int(self._words.operation[at])
        if operation in _MEETINGS:
            return self._meeting(at, Operation(operation))
        return self._mbarrier(at)

    def _meeting(self, at: int, operation: Operation) -> UnfinishedWait:
        """A barrier where every warp arrives once per phase: who has arrived less often than the waiting warp?"""
        operations = _MEETINGS[operation]
        number = int(self._words.barrier[at]) if operation == Operation.SYNC else 0
        mine = (self._block == self._block[at]) & self._words.is_any(operations)
        known = self._known.is_any(operations)
        if operation == Operation.SYNC:
            mine &= self._words.barrier == number
            known &= self._known.barrier == number
        threads = int(self._words.extra[at]) if operation == Operation.SYNC else 0
        expected = set(np.unique(self._known_warp[known]).tolist())
        if operation == Operation.CLUSTER_WAIT or threads in (0, 32 * self._warps):
            expected |= set(range(self._warps))
        counts = np.bincount(self._warp[mine], minlength=self._warps + 1)
        reached = counts[self._warp[at]]
        missing = tuple(sorted(warp for warp in expected if warp >= len(counts) or counts[warp] < reached))
        kind = "named" if operation == Operation.SYNC else "cluster"
        return UnfinishedWait(kind, number, -1, missing, len(expected), remote=kind == "cluster")

    def _mbarrier(self, at: int) -> UnfinishedWait:
        offset = int(self._words.barrier[at]) & _OFFSET
        same = (self._known.barrier & _OFFSET) == offset
        arrives = same & self._known.is_any(_ARRIVALS)
        remote = bool((same & self._known.is_any(_REMOTE)).any())
        expected = set(np.unique(self._known_warp[arrives]).tolist())
        here = (self._block == self._block[at]) & ((self._words.barrier & _OFFSET) == offset)
        now = here & self._arrives & (self._cycle > self._phase_begin(at, here))
        arrived = set(np.unique(self._warp[now]).tolist())
        parity = int(self._words.parity[at]) if self._words.operation[at] == Operation.WAIT else -1
        return UnfinishedWait(
            "mbarrier",
            offset,
            parity,
            # Arrivals from other blocks of a cluster do not say which of their warps this block waits for.
            missing=() if remote else tuple(sorted(expected - arrived)),
            arrivers=len(expected),
            copies=bool((same & self._known.is_any(COPIES)).any()),
            remote=remote,
        )

    def _phase_begin(self, at: int, here: np.ndarray) -> int:
        """The clock after which every arrival belongs to the phase that is waited for: that of the arrival which
        completed the phase before."""
        waits = here & self._words.is_any((Operation.WAIT, Operation.WAIT_STATE)) & (self._warp == self._warp[at])
        waits[at] = False
        earlier = np.flatnonzero(waits & (self._cycle <= self._cycle[at]))
        if not len(earlier):
            return -1
        before = int(earlier[-1])
        released = int(self._rows.released[self._rows.barriers[before]])
        if released >= 0:
            return int(self._rows.cycle[released])
        if len(earlier) == 1 and self._words.parity[before] == 1 and self._words.extra[before] != AFTER:
            return -1  # the phase before the first counts as complete
        arrivals = self._cycle[here & self._arrives & (self._cycle <= self._cycle[before])]
        return int(arrivals.max(initial=-1))
