"""Readings of the device's globaltimer, each made by a kernel of one thread when its stream gets there."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from warplens.driver.libcuda import Driver
from warplens.record.rank_notes import ClockSample

SLOTS = 1 << 15
_TRIES = 8
"""Readings for one sample, of which the quickest counts."""
_SPIN_NS = 100_000
"""How long the host looks for a reading without a pause, which keeps Python's lock from other threads."""
_PAUSE_S = 0.001
_MOST_PAUSES = 1000


class ClockStamps:
    """The stamps of one context. The device writes them into pinned memory of the host, so that they can be read at
    any time; a slot that was not reached is 0."""

    def __init__(self, lib: Driver) -> None:
        self._lib = lib
        self._kernel = lib.function(lib.load(_STAMP.encode() + b"\0"), "warplens_stamp")
        self._address = lib.pinned(8 * SLOTS)
        pointer = ctypes.cast(self._address, ctypes.POINTER(ctypes.c_uint64))
        self._values: npt.NDArray[np.uint64] = np.ctypeslib.as_array(pointer, (SLOTS,))
        self._values[:] = 0
        self._stream = lib.stream()
        self._free = list(range(SLOTS - 1, 0, -1))
        """Slot 0 is for samples."""

    def stamp(self, stream: int) -> int:
        """Read the globaltimer when `stream` gets there; return the slot, or 0 if there is no room or no kernel."""
        if self._kernel is None or not self._free:
            return 0
        slot = self._free.pop()
        self._values[slot] = 0
        self._launch(slot, stream)
        return slot

    def read(self, slot: int) -> int:
        """The reading of a slot; 0 if it was not made yet."""
        return int(self._values[slot]) if slot else 0

    def give(self, slot: int) -> None:
        """Take back a slot whose reading was made."""
        if slot and self._values[slot]:
            self._free.append(slot)

    def sample(self, now_ns: Callable[[], int]) -> ClockSample | None:
        """The globaltimer between two readings of the host's clock; None if the device does not get there."""
        best: ClockSample | None = None
        for _ in range(_TRIES if self._kernel is not None else 0):
            found = self._sample(now_ns)
            if found is None:
                return best
            if best is None or found.after_ns - found.before_ns < best.after_ns - best.before_ns:
                best = found
        return best

    def _sample(self, now_ns: Callable[[], int]) -> ClockSample | None:
        values, pauses = self._values, 0
        values[0] = 0
        before = now_ns()
        self._launch(0, self._stream)
        while True:
            value, after = int(values[0]), now_ns()
            if value:
                return ClockSample(before, value, after)
            if after - before > _SPIN_NS:
                pauses += 1
                if pauses > _MOST_PAUSES:
                    return None
                time.sleep(_PAUSE_S)

    def _launch(self, slot: int, stream: int) -> None:
        assert self._kernel is not None
        address = (self._address + 8 * slot).to_bytes(8, "little")
        self._lib.launch(self._kernel, (1, 1, 1), (1, 1, 1), [address], 0, stream)

    def release(self) -> None:
        """Give the pinned memory back; what was read stays readable."""
        self._values = self._values.copy()
        self._kernel = None
        self._lib.free_pinned(self._address)
        self._lib.destroy_stream(self._stream)


_STAMP = """\
.version 7.0
.target sm_70
.address_size 64
.visible .entry warplens_stamp(.param .u64 slot) {
	.reg .b64 %rd<3>;
	ld.param.u64 %rd1, [slot];
	mov.u64 %rd2, %globaltimer;
	st.global.u64 [%rd1], %rd2;
	ret;
}
"""
