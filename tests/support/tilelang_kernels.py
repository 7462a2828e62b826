"""TileLang kernels like those of its own examples, with and without regions."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import tilelang
import tilelang.language as T
from tilelang.backend.module import create_backend_context
from tvm.target import Target

import warplens.tilelang as wlt


def target(arch: str) -> Target:
    return Target({"kind": "cuda", "arch": arch})


def lowered(function: Any, arch: str) -> Any:
    """What a compiled kernel knows that its second lowering needs; nothing is compiled."""
    context = create_backend_context(target(arch), None, "tvm_ffi")
    return SimpleNamespace(prim_func=function, target=context.target, backend_context=context, pass_configs={})


def gemm(*, marked: bool = True, size: int = 256, block: int = 64) -> Any:
    around = wlt.region if marked else lambda name: nullcontext()

    @T.prim_func
    def main(
        A: T.Tensor((size, size), "float16"), B: T.Tensor((size, size), "float16"), C: T.Tensor((size, size), "float16")
    ):
        with T.Kernel(T.ceildiv(size, block), T.ceildiv(size, block), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block, 32), "float16")
            B_shared = T.alloc_shared((32, block), "float16")
            C_local = T.alloc_fragment((block, block), "float32")
            T.clear(C_local)
            with around("main loop"):
                for k in T.Pipelined(T.ceildiv(size, 32), num_stages=3):
                    with around("load"):
                        T.copy(A[by * block, k * 32], A_shared)
                        T.copy(B[k * 32, bx * block], B_shared)
                    with around("dot"):
                        T.gemm(A_shared, B_shared, C_local)
            with around("store"):
                T.copy(C_local, C[by * block, bx * block])

    return main


def dequantised(*, marked: bool = True, size: int = 128) -> Any:
    """A product of numbers of four bits, which a loop with a cast unpacks."""
    around = wlt.region if marked else lambda name: nullcontext()

    @T.prim_func
    def main(
        A: T.Tensor((size, size), "float16"),
        packed: T.Tensor((size, size // 2), "uint8"),
        scales: T.Tensor((size,), "float16"),
        C: T.Tensor((size, size), "float16"),
    ):
        with T.Kernel(size // 64, size // 64, threads=128) as (bx, by):
            A_shared = T.alloc_shared((64, 64), "float16")
            packed_shared = T.alloc_shared((64, 32), "uint8")
            B_shared = T.alloc_shared((64, 64), "float16")
            C_local = T.alloc_fragment((64, 64), "float32")
            T.clear(C_local)
            for k in T.serial(size // 64):
                with around("load"):
                    T.copy(A[by * 64, k * 64], A_shared)
                    T.copy(packed[bx * 64, k * 32], packed_shared)
                with around("unpack"):
                    for i, j in T.Parallel(64, 64):
                        nibble = packed_shared[i, j // 2] >> T.cast((j % 2) * 4, "uint8") & T.cast(15, "uint8")
                        B_shared[i, j] = T.cast(nibble, "float16") * scales[bx * 64 + i]
                with around("dot"):
                    T.gemm(A_shared, B_shared, C_local, transpose_B=True)
            T.copy(C_local, C[by * 64, bx * 64])

    return main


@tilelang.jit
def product(A, B, block):
    M, N, K = T.const("M, N, K")
    A: T.Tensor((M, K), T.float16)
    B: T.Tensor((K, N), T.float16)
    C = T.empty((M, N), T.float16)
    with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), threads=128) as (bx, by):
        A_shared = T.alloc_shared((block, 32), T.float16)
        B_shared = T.alloc_shared((32, block), T.float16)
        C_local = T.alloc_fragment((block, block), T.float32)
        T.clear(C_local)
        for k in T.Pipelined(T.ceildiv(K, 32), num_stages=3):
            with wlt.region("load"):
                T.copy(A[by * block, k * 32], A_shared)
                T.copy(B[k * 32, bx * block], B_shared)
            with wlt.region("dot"):
                T.gemm(A_shared, B_shared, C_local)
        T.copy(C_local, C[by * block, bx * block])
    return C


def eager_gemm() -> Any:
    """The same as a function that TileLang compiles when it is called."""
    with target("sm_90a"):
        return product.get_tir(M=256, N=256, K=256, block=64)


def attention(*, marked: bool = True, length: int = 256, depth: int = 64) -> Any:
    """Two products in one loop, with a softmax between them."""
    around = wlt.region if marked else lambda name: nullcontext()

    @T.prim_func
    def main(
        Q: T.Tensor((length, depth), "float16"),
        K: T.Tensor((length, depth), "float16"),
        V: T.Tensor((length, depth), "float16"),
        Output: T.Tensor((length, depth), "float16"),
    ):
        with T.Kernel(T.ceildiv(length, 64), threads=128) as bx:
            Q_shared = T.alloc_shared((64, depth), "float16")
            K_shared = T.alloc_shared((64, depth), "float16")
            V_shared = T.alloc_shared((64, depth), "float16")
            scores = T.alloc_fragment((64, 64), "float32")
            weights = T.alloc_fragment((64, 64), "float16")
            total = T.alloc_fragment((64, depth), "float32")
            sums = T.alloc_fragment((64,), "float32")
            T.copy(Q[bx * 64, 0], Q_shared)
            T.clear(total)
            for k in T.Pipelined(T.ceildiv(length, 64), num_stages=2):
                T.copy(K[k * 64, 0], K_shared)
                with around("qk"):
                    T.clear(scores)
                    T.gemm(Q_shared, K_shared, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                with around("softmax"):
                    for i, j in T.Parallel(64, 64):
                        scores[i, j] = T.exp2(scores[i, j])
                    T.reduce_sum(scores, sums, dim=1)
                    T.copy(scores, weights)
                T.copy(V[k * 64, 0], V_shared)
                with around("pv"):
                    T.gemm(weights, V_shared, total, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(64, depth):
                total[i, j] /= sums[i]
            T.copy(total, Output[bx * 64, 0])

    return main
