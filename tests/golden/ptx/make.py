"""Regenerate the PTX samples: `python tests/golden/ptx/make.py` with nvcc on the path and triton 3.6.0 installed.

With another triton, only its own samples are written, under its prefix (`triton39_...`); two of those before 3.9.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

HERE = Path(__file__).parent


@triton.jit
def mark(text: tl.constexpr):
    tl.inline_asm_elementwise(
        "mov.u32 $0, 0; // @warplens " + text, "=r,~{memory}", [], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit
def vector_add(a, b, c, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    mark("B load")
    x = tl.load(a + offsets, mask=inside)
    y = tl.load(b + offsets, mask=inside)
    mark("E load")
    tl.store(c + offsets, x + y, mask=inside)


@triton.jit
def softmax(out, source, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    x = tl.load(source + row * columns + offsets, mask=offsets < columns, other=-float("inf"))
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(out + row * columns + offsets, x / tl.sum(x, axis=0), mask=offsets < columns)


@triton.jit
def reduce(source, out, n, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        total += tl.load(source + offsets, mask=offsets < n, other=0.0)
    tl.atomic_add(out, tl.sum(total, axis=0))


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    pa = a + rows[:, None] * K + depth[None, :]
    pb = b + depth[:, None] * N + columns[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        mark("B load")
        x = tl.load(pa)
        y = tl.load(pb)
        mark("E load")
        mark("B dot")
        total = tl.dot(x, y, total)
        mark("E dot")
        pa += BK
        pb += BK * N
    tl.store(c + rows[:, None] * N + columns[None, :], total.to(c.dtype.element_ty))


@triton.jit
def attention(q, k, v, out, scale, T, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    rows, wide = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D)
    base = tl.program_id(1) * T * D
    query = tl.load(q + base + rows[:, None] * D + wide[None, :])
    top = tl.full((BM,), -float("inf"), tl.float32)
    weight = tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, D), tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * BM, BN):
        columns = start + tl.arange(0, BN)
        mark("B scores")
        scores = tl.dot(query, tl.load(k + base + wide[:, None] + columns[None, :] * D)) * scale
        scores = tl.where(rows[:, None] >= columns[None, :], scores, -float("inf"))
        mark("E scores")
        mark("B softmax")
        new_top = tl.maximum(top, tl.max(scores, axis=1))
        part = tl.math.exp2(scores - new_top[:, None])
        fade = tl.math.exp2(top - new_top)
        weight = weight * fade + tl.sum(part, axis=1)
        mark("E softmax")
        total = tl.dot(
            part.to(tl.float16), tl.load(v + base + columns[:, None] * D + wide[None, :]), total * fade[:, None]
        )
        top = new_top
    tl.store(out + base + rows[:, None] * D + wide[None, :], total / weight[:, None])


VERSION = "".join(triton.__version__.split(".")[:2])
BETWEEN = ("vector_add", "matmul_sm80")


def write(name, ptx):
    """Without the folders of the machine that made it; headers stay recognisable as such."""
    ptx = re.sub(r'"/[^"\n]*/include/', '"include/', ptx)
    (HERE / name).write_text(re.sub(r'"/[^"\n]*/', '"golden/', ptx))


def compile_triton(name, kernel, signature, constants, sm=80, warps=4, stages=3, aligned=True):
    if VERSION not in ("36", "39") and name not in BETWEEN:
        return
    signature = {**signature, **dict.fromkeys(constants, "constexpr")}
    names = list(signature)
    constexprs = {(names.index(key),): value for key, value in constants.items()}
    attrs = {}
    if aligned:
        attrs = {(i,): [["tt.divisibility", 16]] for i, key in enumerate(names) if signature[key] != "constexpr"}
    source = ASTSource(kernel, signature, constexprs, attrs)
    compiled = triton.compile(
        source, target=GPUTarget("cuda", sm, 32), options={"num_warps": warps, "num_stages": stages}
    )
    write(f"triton{'' if VERSION == '36' else VERSION}_{name}.ptx", compiled.asm["ptx"])


def compile_nvcc(name, source, arch, *flags):
    out = HERE / f"{name}.ptx"
    subprocess.run(["nvcc", "-ptx", f"-arch={arch}", *flags, source, "-o", out.name], cwd=HERE, check=True)
    write(out.name, out.read_text())


def main():
    pointers = {"a": "*fp32", "b": "*fp32", "c": "*fp32"}
    compile_triton("vector_add", vector_add, {**pointers, "n": "i32"}, {"BLOCK": 1024}, aligned=False)
    compile_triton("softmax", softmax, {"out": "*fp32", "source": "*fp32", "columns": "i32"}, {"BLOCK": 1024})
    compile_triton("reduce", reduce, {"source": "*fp32", "out": "*fp32", "n": "i32"}, {"BLOCK": 512})
    sizes = {"M": "i32", "N": "i32", "K": "i32"}
    halves = {"a": "*fp16", "b": "*fp16", "c": "*fp32", **sizes}
    tile = {"BM": 32, "BN": 32, "BK": 32}
    compile_triton("matmul_sm80", matmul, halves, tile)
    bf16 = {"a": "*bf16", "b": "*bf16", "c": "*bf16", **sizes}
    compile_triton("matmul_bf16_sm80", matmul, bf16, {"BM": 64, "BN": 32, "BK": 32}, stages=2)
    compile_triton("matmul_sm90", matmul, halves, {"BM": 64, "BN": 64, "BK": 32}, sm=90)
    heads = {"q": "*fp16", "k": "*fp16", "v": "*fp16", "out": "*fp32", "scale": "fp32", "T": "i32"}
    compile_triton("attention_sm80", attention, heads, {"D": 32, "BM": 32, "BN": 32}, warps=2)
    if triton.__version__ != "3.6.0":
        return
    compile_nvcc("nvcc_kernels", "kernels.cu", "sm_80")
    compile_nvcc("nvcc_kernels_debug", "kernels.cu", "sm_90a", "-G", "-DSMALL")
    compile_nvcc("nvcc_kernels_lineinfo", "kernels.cu", "sm_75", "-lineinfo")
    compile_nvcc("nvcc_gemm_lineinfo", "gemm.cu", "sm_90a", "-lineinfo")
    compile_nvcc("nvcc_pipeline_lineinfo", "../../../benchmarks/kernels/pipeline.cu", "sm_90", "-lineinfo")


if __name__ == "__main__":
    main()
