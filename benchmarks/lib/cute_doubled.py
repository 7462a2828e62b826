"""A small CuTe DSL kernel for benchmarks/launch_cost.py. The DSL resolves its annotations in this module."""

from typing import Any

import cutlass
from cutlass import cute

BLOCKS, THREADS = 128, 128


@cute.kernel
def doubled_kernel(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    y[block * THREADS + thread] = x[block * THREADS + thread] * cutlass.Float32(2)


@cute.jit
def doubled(x: cute.Tensor, y: cute.Tensor):
    doubled_kernel(x, y).launch(grid=[BLOCKS, 1, 1], block=[THREADS, 1, 1])


def compiled_doubled(x: Any, y: Any, folder: str) -> Any:
    """The compiled function, which keeps its PTX in `folder`: the benchmark calls it before its profiles begin, and
    they can only mark a kernel whose PTX they know."""
    return cute.compile(doubled, x, y, options=f"--keep-ptx --dump-dir={folder}")
