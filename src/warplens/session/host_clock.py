"""The host's clock that ranks note times by: one that is never corrected, so that it drifts evenly."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from warplens.record.rank_notes import ClockSample, HostClock

_CLOCK = getattr(time, "CLOCK_MONOTONIC_RAW", time.CLOCK_MONOTONIC)
_UNSYNCHRONISED = 0x40
_TRIES = 5


def now_ns() -> int:
    """The host's clock: the same for all processes of a host, and different on each host."""
    return time.clock_gettime_ns(_CLOCK)


def sample_wall() -> ClockSample:
    """The Unix time on the host's clock: the quickest of several readings."""
    readings = [ClockSample(now_ns(), time.time_ns(), now_ns()) for _ in range(_TRIES)]
    return min(readings, key=lambda one: one.after_ns - one.before_ns)


def host_clock() -> HostClock:
    """This host, and what vouches for its Unix time."""
    source, error_ns = _vouched()
    return HostClock(host_key(), platform.node(), source, error_ns)


def host_key() -> str:
    """What processes that share a clock have in common: the boot of their kernel, and the time namespace."""
    parts = []
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    with suppress(OSError):
        # The number of the namespace is that of this kernel's boot.
        parts.append(os.readlink("/proc/self/ns/time"))
    return " ".join(parts) or platform.node()


def _vouched() -> tuple[str, int]:
    """Who vouches for the Unix time, and how far it may be off in ns; empty and 0 if it is not synchronised."""
    for source, error_ns in (("chrony", _chrony), ("adjtimex", _kernel)):
        with suppress(OSError, ValueError, IndexError, AttributeError, subprocess.SubprocessError):
            found = error_ns()
            if found is not None:
                return source, found
    return "", 0


def _chrony() -> int | None:
    """As chronyd says: the remaining offset, half the delay to the root of its sources, and their dispersion."""
    command = ["chronyc", "-c", "tracking"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=1, check=True).stdout
    fields = said.strip().split(",")
    if fields[-1] == "Not synchronised":
        return None
    offset, delay, dispersion = float(fields[4]), float(fields[10]), float(fields[11])
    return int((abs(offset) + delay / 2 + dispersion) * 1e9) + 1


class _Timex(ctypes.Structure):
    """The first members of the kernel's `struct timex`."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 256),
    )


def _kernel() -> int | None:
    """As the kernel says, which NTP and PTP daemons tell the largest error; it grows until they do so again."""
    state = _Timex()
    result = ctypes.CDLL(None).adjtimex(ctypes.byref(state))
    if result < 0 or state.status & _UNSYNCHRONISED:
        return None
    return int(state.maxerror) * 1000 or None
