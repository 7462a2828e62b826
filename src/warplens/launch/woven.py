"""One launch of a woven kernel, from its buffer to the capture."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from warplens.launch import cost
from warplens.launch.memory import Buffer
from warplens.record.capture import Device, Dim3, Launch
from warplens.record.cost_keys import SLOWDOWN
from warplens.record.layout import HEADER, HEADER_BYTES, SLOT_BYTES, track_stride
from warplens.weave.weaving import Selection, capacity_of


@dataclass(frozen=True)
class WovenKernel:
    """What a launch must know of the kernel's weaving."""

    name: str
    warps: int
    ctas: int
    regions: dict[int, str]
    locations: dict[int, str]
    slack: int
    full: str
    store: str
    select: Selection
    shared_slots: int = 0
    shared_bytes: int = 0
    """Of shared memory, what records wait in."""
    resources: Mapping[str, int] = field(default_factory=dict)
    """What ptxas says the kernel takes, and its shared memory."""
    cost: Mapping[str, float] = field(default_factory=dict)
    """What a calibration measured of its marks."""
    auto: bool = False
    block: Dim3 | None = None
    """The shape of a block where it is not one row of warps."""


class WovenLaunch:
    """One launch whose records are still on the device."""

    def __init__(
        self,
        kernel: WovenKernel,
        grid: Dim3,
        buffer: Buffer,
        shift: int,
        tell: Callable[[str], None] | None = None,
        device: Device | None = None,
    ) -> None:
        self.kernel, self.grid, self.shift, self.tell, self.device = kernel, grid, shift, tell, device
        blocks = grid[0] * grid[1] * grid[2]
        self.tracks = kernel.select.blocks_of(blocks) * kernel.select.tracks_per_block(kernel.warps)
        self.buffer: Buffer | None = buffer
        self._launch: Launch | None = None

    def collect(self) -> Launch:
        """Wait for the device, copy what was written, and let the buffer go."""
        if self._launch is None:
            assert self.buffer is not None
            start = time.perf_counter()
            self.buffer.synchronize()
            waited = time.perf_counter()
            self._launch = self._read(self.buffer, waited - start, waited)
            self.buffer = None
        return self._launch

    def _read(self, buffer: Buffer, waited: float, start: float) -> Launch:
        kernel, stride = self.kernel, 1 << self.shift
        capacity = capacity_of(self.shift, kernel.full, kernel.slack)
        headers = buffer.rows(self.tracks, stride, 0, HEADER_BYTES)
        fields = np.ascontiguousarray(headers).view(HEADER).reshape(-1) if self.tracks else np.empty(0, HEADER)
        exited = bool((fields["state"] != 0).all()) if self.tracks else True
        written = int(fields["written"].max(initial=0)) if exited else capacity
        kept = min(written, capacity)
        first = stride // 2 if kernel.full == "ring" else HEADER_BYTES
        records = buffer.rows(self.tracks, stride, first, kept * SLOT_BYTES)
        raw = np.zeros((self.tracks, track_stride(kept)), np.uint8)
        raw[:, :HEADER_BYTES] = headers
        raw[:, HEADER_BYTES : HEADER_BYTES + kept * SLOT_BYTES] = records
        return Launch(
            kernel.name,
            self.grid,
            kernel.block or (32 * kernel.warps, 1, 1),
            kernel.regions,
            kept,
            raw.reshape(-1),
            full=kernel.full,
            locations=kernel.locations,
            cost=self._cost(fields, waited, start),
            extra={
                "store": kernel.store,
                "track_bytes": stride,
                "capacity": capacity,
                "most_written": written,
                "shared_bytes": kernel.shared_bytes,
                **kernel.resources,
            },
            device=self.device,
        )

    def _cost(self, headers: npt.NDArray[np.void], waited: float, start: float) -> dict[str, float]:
        """Waiting for the launch, copying its buffer out, what a warp spent on emptying shared memory, and what
        automatic marks, which nobody weighed, slowed the kernel by."""
        spent = {**self.kernel.cost, "wait_ns": waited * 1e9, "finalize_ns": (time.perf_counter() - start) * 1e9}
        if self.kernel.shared_slots and len(headers):
            spent["flush_cycles"] = float(headers["flush"].mean())
        if self.kernel.auto:
            spent |= cost.estimate(headers)
            if self.tell is not None and spent.get(SLOWDOWN, 1.0) > cost.WORTH_SAYING:
                self.tell(cost.describe(spent, headers))
        return spent
