"""The kernel of known_work.cu in Triton and in Gluon: the same PTX between the same marks."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

import warplens.triton as wlt


@triton.jit
def known_work(
    extra, memory, repeats, SETUP: tl.constexpr, INSIDE: tl.constexpr, AROUND: tl.constexpr, RESULT: tl.constexpr
):
    tl.inline_asm_elementwise(SETUP, "=l,l", [memory], dtype=tl.int64, is_pure=False, pack=1)
    for _i in range(repeats):
        with wlt.region("work"):
            cycles = tl.inline_asm_elementwise(INSIDE, "=l", [], dtype=tl.int64, is_pure=False, pack=1)
        wlt.value("inside", cycles)
    for i in range(repeats):
        more = tl.inline_asm_elementwise(AROUND, "=l", [], dtype=tl.int64, is_pure=False, pack=1)
        tl.store(extra + tl.program_id(0) * repeats + i, more)
    left = tl.inline_asm_elementwise(RESULT, "=l", [], dtype=tl.int64, is_pure=False, pack=1)
    tl.store(extra, left, mask=left == 12345)


@gluon.jit
def known_work_gluon(
    extra, memory, repeats, SETUP: gl.constexpr, INSIDE: gl.constexpr, AROUND: gl.constexpr, RESULT: gl.constexpr
):
    gl.inline_asm_elementwise(SETUP, "=l,l", [memory], dtype=gl.int64, is_pure=False, pack=1)
    for _i in range(repeats):
        with wlt.region("work"):
            cycles = gl.inline_asm_elementwise(INSIDE, "=l", [], dtype=gl.int64, is_pure=False, pack=1)
        wlt.value("inside", cycles)
    for i in range(repeats):
        more = gl.inline_asm_elementwise(AROUND, "=l", [], dtype=gl.int64, is_pure=False, pack=1)
        gl.store(extra + gl.program_id(0) * repeats + i, more)
    left = gl.inline_asm_elementwise(RESULT, "=l", [], dtype=gl.int64, is_pure=False, pack=1)
    gl.store(extra, left, mask=left == 12345)
