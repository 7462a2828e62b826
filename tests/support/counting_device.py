"""A device that counts what it is asked for, and a session's memory on it."""

from __future__ import annotations

from typing import Any

from tests.support.contexts import Contexts
from warplens import simulate
from warplens.errors import WarplensError
from warplens.launch.buffers import Buffers
from warplens.launch.collected_run import CollectedRun
from warplens.launch.ready import MOST_READY
from warplens.launch.variant import Variant, Variants
from warplens.launch.woven import WovenKernel, WovenLaunch
from warplens.options import Options
from warplens.record.capture import Device
from warplens.weave.weaving import Selection

KERNEL = WovenKernel(
    name="gemm", warps=2, regions={1: "load"}, locations={}, slack=1, full="stop", store="mixed", select=Selection()
)  # fmt: skip
GRID = (4, 1, 1)
STREAM = 9


class Counting(Contexts):
    """A device that counts what it is asked for."""

    def __init__(self) -> None:
        self.space, self.size = simulate.GlobalMemory(64 << 20), 1 << 24
        self.copies: list[int] = []
        self.asked: list[str] = []
        self.refuses = False

    def memory(self) -> tuple[int, int]:
        return 4 * self.size, 4 * self.size

    def device(self) -> Device:
        return Device("counting", sm_count=1)

    def copy_rows(self, host: int, out_pitch: int, address: int, pitch: int, width: int, rows: int, s: int) -> None:
        self.copies.append(rows)
        super().copy_rows(host, out_pitch, address, pitch, width, rows, s)

    def allocate(self, size: int) -> int:
        self.asked.append("allocate")
        return super().allocate(size)

    def mark(self, event: int, stream: int) -> None:
        if self.refuses:
            raise WarplensError("cuEventRecord failed: an illegal memory access was encountered (CUDA error 700)")
        super().mark(event, stream)


class Scene:
    """A session's memory, and one variant that is recorded."""

    def __init__(self, **options: Any) -> None:
        self.options = Options(records_per_warp=16, **options)
        self.run, self.variants = CollectedRun(), Variants(self.options, 0)
        self.buffers = Buffers(self.run, self.options, self.variants)
        self.variant = Variant("gemm", dict)

    def lend(self, ahead: int = MOST_READY) -> WovenLaunch:
        self.variant.launches += 1
        self.variant.recorded += 1
        launch = self.buffers.lend(KERNEL, self.variant, GRID, STREAM, ahead=ahead)
        assert launch is not None
        return launch

    def take(self, kernel: WovenKernel = KERNEL, grid: tuple[int, int, int] = GRID) -> WovenLaunch | None:
        return None if self.variant.ready is None else self.variant.ready.take(kernel, grid, STREAM)
