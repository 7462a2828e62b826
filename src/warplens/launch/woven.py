"""One launch of a woven kernel, from its buffer to the capture."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from warplens.launch.memory import Buffer
from warplens.record.capture import AUTOMATIC, Device, Dim3, Launch
from warplens.record.layout import HEADER, HEADER_BYTES, SLOT_BYTES, track_stride
from warplens.weave.weaver import Woven
from warplens.weave.weaving import Selection, capacity_of


@dataclass(frozen=True, kw_only=True)
class WovenKernel:
    """What a launch must know of the kernel's weaving."""

    name: str
    warps: int
    regions: Mapping[int, str]
    locations: Mapping[int, str]
    slack: int
    full: str
    store: str
    select: Selection
    ctas: int = 1
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

    @staticmethod
    def of(woven: Woven, symbol: str, *, threads: int, **more: Any) -> WovenKernel:
        """The kernel `symbol` of a woven module, launched with `threads` per block unless it fixes their number."""
        known = {
            "warps": -(-woven.threads.get(symbol, threads) // 32),
            "regions": woven.regions,
            "locations": woven.locations,
            "slack": woven.slack,
            "full": woven.full,
            "store": woven.stores[symbol],
        }
        return WovenKernel(**{**known, **more})


class WovenLaunch:
    """One launch whose records are still on the device."""

    def __init__(
        self,
        kernel: WovenKernel,
        grid: Dim3,
        buffer: Buffer,
        shift: int,
        device: Device | None = None,
    ) -> None:
        self.kernel, self.grid, self.shift, self.device = kernel, grid, shift, device
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
                **({AUTOMATIC: True} if kernel.auto else {}),
                **kernel.resources,
            },
            device=self.device,
        )

    def _cost(self, headers: npt.NDArray[np.void], waited: float, start: float) -> dict[str, float]:
        """The calibrated cost of marks, the host's wait and copy, and the cycles spent emptying shared memory."""
        spent = {**self.kernel.cost, "wait_ns": waited * 1e9, "finalize_ns": (time.perf_counter() - start) * 1e9}
        if self.kernel.shared_slots and len(headers):
            spent["flush_cycles"] = float(headers["flush"].mean())
        return spent
