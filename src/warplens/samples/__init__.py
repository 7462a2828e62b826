"""The kernel of the demo, run on a GPU or in the PTX interpreter."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
import numpy.typing as npt

from warplens import simulate
from warplens.driver.libcuda import Driver, driver
from warplens.errors import WarplensError
from warplens.record.capture import Capture, Device, Dim3, Launch
from warplens.weave.weaver import Woven, weave
from warplens.weave.weaving import ParamBuffer, capacity_of, shift_for

KERNEL = "matmul"
SOURCE = files(__package__).joinpath(f"{KERNEL}.cu")
TILE = 16
_CLOCK = simulate.CycleClock(sms=16, blocks_per_sm=2)
_RECORDS_PER_WARP = 240

Matrix = npt.NDArray[np.float32]


@dataclass(frozen=True)
class SampleRun:
    """The result of running the sample: its capture, its operands and their product."""

    capture: Capture
    operands: tuple[Matrix, Matrix]
    product: Matrix

    @property
    def error(self) -> float:
        """The largest absolute error of the product, compared with double precision."""
        a, b = (operand.astype(np.float64) for operand in self.operands)
        return float(np.abs(self.product - a @ b).max())


def gpu() -> Driver | None:
    """The CUDA driver, or None if there is no GPU."""
    try:
        return driver()
    except WarplensError:
        return None


def on_gpu(device: Driver, n: int = 256) -> SampleRun:
    """Launch the woven sample on the GPU; the driver compiles its PTX."""
    woven, shape = _woven(), _MatmulShape.of(n)
    function = device.function(device.load(woven.text.encode()), KERNEL) or 0
    operands = _operands(n)
    a, b, c = (device.allocate(4 * n * n) for _ in range(3))
    for address, operand in zip((a, b), operands, strict=True):
        device.upload(address, operand.tobytes(), 0)
    size = shape.tracks << shape.shift(woven)
    allocation = device.allocate(size + (1 << shape.shift(woven)))
    buffer = -(-allocation >> shape.shift(woven)) << shape.shift(woven)
    device.clear(buffer, size, 0)
    for profile in (0, buffer | shape.shift(woven)):  # the first launch warms up and records nothing
        arguments = [struct.pack(kind, value) for kind, value in zip("QQQiQ", (a, b, c, n, profile), strict=True)]
        device.launch(function, shape.grid, shape.block, arguments, 0, 0)
    device.synchronize()
    launch = _launch(woven, shape, np.frombuffer(device.download(buffer, size), np.uint8), "gpu")
    product = np.frombuffer(device.download(c, 4 * n * n), np.float32).reshape(n, n)
    for address in (a, b, c, allocation):
        device.free(address)
    return SampleRun(Capture([launch], device.device()), operands, product)


def simulated(n: int = 128) -> SampleRun:
    """Run the woven sample in the PTX interpreter."""
    woven, shape = _woven(), _MatmulShape.of(n)
    operands = _operands(n)
    memory = simulate.GlobalMemory()
    a, b, c = memory.alloc(operands[0]), memory.alloc(operands[1]), memory.alloc(4 * n * n)
    size = shape.tracks << shape.shift(woven)
    buffer = memory.alloc(size, align=1 << shape.shift(woven))
    arguments: Sequence[object] = [a, b, c, n, buffer | shape.shift(woven)]
    simulate.run(woven.text, KERNEL, shape.grid, shape.block, arguments, memory=memory, clock=_CLOCK)
    launch = _launch(woven, shape, memory.read(buffer, np.uint8, size), "simulated")
    device = Device("PTX interpreter (CPU)", sm_count=_CLOCK.sms, clock_mhz=_CLOCK.mhz)
    return SampleRun(Capture([launch], device), operands, memory.read(c, np.float32, n * n).reshape(n, n))


@dataclass(frozen=True)
class _MatmulShape:
    grid: Dim3
    block: Dim3 = (TILE, TILE, 1)

    @classmethod
    def of(cls, n: int) -> _MatmulShape:
        return cls((n // TILE, n // TILE, 1))

    @property
    def tracks(self) -> int:
        return self.grid[0] * self.grid[1] * (TILE * TILE // 32)

    def shift(self, woven: Woven) -> int:
        return shift_for(_RECORDS_PER_WARP, woven.full, woven.slack)


def _woven() -> Woven:
    return weave(files(__package__).joinpath(f"{KERNEL}.ptx").read_text(), buffer=ParamBuffer())


def _operands(n: int) -> tuple[Matrix, Matrix]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((n, n), dtype=np.float32), rng.standard_normal((n, n), dtype=np.float32)


def _launch(woven: Woven, shape: _MatmulShape, raw: npt.NDArray[np.uint8], clock: str) -> Launch:
    return Launch(
        kernel=KERNEL,
        grid=shape.grid,
        block=shape.block,
        regions=woven.regions,
        capacity=capacity_of(shape.shift(woven), woven.full, woven.slack),
        raw=raw,
        clock=clock,
        stride=1 << shape.shift(woven),
        locations=woven.locations,
    )
