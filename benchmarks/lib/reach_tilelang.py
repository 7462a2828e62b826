"""TileLang kernels for benchmarks/reach.py: three with regions to run on a GPU, and its own examples to compile."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_FOLDER = tempfile.mkdtemp(prefix="reach-tilelang-cache-")
os.environ.update(TILELANG_CACHE_DIR=_FOLDER, TILELANG_PRINT_ON_COMPILATION="0")

import tilelang  # noqa: E402 - it reads these settings when it is imported
import tilelang.language as T  # noqa: E402

import warplens as wl  # noqa: E402
import warplens.tilelang as wlt  # noqa: E402
from benchmarks.lib.reach_tile import load_example  # noqa: E402

SIZE, ROWS, COLUMNS, LENGTH, DEPTH = 2048, 8192, 4096, 4096, 128


def gemm_function() -> Any:
    @T.prim_func
    def gemm(
        A: T.Tensor((SIZE, SIZE), "float16"), B: T.Tensor((SIZE, SIZE), "float16"), C: T.Tensor((SIZE, SIZE), "float16")
    ):
        with T.Kernel(SIZE // 128, SIZE // 128, threads=128) as (bx, by):
            A_shared = T.alloc_shared((128, 32), "float16")
            B_shared = T.alloc_shared((32, 128), "float16")
            C_local = T.alloc_fragment((128, 128), "float32")
            T.clear(C_local)
            for k in T.Pipelined(SIZE // 32, num_stages=3):
                with wlt.region("load"):
                    T.copy(A[by * 128, k * 32], A_shared)
                    T.copy(B[k * 32, bx * 128], B_shared)
                with wlt.region("dot"):
                    T.gemm(A_shared, B_shared, C_local)
            with wlt.region("store"):
                T.copy(C_local, C[by * 128, bx * 128])

    return gemm


def norm_function() -> Any:
    @T.prim_func
    def rms_norm(A: T.Tensor((ROWS, COLUMNS), "float32"), B: T.Tensor((ROWS, COLUMNS), "float32")):
        with T.Kernel(ROWS, threads=128) as bx:
            row = T.alloc_fragment((1, COLUMNS), "float32")
            squares = T.alloc_fragment((1, COLUMNS), "float32")
            total = T.alloc_fragment((1,), "float32")
            with wlt.region("load"):
                T.copy(A[bx, 0], row)
            with wlt.region("sum"):
                for i, j in T.Parallel(1, COLUMNS):
                    squares[i, j] = row[i, j] * row[i, j]
                T.reduce_sum(squares, total, dim=1)
            with wlt.region("store"):
                for i, j in T.Parallel(1, COLUMNS):
                    row[i, j] *= T.rsqrt(total[i] / COLUMNS + 1e-12)
                T.copy(row, B[bx, 0])

    return rms_norm


def attention_function() -> Any:
    @T.prim_func
    def attention(
        Q: T.Tensor((LENGTH, DEPTH), "float16"),
        K: T.Tensor((LENGTH, DEPTH), "float16"),
        V: T.Tensor((LENGTH, DEPTH), "float16"),
        Output: T.Tensor((LENGTH, DEPTH), "float16"),
    ):
        with T.Kernel(LENGTH // 64, threads=128) as bx:
            Q_shared = T.alloc_shared((64, DEPTH), "float16")
            K_shared = T.alloc_shared((64, DEPTH), "float16")
            V_shared = T.alloc_shared((64, DEPTH), "float16")
            scores = T.alloc_fragment((64, 64), "float32")
            weights = T.alloc_fragment((64, 64), "float16")
            result = T.alloc_fragment((64, DEPTH), "float32")
            sums = T.alloc_fragment((64,), "float32")
            total = T.alloc_fragment((64,), "float32")
            T.copy(Q[bx * 64, 0], Q_shared)
            T.clear(result)
            T.clear(total)
            for k in T.Pipelined(LENGTH // 64, num_stages=2):
                with wlt.region("load"):
                    T.copy(K[k * 64, 0], K_shared)
                    T.copy(V[k * 64, 0], V_shared)
                with wlt.region("qk"):
                    T.clear(scores)
                    T.gemm(Q_shared, K_shared, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                with wlt.region("softmax"):
                    for i, j in T.Parallel(64, 64):
                        scores[i, j] = T.exp2(scores[i, j] * 0.01)
                    T.reduce_sum(scores, sums, dim=1)
                    for i in T.Parallel(64):
                        total[i] += sums[i]
                    T.copy(scores, weights)
                with wlt.region("pv"):
                    T.gemm(weights, V_shared, result, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(64, DEPTH):
                result[i, j] /= total[i]
            T.copy(result, Output[bx * 64, 0])

    return attention


def run(described: Callable[..., Any], recorded: int, times: int) -> dict[str, Any]:
    """Each kernel with automatic marks and its regions, and again with its regions alone."""
    import torch

    torch.manual_seed(0)

    def random(*shape: int, dtype: Any = torch.float16) -> Any:
        return torch.randn(*shape, device="cuda", dtype=torch.float32).to(dtype)

    work = [
        (gemm_function, [random(SIZE, SIZE), random(SIZE, SIZE)]),
        (norm_function, [random(ROWS, COLUMNS, dtype=torch.float32)]),
        (attention_function, [random(LENGTH, DEPTH) for _ in range(3)]),
    ]
    kernels = [(tilelang.compile(make()), inputs) for make, inputs in work]

    def results() -> list[Any]:
        made = []
        for kernel, inputs in kernels:
            made.append(torch.zeros_like(inputs[0]))
            for _ in range(times):
                kernel(*inputs, made[-1])
        torch.cuda.synchronize()
        return [one.cpu() for one in made]

    plain, rows = results(), {}
    identical = True
    for name, options in (("", {"auto": True}), (", regions alone", {})):
        with wl.profile(launches=recorded, **options) as profile:
            marked = results()
        identical &= all(torch.equal(a, b) for a, b in zip(plain, marked, strict=True))
        rows[name] = described(profile.trace, profile)
        rows[name]["regions"] = sorted(profile.trace.regions)
    first = rows[""]
    kernels_of = {f"{kernel}{name}": found for name, row in rows.items() for kernel, found in row["kernels"].items()}
    notes = {f"{kernel}{name}": told for name, row in rows.items() for kernel, told in row["notes"].items()}
    regions = {f"regions{name}": row["regions"] for name, row in rows.items()}
    complete = all(row["complete"] for row in rows.values())
    return {
        **first, **regions, "kernels": kernels_of, "notes": notes, "complete": complete, "identical": identical,
        "version": tilelang.__version__,
    }  # fmt: skip


EXAMPLES: dict[str, Callable[[Any], Any]] = {
    "gemm/example_gemm.py": lambda m: m.matmul.compile(M=1024, N=1024, K=1024, block_M=128, block_N=128, block_K=32),
    "norm/rms_norm.py": lambda m: m.rms_norm.compile(M=8192, N=4096, blk_m=1),
    "online_softmax/online_softmax.py": lambda m: m.softmax_kernel.compile(M=8192, N=8192),
    "flash_attention/example_mha_fwd_bhsd.py": lambda m: m.flashattn.compile(
        1, 16, 1024, 1024, 64, False, block_M=128, block_N=128, num_stages=2, threads=256
    ),
    "linear_attention/example_linear_attn_fwd.py": lambda m: m.tl_fused_chunk_fwd_kernel.compile(1, 512, 16, 128, 128),
    "elementwise/example_elementwise_add.py": lambda m: m.elementwise_add.compile(
        M=1024, N=1024, block_M=32, block_N=32, threads=128, in_dtype=T.float32, out_dtype=T.float32
    ),
    "gemm_splitk/example_tilelang_gemm_splitk.py": lambda m: m.matmul.compile(
        M=1024, N=1024, K=1024, block_M=128, block_N=128, block_K=32, split_k=4
    ),
}


def examples(arch: str) -> Iterator[tuple[str, str]]:
    """The PTX of TileLang's examples, from the folder that REACH_TILELANG names."""
    from warplens.frontends.tilelang.generated_source import ptx_of_kernel

    os.environ["TILELANG_DEFAULT_TARGET"] = json.dumps({"kind": "cuda", "arch": arch})
    for name, compile_kernel in EXAMPLES.items():
        try:
            kernel = compile_kernel(load_example(Path(os.environ["REACH_TILELANG"]) / name))
            yield name, ptx_of_kernel(kernel, lambda text: print(text, file=sys.stderr))
        except Exception as error:
            print(f"{name}: {error!r}"[:500], file=sys.stderr)
