"""A small CuTe DSL kernel for benchmarks that launch it. The DSL resolves its annotations in this module."""

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


@cute.kernel
def doubled_in_place_kernel(x: cute.Pointer, n: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    values = cute.make_tensor(x, cute.make_layout(THREADS))
    if thread < n:
        values[thread] = values[thread] * cutlass.Float32(2)


@cute.jit
def doubled_in_place(x: cute.Pointer, n: cutlass.Int32):
    """The same without a tensor, for machines without a GPU."""
    doubled_in_place_kernel(x, n).launch(grid=[8, 1, 1], block=[THREADS, 1, 1])


def compiled_in_place(folder: str) -> Any:
    """A function without arguments that calls it."""
    from cutlass.cute.runtime import make_ptr

    given = make_ptr(cutlass.Float32, 4096, cute.AddressSpace.gmem, assumed_align=16), 128
    compiled = cute.compile(doubled_in_place, *given, options=f"--keep-ptx --dump-dir={folder}")
    return lambda: compiled(*given)
