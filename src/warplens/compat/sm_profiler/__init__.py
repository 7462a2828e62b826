"""The SM Profiler library's Python class on warplens records: `from warplens.compat.sm_profiler import SmProfiler`.

The buffer is a torch tensor that kernels with `sm_profiler.h` take as their `uint64_t*`. It holds a launch header and
one track per block and group; the header of a track holds its write position.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from warplens.decode import decode
from warplens.errors import UsageError, WarplensError
from warplens.record.capture import Capture, Device, Launch
from warplens.record.launch_buffer import BUFFER, BUFFER_BYTES, BufferPlan
from warplens.record.layout import HEADER, MAX_SLOTS, track_stride
from warplens.trace.model import Trace

MAX_EVENTS = 32


def region_of(event_no: int) -> int:
    """Return the region id that device code writes for an event; 0 means no region."""
    return event_no + 1


class SmProfiler:
    """A profiler buffer for one kernel launch at a time."""

    def __init__(self, num_blocks: int, num_groups: int, max_events_per_group: int, enabled: bool = True) -> None:
        sizes = {"num_blocks": num_blocks, "num_groups": num_groups, "max_events_per_group": max_events_per_group}
        for name, value in sizes.items():
            if value < 1:
                raise UsageError(f"{name}={value}: must be at least 1")
        if 2 * max_events_per_group > MAX_SLOTS:
            raise UsageError(f"max_events_per_group={max_events_per_group}: must be at most {MAX_SLOTS // 2}")
        if num_groups > 64:
            raise UsageError(f"num_groups={num_groups}: must be at most 64")
        self.num_blocks, self.num_groups, self.enabled = num_blocks, num_groups, enabled
        capacity = 2 * max_events_per_group if enabled else 0
        tracks = num_blocks * num_groups if enabled else 0
        self._plan = BufferPlan(capacity, track_stride(capacity), tracks, num_groups if enabled else 0)
        self._names = {region_of(number): f"event {number}" for number in range(MAX_EVENTS)}
        self._buffer = self._allocate()
        self.init_buffer()

    def register_event(self, event_no: Any, name: str) -> None:
        """Name an event, 0 to 31, given as an int or a `tl.constexpr`."""
        number = int(getattr(event_no, "value", event_no))
        if not 0 <= number < MAX_EVENTS:
            raise UsageError(f"event {number}: must be 0 to {MAX_EVENTS - 1}")
        self._names[region_of(number)] = name

    def init_buffer(self) -> None:
        """Clear the buffer; call it before every launch except the first."""
        import torch

        head = np.frombuffer(self._plan.header(), np.int64)
        self._buffer.zero_()
        self._buffer[: len(head)].copy_(torch.from_numpy(head.copy()))

    def get_buffer(self) -> Any:
        """Return the tensor to pass to the kernel."""
        return self._buffer

    def trace(self) -> Trace:
        """Decode what was recorded since the last init_buffer."""
        raw = self._raw()
        head = raw[:BUFFER_BYTES].view(BUFFER)[0]
        refused = int(head["refused"])
        if refused:
            print(
                f"sm_profiler: {refused} records were rejected: they came from blocks or groups outside "
                f"{self.num_blocks} x {self.num_groups}, or from events above {MAX_EVENTS - 1}",
                file=sys.stderr,
            )
        launch = Launch(
            kernel="kernel",
            grid=(self.num_blocks, 1, 1),
            block=(32 * self.num_groups, 1, 1),
            regions=self._names,
            capacity=self._plan.capacity,
            stride=self._plan.stride,
            raw=raw[BUFFER_BYTES:],
        )
        needed = -(
            -int(launch.raw.reshape(launch.tracks, -1)[:, : HEADER.itemsize].copy().view(HEADER)["written"].max()) // 2
        )
        if 2 * needed > self._plan.capacity:
            print(
                f"sm_profiler: records were lost; use max_events_per_group={needed} to keep all of them",
                file=sys.stderr,
            )
        return decode(Capture([launch], device=self._device()))

    def export(self, filename: str | os.PathLike[str]) -> Path | None:
        """Write the trace in the format of the suffix, as `Trace.export` does; return None if nothing was recorded."""
        trace = self._recorded()
        return trace.export(filename, force=True) if trace is not None else None

    def print_stats(self) -> None:
        """Print statistics per event."""
        trace = self._recorded()
        if trace is not None:
            print(trace.stats())

    def _recorded(self) -> Trace | None:
        """Return the trace, or None with a message if nothing was recorded, so that programs run with profiling off."""
        trace = self.trace() if self.enabled else None
        if trace is not None and len(trace):
            return trace
        reason = "no kernel wrote to the buffer" if self.enabled else "the profiler was created with enabled=False"
        print(f"sm_profiler: nothing was recorded: {reason}", file=sys.stderr)
        return None

    def _allocate(self) -> Any:
        try:
            import torch
        except ImportError:
            raise WarplensError("SmProfiler keeps its buffer in a torch tensor: pip install torch") from None
        device = "cuda" if torch.cuda.is_available() else "cpu"
        return torch.zeros(self._plan.size // 8, dtype=torch.int64, device=device)

    def _raw(self) -> npt.NDArray[np.uint8]:
        return np.ascontiguousarray(self._buffer.cpu().numpy()).view(np.uint8)

    def _device(self) -> Device:
        if self._buffer.device.type != "cuda":
            return Device()
        import torch

        p = torch.cuda.get_device_properties(self._buffer.device)
        return Device(
            name=p.name,
            index=self._buffer.device.index or 0,
            sm_count=p.multi_processor_count,
            capability=f"{p.major}.{p.minor}",
        )
