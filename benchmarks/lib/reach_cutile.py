"""cuTile kernels for benchmarks/reach.py: three to run on a GPU, and its own samples to compile."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cuda.tile as ct
from cuda.tile._compile import _find_compiler_bin
from cuda.tile.compilation import (
    ArrayConstraint,
    CallingConvention,
    ConstantConstraint,
    KernelSignature,
    ScalarConstraint,
    mangle_kernel_name,
)

import warplens as wl
from benchmarks.lib.reach_tile import load_example
from benchmarks.lib.recorded_tileiras import GpuArray, is_recorded, record
from warplens.frontends.cutile.frontend import _with_plain_lines, module_of
from warplens.frontends.cutile.shadow_toolkit import TileModule

SIZE, COUNT, ROWS, COLUMNS = 2048, 1 << 22, 4096, 2048


@ct.kernel
def vector_add(a, b, c, TILE: ct.Constant[int]):
    i = ct.bid(0)
    x = ct.load(a, index=(i,), shape=(TILE,))
    y = ct.load(b, index=(i,), shape=(TILE,))
    ct.store(c, index=(i,), tile=x + y)


@ct.kernel
def matmul(A, B, C, tm: ct.Constant[int], tn: ct.Constant[int], tk: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    total = ct.full((tm, tn), 0, dtype=ct.float32)
    for k in range(ct.num_tiles(A, axis=1, shape=(tm, tk))):
        a = ct.load(A, index=(i, k), shape=(tm, tk))
        b = ct.load(B, index=(k, j), shape=(tk, tn))
        total = ct.mma(a, b, total)
    ct.store(C, index=(i, j), tile=total.astype(C.dtype))


@ct.kernel
def softmax(X, Y, TILE: ct.Constant[int]):
    i = ct.bid(0)
    x = ct.load(X, index=(i, 0), shape=(1, TILE))
    e = ct.exp(x - ct.max(x, axis=1, keepdims=True))
    ct.store(Y, index=(i, 0), tile=e / ct.sum(e, axis=1, keepdims=True))


KERNELS = (vector_add, matmul, softmax)


def launch_each(stream: Any, a: Any, b: Any, c: Any, m: Any, n: Any, p: Any, x: Any, y: Any) -> None:
    """Launch each kernel once."""
    ct.launch(stream, (COUNT // 1024,), vector_add, (a, b, c, 1024))
    ct.launch(stream, (SIZE // 128, SIZE // 128), matmul, (m, n, p, 128, 128, 64))
    ct.launch(stream, (ROWS,), softmax, (x, y, COLUMNS))


def recorded() -> dict[str, TileModule]:
    """What cuTile's compiler hands to ptxas for the kernels that `run` launches, without a GPU."""
    flat, square, rows = (GpuArray("<f4", COUNT), GpuArray("<f2", SIZE, SIZE), GpuArray("<f4", ROWS, COLUMNS))
    return record(KERNELS, lambda: launch_each(0, *[flat] * 3, *[square] * 3, *[rows] * 2))


def run(described: Callable[..., Any], recorded: int, times: int) -> dict[str, Any]:
    """Each kernel with automatic marks, and without."""
    import torch

    torch.manual_seed(0)
    stream = torch.cuda.current_stream()
    a, b = (torch.randn(COUNT, device="cuda") for _ in range(2))
    m, n = (torch.randn(SIZE, SIZE, device="cuda").half() for _ in range(2))
    x = torch.randn(ROWS, COLUMNS, device="cuda")

    def results() -> list[Any]:
        c, p, y = torch.empty_like(a), torch.empty_like(m), torch.empty_like(x)
        for _ in range(times):
            launch_each(stream, a, b, c, m, n, p, x, y)
        torch.cuda.synchronize()
        return [one.cpu() for one in (c, p, y)]

    plain = results()
    with wl.profile(auto=True, launches=recorded) as profile:
        marked = results()
    identical = all(torch.equal(one, other) for one, other in zip(plain, marked, strict=True))
    row = described(profile.trace, profile)
    if is_recorded(_find_compiler_bin().path):
        row["notes"] = {"its compiler": ("what tileiras gave to ptxas was recorded elsewhere",), **row["notes"]}
    return {**row, "identical": identical, "regions": sorted(profile.trace.regions), "version": ct.__version__}


def array(dtype: Any, dimensions: int) -> ArrayConstraint:
    """A contiguous array, aligned as those of PyTorch are."""
    inner = (1,) * bool(dimensions)
    return ArrayConstraint(
        dtype, dimensions, index_dtype=ct.int32, alias_groups=(), may_alias_internally=False,
        stride_constant=(*(None,) * (dimensions - 1), *inner), stride_lower_bound_incl=0,
        stride_divisible_by=(*(16,) * (dimensions - 1), *inner), shape_divisible_by=16, base_addr_divisible_by=16,
    )  # fmt: skip


_HALF, _FLOAT = ct.float16, ct.float32
SAMPLES: dict[tuple[str, str], list[Any]] = {
    ("VectorAddition", "vec_add_kernel_1d"): [*[array(_FLOAT, 1)] * 3, 1024],
    ("VectorAddition", "vec_add_kernel_2d"): [*[array(_FLOAT, 2)] * 3, 32, 64],
    ("Transpose", "transpose_kernel"): [*[array(_FLOAT, 2)] * 2, 64, 64],
    ("MatMul", "matmul_kernel"): [*[array(_HALF, 2)] * 3, 128, 256, 64],
    ("MatMul", "persistent_matmul_kernel"): [*[array(_HALF, 2)] * 3, 128, 128, 64],
    ("BatchMatMul", "batch_matmul_kernel"): [*[array(_HALF, 3)] * 3, 128, 128, 64],
    ("LayerNorm", "layer_norm_fwd"): [
        array(_HALF, 2), *[array(_HALF, 1)] * 2, array(_HALF, 2), *[array(_FLOAT, 1)] * 2, ScalarConstraint(_FLOAT),
        1024,
    ],
    ("MoE", "silu_and_mul_kernel"): [*[array(_HALF, 2)] * 3, 1024],
}  # fmt: skip
"""By module and kernel, its parameters."""


def samples(arch: str) -> Iterator[tuple[str, str]]:
    """The PTX of cuTile's samples, from the folder that REACH_CUTILE names."""
    for (name, kernel), parameters in SAMPLES.items():
        given = [ConstantConstraint(one) if isinstance(one, int) else one for one in parameters]
        try:
            module = load_example(Path(os.environ["REACH_CUTILE"]) / f"{name}.py")
            symbol = mangle_kernel_name(kernel, KernelSignature(given, CallingConvention.cutile_python_v1()))
            yield f"{name}.py", _with_plain_lines(module_of(getattr(module, kernel), symbol, arch).ptx)
        except Exception as error:
            print(f"{name} {kernel}: {error!r}"[:500], file=sys.stderr)
