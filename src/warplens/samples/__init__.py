"""The kernel of the demo, or another version of it, run on a GPU or in the PTX interpreter."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import numpy.typing as npt

from warplens import simulate
from warplens.driver.libcuda import Driver, driver
from warplens.errors import UsageError, WarplensError
from warplens.frontends.cuda.nvrtc import compile_ptx
from warplens.ptx.isa_version import lowered_for
from warplens.ptx.tree import parse
from warplens.record.capture import Capture, Device, Dim3, Launch
from warplens.weave.weaver import Woven, weave
from warplens.weave.weaving import ParamBuffer, capacity_of, shift_for

KERNEL = "matmul"
PARAMETERS = ("a", "b", "c", "n", "profile")
SOURCE = files(__package__).joinpath(f"{KERNEL}.cu")
_ARCH = "sm_80"
TILE = 16
_CLOCK = simulate.CycleClock(sms=16, blocks_per_sm=2)
_BETWEEN_LAUNCHES_NS = 3_000
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


def ptx_of(source: Path) -> str:
    """The PTX of another version of the sample: CUDA source, which NVRTC compiles, or PTX."""
    try:
        text = source.read_text()
    except OSError as error:
        raise UsageError(f"{source}: cannot be read ({error.strerror}); check the path") from None
    except UnicodeDecodeError:
        raise UsageError(f"{source}: is no text; give CUDA source, or PTX in a .ptx file") from None
    ptx = text if source.suffix == ".ptx" else compile_ptx(text, source.name, _ARCH, ["-lineinfo"])
    found = {entry.name: len(entry.params) for entry in parse(ptx).entries}
    if found.get(KERNEL) != len(PARAMETERS):
        raise UsageError(
            f'{source}: must have the kernel `extern "C" {KERNEL}({", ".join(PARAMETERS)})`; start from a copy of '
            f"{SOURCE.name}, which `warplens demo` puts next to its trace"
        )
    return ptx


def on_gpu(device: Driver, n: int = 256, *, ptx: str = "", launches: int = 1) -> SampleRun:
    """Launch the woven sample, or `ptx` in its place, on the GPU; the driver compiles its PTX."""
    woven, shape = _woven(ptx), _MatmulShape.of(n)
    image = lowered_for(woven.text, device.device().driver)
    function = device.function(device.load(image.encode()), KERNEL) or 0
    operands = _operands(n)
    a, b, c = (device.allocate(4 * n * n) for _ in range(3))
    for address, operand in zip((a, b), operands, strict=True):
        device.upload(address, operand.tobytes(), 0)
    size = shape.tracks << shape.shift(woven)
    allocation = device.allocate(size + (1 << shape.shift(woven)))
    buffer = -(-allocation >> shape.shift(woven)) << shape.shift(woven)
    recorded: list[Launch] = []
    for profile in (0, *[buffer | shape.shift(woven)] * launches):  # the first launch warms up and records nothing
        device.clear(buffer, size, 0)
        arguments = [struct.pack(kind, value) for kind, value in zip("QQQiQ", (a, b, c, n, profile), strict=True)]
        device.launch(function, shape.grid, shape.block, arguments, 0, 0)
        device.synchronize()
        if profile:
            recorded.append(_launch(woven, shape, np.frombuffer(device.download(buffer, size), np.uint8), "gpu"))
    product = np.frombuffer(device.download(c, 4 * n * n), np.float32).reshape(n, n)
    for address in (a, b, c, allocation):
        device.free(address)
    return SampleRun(Capture(recorded, device.device()), operands, product)


def simulated(n: int = 128, *, ptx: str = "", launches: int = 1) -> SampleRun:
    """Run the woven sample, or `ptx` in its place, in the PTX interpreter."""
    woven, shape = _woven(ptx), _MatmulShape.of(n)
    operands = _operands(n)
    memory = simulate.GlobalMemory()
    a, b, c = memory.alloc(operands[0]), memory.alloc(operands[1]), memory.alloc(4 * n * n)
    size = shape.tracks << shape.shift(woven)
    recorded: list[Launch] = []
    clock = _CLOCK
    for number in range(launches):
        buffer = memory.alloc(size, align=1 << shape.shift(woven))
        arguments: Sequence[object] = [a, b, c, n, buffer | shape.shift(woven)]
        result = simulate.run(woven.text, KERNEL, shape.grid, shape.block, arguments, memory=memory, clock=clock)
        recorded.append(_launch(woven, shape, memory.read(buffer, np.uint8, size), "simulated"))
        # Loads of another launch take another time, as on a GPU.
        clock = replace(clock, seed=number + 1, start_ns=result.end_ns + _BETWEEN_LAUNCHES_NS)
    device = Device("PTX interpreter (CPU)", sm_count=_CLOCK.sms, clock_mhz=_CLOCK.mhz)
    return SampleRun(Capture(recorded, device), operands, memory.read(c, np.float32, n * n).reshape(n, n))


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


def _woven(ptx: str) -> Woven:
    return weave(ptx or files(__package__).joinpath(f"{KERNEL}.ptx").read_text(), buffer=ParamBuffer())


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
