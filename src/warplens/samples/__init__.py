"""The demo's kernel, and how it runs where there is no GPU."""

from __future__ import annotations

from importlib.resources import files

import numpy as np
import numpy.typing as npt

from warplens.capture import Capture, Device, Launch
from warplens.weave import simulate
from warplens.weave.options import SymbolBuffer, capacity_of, shift_for
from warplens.weave.weaver import weave

KERNEL = "matmul"
TILE = 16
_CLOCK = simulate.Clock(sms=16, blocks_per_sm=2)
_RECORDS_PER_WARP = 512

Matrix = npt.NDArray[np.float32]


def source(suffix: str) -> str:
    """The sample's text: `.cu` or `.ptx`."""
    return files(__package__).joinpath(KERNEL + suffix).read_text()


def operands(n: int) -> tuple[Matrix, Matrix]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((n, n), dtype=np.float32), rng.standard_normal((n, n), dtype=np.float32)


def simulated(n: int = 128) -> tuple[Capture, Matrix]:
    """Weave the sample and run it in the PTX interpreter: its records, and the product it computed."""
    woven = weave(source(".ptx"), buffer=SymbolBuffer())
    grid, block = (n // TILE, n // TILE, 1), (TILE, TILE, 1)
    shift = shift_for(_RECORDS_PER_WARP, woven.full, woven.slack)
    size = grid[0] * grid[1] * (TILE * TILE // 32) << shift
    memory = simulate.Memory()
    a, b, c = memory.alloc(operands(n)[0]), memory.alloc(operands(n)[1]), memory.alloc(4 * n * n)
    buffer = memory.alloc(size, align=1 << shift)
    simulate.run(
        woven.text, KERNEL, grid, block, [a, b, c, n],
        memory=memory, clock=_CLOCK, symbols={"warplens_buffer": np.uint64(buffer | shift)},
    )  # fmt: skip
    launch = Launch(
        kernel=KERNEL,
        grid=grid,
        block=block,
        regions=woven.regions,
        capacity=capacity_of(shift, woven.full, woven.slack),
        raw=memory.read(buffer, np.uint8, size),
        clock="simulated",
        stride=1 << shift,
        locations=woven.locations,
    )
    device = Device("PTX interpreter (CPU)", sm_count=_CLOCK.sms, clock_mhz=_CLOCK.mhz)
    return Capture([launch], device), memory.read(c, np.float32, n * n).reshape(n, n)
