"""Regenerate gluon_row_sum.ptx: `python tests/golden/ptx/make_gluon.py` with triton 3.6.0 installed."""

from __future__ import annotations

import triton
from make import write
from triton.backends.compiler import GPUTarget
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource


@gluon.jit
def mark(text: gl.constexpr):
    gl.inline_asm_elementwise(
        "mov.u32 $0, 0; // @warplens " + text, "=r,~{memory}", [], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def row_sum(source, out, columns, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    offsets = gl.arange(0, BLOCK, layout=layout)
    row = gl.program_id(0)
    mark("B load")
    x = gl.load(source + row * columns + offsets, mask=offsets < columns, other=0.0)
    mark("E load")
    gl.store(out + row, gl.sum(x, axis=0))


signature = {"source": "*fp32", "out": "*fp32", "columns": "i32", "BLOCK": "constexpr"}
compiled = triton.compile(
    GluonASTSource(row_sum, signature, {(3,): 1024}, {}),
    target=GPUTarget("cuda", 80, 32),
    options={"num_warps": 4},
)
write("gluon_row_sum.ptx", compiled.asm["ptx"])
