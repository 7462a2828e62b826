"""Decodes the launches of a profile while its program runs, in the order in which the program made them.

Where the trace is to be small and the launches already take more, only some blocks of each will be kept: which ones is
known when all launches are, so their blocks are ranked instead.
"""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa

from warplens.decode.decoded_part import decode_part, find_decoder
from warplens.decode.part_store import PartStore
from warplens.decode.steady_columns import STEADY, SteadyColumns
from warplens.launch.block_sampler import RankedBlocks, most_bytes, rank_blocks
from warplens.launch.collected_run import CollectedRun
from warplens.record.capture import Launch
from warplens.trace.io import encode_columns

_PART_LAUNCHES = 8
_PART_BYTES = 1 << 20
"""Work is done in parts of at most so many launches and bytes, or of one launch, which take a millisecond or two: when
the program launches again or the profile ends, one part at most is in the way."""


class BackgroundDecoder:
    """`work` is called by threads that have nothing else to do, `stop` when the profile ends. With `rank`, that of this
    process in its job, columns of the trace's file are encoded, too.

    What goes wrong here is forgotten: the end of the profile decodes what is missing, and tells.
    """

    def __init__(self, run: CollectedRun, trace_bytes: int | None = None, rank: int | None = None) -> None:
        self._run, self._left, self._rank = run, float("inf") if trace_bytes is None else trace_bytes, rank
        self._store = PartStore()
        self.ranked: dict[int, RankedBlocks] = {}
        """By the id of their bytes, launches of which some blocks will be kept."""
        self._next = 0
        """The number of the first launch of the run that was not looked at."""
        self._stopped = False
        self._lock = threading.Lock()

    def work(self) -> bool:
        """Decode the next launches that are on the host; return whether there were any."""
        if self._stopped or not self._lock.acquire(blocking=False):
            return False
        try:
            if self._encode():
                return True
            launches = self._landed()
            if launches:
                self._take(launches)
            return bool(launches)
        except Exception:  # an error in this thread would go unseen
            self._stopped, self._store, self.ranked = True, PartStore(), {}
            return False
        finally:
            self._lock.release()

    def _take(self, launches: list[Launch]) -> None:
        self._left -= sum(map(most_bytes, launches))
        if self._left >= 0:
            self._store.add(decode_part(launches, self._run.device, find_decoder(threads=1)))
            return
        # What was decoded before is cut, too.
        launches, self._store = [*self._store.sources, *launches], PartStore()
        for launch, ranked in zip(launches, rank_blocks(launches), strict=True):
            self.ranked[id(launch.raw)] = ranked.work_out()

    def _encode(self) -> bool:
        """Encode a column of a row group that is whole; return whether there was any."""
        store = self._store
        if self._rank is None:
            return False
        for rows in store.whole_groups()[max(len(store.encoded) - 1, 0) :]:
            done = store.encoded.setdefault(rows, [])
            if len(done) < len(STEADY):
                part = store.part()
                devices = np.array([(launch.device or self._run.device).index for launch in part.launches], np.int64)
                steady = SteadyColumns(self._rank, devices, part.windows, part.plan.row_start, part.rows)
                name = STEADY[len(done)]
                done.append(encode_columns(pa.table({name: steady.column(name, *rows)})))
                return True
        return False

    def stop(self) -> PartStore:
        """Do nothing more; return what was decoded."""
        self._stopped = True
        with self._lock:
            return self._store

    def _landed(self) -> list[Launch]:
        """The next launches up to the first that is still on its way."""
        found: list[Launch] = []
        size = 0
        for pending in self._run.announced(self._next):
            launch = getattr(pending, "launch", None)
            # Launches that are copied at the end, and those that failed, are left to the end.
            if launch is None and hasattr(pending, "launch") and getattr(pending, "problem", None) is None:
                break
            if isinstance(launch, Launch):
                size += len(launch.raw)
                if found and (size > _PART_BYTES or len(found) == _PART_LAUNCHES):
                    break
                found.append(launch)
            self._next += 1
        return found
