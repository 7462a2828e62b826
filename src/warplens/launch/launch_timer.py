"""Time single launches on the device, and measure the SM clock right before each of them.

A meter kernel runs before the launch: it keeps the stream busy while the host makes the launch, so that the events
around the launch see the device alone, and it counts the cycles of the SM clock against the globaltimer, so that the
time can be told in cycles although the clock changes from launch to launch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from warplens.driver import libcuda
from warplens.driver.libcuda import Driver
from warplens.errors import WarplensError

METER_NS = 300_000
"""How long the meter runs: longer than the host takes for a launch."""
_SLOTS = 4096
_SLOT_BYTES = 16


@dataclass(frozen=True)
class LaunchTime:
    """How long a launch took, and the SM clock before it; 0 where the clock is not known."""

    ns: float
    cycles_per_ns: float


class TimedLaunch:
    """One launch: made right before it; call `launched` right after it, and `read` when the device is done with it."""

    def __init__(self, lib: Driver, stream: int, slot: int) -> None:
        self._lib, self._stream, self._slot = lib, stream, slot
        self._first, self._second = lib.event(stream), 0
        self.late = False
        """Whether the device was idle before the host had made the launch: the time holds a part of the host's."""

    def launched(self) -> None:
        self.late = self._lib.reached(self._first)
        self._second = self._lib.event(self._stream)

    def read(self, slots: bytes) -> LaunchTime | None:
        """The time of the launch; None if it was never made."""
        if not self._second:
            return None
        self._lib.wait(self._second)
        ns = self._lib.elapsed_ns(self._first, self._second)
        at = self._slot * _SLOT_BYTES
        cycles, spent = np.frombuffer(slots[at : at + _SLOT_BYTES].ljust(_SLOT_BYTES, b"\0"), np.uint64)
        return LaunchTime(ns, float(cycles) / float(spent) if spent else 0.0)


class LaunchTimer:
    """The timed launches of one context."""

    def __init__(self) -> None:
        self._lib = libcuda.driver()
        self._context = self._lib.context()
        self._meter = self._lib.function(self._lib.load(_METER.encode() + b"\0"), "warplens_meter")
        self._slots = self._lib.allocate(_SLOTS * _SLOT_BYTES) if self._meter is not None else 0
        self._launches: list[TimedLaunch] = []

    def begin(self, stream: int) -> TimedLaunch | None:
        """Call right before a launch; None where it is not timed: in another context, or with too many before it."""
        if self._lib.context() != self._context or len(self._launches) >= _SLOTS:
            return None
        slot = len(self._launches)
        if self._meter is not None:
            address = (self._slots + slot * _SLOT_BYTES).to_bytes(8, "little")
            self._lib.launch(self._meter, (1, 1, 1), (1, 1, 1), [address], 0, stream)
        self._launches.append(TimedLaunch(self._lib, stream, slot))
        return self._launches[-1]

    def read(self) -> dict[int, LaunchTime]:
        """Wait for the launches and return their times, by the identity of each."""
        with self._lib.inside(self._context):
            done = {id(one) for one in self._launches if self._waited(one)}
            slots = self._lib.download(self._slots, _SLOTS * _SLOT_BYTES) if self._slots else b""
            times = {id(one): one.read(slots) for one in self._launches if id(one) in done}
            if self._slots:
                self._lib.free(self._slots)
        self._slots = 0
        return {key: found for key, found in times.items() if found is not None}

    def _waited(self, one: TimedLaunch) -> bool:
        """Wait for a launch; one that failed is the program's to find."""
        try:
            self._lib.wait(one._second or one._first)
        except WarplensError:
            return False
        return bool(one._second)


_METER = f"""\
.version 7.0
.target sm_70
.address_size 64
.visible .entry warplens_meter(.param .u64 slot) {{
	.reg .pred %p<2>; .reg .b64 %rd<9>;
	ld.param.u64 %rd1, [slot];
	mov.u64 %rd2, %globaltimer;
	mov.u64 %rd3, %clock64;
$L_wait:
	mov.u64 %rd4, %globaltimer;
	mov.u64 %rd5, %clock64;
	sub.u64 %rd6, %rd4, %rd2;
	setp.lt.u64 %p1, %rd6, {METER_NS};
	@%p1 bra $L_wait;
	sub.u64 %rd7, %rd5, %rd3;
	st.global.u64 [%rd1], %rd7;
	st.global.u64 [%rd1+8], %rd6;
	ret;
}}
"""
