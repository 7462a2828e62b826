"""Read the SM clock and the reasons for throttling from NVML, the driver's management library."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char_p, c_int, c_uint, c_ulonglong, c_void_p

from warplens.bench.throttle import Reading

_SM = 1
_REASONS = {
    0x04: "the power limit",
    0x08: "a hardware slow-down",
    0x20: "the temperature limit",
    0x40: "a hardware temperature limit",
    0x80: "an external power brake",
}
"""Bits of nvmlDeviceGetCurrentClocksThrottleReasons; the others (idle, set clocks, display) are not throttling."""


class Nvml:
    """One device. Readings are None if the library or the permission is missing."""

    def __init__(self, device: int = 0) -> None:
        self._library: ctypes.CDLL | None = None
        self._handle = c_void_p()
        try:
            library, driver = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.CDLL("libcuda.so.1")
        except OSError:
            return
        bus = ctypes.create_string_buffer(32)
        # Look the device up by its PCI bus id: NVML numbers all devices, CUDA only the visible ones.
        if (
            library.nvmlInit_v2() == 0
            and driver.cuDeviceGetPCIBusId(bus, c_int(len(bus)), c_int(device)) == 0
            and library.nvmlDeviceGetHandleByPciBusId_v2(c_char_p(bus.value), byref(self._handle)) == 0
        ):
            self._library = library

    def reading(self) -> Reading | None:
        if self._library is None:
            return None
        mhz, bits = c_uint(), c_ulonglong()
        if self._library.nvmlDeviceGetClockInfo(self._handle, c_int(_SM), byref(mhz)):
            return None
        if self._library.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle, byref(bits)):
            bits.value = 0
        return Reading(float(mhz.value), tuple(name for bit, name in _REASONS.items() if bits.value & bit))

    def driver_version(self) -> str:
        text = ctypes.create_string_buffer(96)
        if self._library is None or self._library.nvmlSystemGetDriverVersion(text, c_uint(len(text))):
            return ""
        return text.value.decode(errors="replace")
