"""Multiply two matrices in tiles through shared memory and sum the rows: two kernels written in the CuTe DSL.

Needs a GPU, torch and warplens[cute]. Run: python examples/auto/cute_script.py [size] [rounds]
"""

import hashlib
import operator
import sys

import cutlass
import torch
from cutlass import Float32, cute, utils
from cutlass.cute.runtime import from_dlpack

TILE = 32
WARPS = 4


@cute.kernel
def matmul(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
    x, y, _ = cute.arch.thread_idx()
    column, row, _ = cute.arch.block_idx()
    shared = utils.SmemAllocator()
    layout = cute.make_layout((TILE, TILE), stride=(TILE + 1, 1))
    part_a, part_b = (shared.allocate_tensor(Float32, layout, 16) for _ in range(2))
    total = Float32(0)
    for k in cutlass.range(a.shape[1] // TILE, unroll=1):
        part_a[y, x] = a[row * TILE + y, k * TILE + x]
        part_b[y, x] = b[k * TILE + y, column * TILE + x]
        cute.arch.sync_threads()
        for i in cutlass.range_constexpr(TILE):
            total += part_a[y, i] * part_b[i, x]
        cute.arch.sync_threads()
    c[row * TILE + y, column * TILE + x] = total


@cute.kernel
def row_sums(c: cute.Tensor, sums: cute.Tensor):
    lane, warp, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    row = block * WARPS + warp
    total = Float32(0)
    for k in cutlass.range(c.shape[1] // 32, unroll=1):
        total += c[row, k * 32 + lane]
    total = cute.arch.warp_reduction(total, operator.add)
    if lane == 0:
        sums[row] = total


@cute.jit
def multiply_and_sum(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, sums: cute.Tensor):
    n = c.shape[0]
    matmul(a, b, c).launch(grid=(n // TILE, n // TILE, 1), block=(TILE, TILE, 1))
    row_sums(c, sums).launch(grid=(n // WARPS, 1, 1), block=(32, WARPS, 1))


def main(n: int = 1024, rounds: int = 3) -> None:
    if not torch.cuda.is_available():
        sys.exit("this example needs a GPU")
    torch.manual_seed(1)
    a, b = (torch.rand(n, n, device="cuda") for _ in range(2))
    c, sums = torch.empty_like(a), torch.empty(n, device="cuda")
    arguments = [from_dlpack(tensor) for tensor in (a, b, c, sums)]
    compiled = cute.compile(multiply_and_sum, *arguments)
    for _ in range(rounds):
        compiled(*arguments)
    result = sums.cpu()
    expected = (a.cpu().double() @ b.cpu().double()).sum(dim=1)
    error = float((result - expected).abs().max() / expected.abs().max())
    print(f"n {n}: largest relative error {error:.1e}, sums {hashlib.sha256(result.numpy().tobytes()).hexdigest()}")
    if error > 1e-4:
        sys.exit("the result is wrong")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
