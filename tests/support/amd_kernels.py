"""Marked kernels that are compiled for AMD's GPUs, each with its signature, constants and launch options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource

import warplens.triton as wlt

TARGETS = {
    "gfx942": GPUTarget("hip", "gfx942", 64),
    "gfx1100": GPUTarget("hip", "gfx1100", 32),
    "gfx1250": GPUTarget("hip", "gfx1250", 32),
}
CLOCKS = {
    "gfx942": "s_memtime s[",
    "gfx1100": "hwreg(HW_REG_SHADER_CYCLES, 0, 20)",
    "gfx1250": "s_get_shader_cycles_u64 ",
}
"""How each GPU reads its clock."""


@triton.jit
def vector_add(a, b, out, n, BLOCK: tl.constexpr):
    with wlt.region("all"):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        with wlt.region("load"):
            x = tl.load(a + at, mask=at < n)
            y = tl.load(b + at, mask=at < n)
        wlt.instant("loaded")
        with wlt.region("store"):
            tl.store(out + at, x + y, mask=at < n)


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        with wlt.region("step"):
            with wlt.region("load"):
                x = tl.load(a + rows[:, None] * K + (k + inner)[None, :])
                y = tl.load(b + (k + inner)[:, None] * N + columns[None, :])
            with wlt.region("dot"):
                total = tl.dot(x, y, total)
    with wlt.region("store"):
        tl.store(c + rows[:, None] * N + columns[None, :], total)


@triton.jit
def softmax(source, out, stride, columns, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    for number in range(ROWS):
        row = tl.program_id(0) * ROWS + number
        at = tl.arange(0, BLOCK)
        with wlt.region("row"):
            with wlt.region("load"):
                x = tl.load(source + row * stride + at, mask=at < columns, other=-float("inf"))
            with wlt.region("reduce"):
                x = tl.exp(x - tl.max(x, axis=0))
                total = tl.sum(x, axis=0)
            wlt.value("total", total)
            wlt.anchor()
            tl.store(out + row * stride + at, x / total, mask=at < columns)


@triton.jit
def unmarked(source, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(source + at, mask=at < n), mask=at < n)


@triton.jit
def every_kind(source, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    wlt.async_begin("flight", n)
    x = tl.load(source + at, mask=at < n)
    wlt.async_end("flight", 3)
    wlt.value("signed", n)
    wlt.value("wide", n.to(tl.int64))
    wlt.value("half", tl.max(x.to(tl.float16), 0))
    wlt.value("double", tl.max(x.to(tl.float64), 0))
    wlt.value("constant", 7)
    wlt.arrive("full", 3)
    with wlt.wait("full", 3, 1):
        tl.store(out + at, x, mask=at < n)


@triton.jit
def while_loop(source, out, n):
    at = tl.load(source)
    while at < n:
        with wlt.region("turn"):
            at += tl.load(source + at)
    tl.store(out, at)


@triton.jit(noinline=True)
def marked_helper(source):
    with wlt.region("helper"):
        value = tl.load(source)
    return value + 1


@triton.jit
def calling(source, out, n):
    tl.store(out, marked_helper(source) + marked_helper(source + n))


@gluon.jit
def gluon_copy(source, out, n, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [64], [4], [0])
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    with wlt.region("load"):
        x = gl.load(source + at, mask=at < n)
    with wlt.region("store"):
        gl.store(out + at, x, mask=at < n)


@dataclass(frozen=True)
class AmdKernel:
    """A kernel, the types of its arguments, its constants, and the number of waves it is compiled with."""

    function: Any
    arguments: dict[str, str]
    constants: dict[str, int]
    waves: int = 4

    def source(self) -> Any:
        signature = {**self.arguments, **dict.fromkeys(self.constants, "constexpr")}
        kind = GluonASTSource if self.function is gluon_copy else ASTSource
        return kind(self.function, signature, self.constants)

    @property
    def options(self) -> dict[str, int]:
        return {"num_warps": self.waves}


_FP16 = {"a": "*fp16", "b": "*fp16", "c": "*fp32", "M": "i32", "N": "i32", "K": "i32"}
_POINTERS = {"source": "*fp32", "out": "*fp32"}
KERNELS = {
    "vector_add": AmdKernel(vector_add, {"a": "*fp32", "b": "*fp32", "out": "*fp32", "n": "i32"}, {"BLOCK": 1024}),
    "matmul": AmdKernel(matmul, _FP16, {"BM": 64, "BN": 64, "BK": 32}),
    "large_matmul": AmdKernel(matmul, _FP16, {"BM": 128, "BN": 128, "BK": 32}, waves=8),
    "softmax": AmdKernel(softmax, {**_POINTERS, "stride": "i32", "columns": "i32"}, {"BLOCK": 1024, "ROWS": 4}),
    "every_kind": AmdKernel(every_kind, {**_POINTERS, "n": "i32"}, {"BLOCK": 512}),
    "unmarked": AmdKernel(unmarked, {**_POINTERS, "n": "i32"}, {"BLOCK": 512}),
}
_INTEGERS = {"source": "*i32", "out": "*i32", "n": "i32"}
WHILE_LOOP, CALLING = AmdKernel(while_loop, _INTEGERS, {}), AmdKernel(calling, _INTEGERS, {})
GLUON_COPY = AmdKernel(gluon_copy, {**_POINTERS, "n": "i32"}, {"BLOCK": 1024})
"""For gfx942: its layout is one of 64 lanes."""
