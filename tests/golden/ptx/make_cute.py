"""Regenerate cute_saxpy.ptx: `CUTE_DSL_ARCH=sm_80 python make_cute.py` with nvidia-cutlass-dsl 4.5.3."""

from __future__ import annotations

import tempfile
from pathlib import Path

import cutlass
from cutlass import cute
from cutlass._mlir.dialects import llvm
from cutlass.cute.runtime import make_fake_compact_tensor
from cutlass.cutlass_dsl import dsl_user_op


@dsl_user_op
def mark(text, *, loc=None, ip=None):
    llvm.inline_asm(
        None,
        [],
        "// @warplens " + text,
        "~{memory}",
        has_side_effects=True,
        is_align_stack=False,
        asm_dialect=llvm.AsmDialect.AD_ATT,
        loc=loc,
        ip=ip,
    )


@cute.kernel
def saxpy(x: cute.Tensor, y: cute.Tensor, n: cutlass.Int32):
    t, _, _ = cute.arch.thread_idx()
    b, _, _ = cute.arch.block_idx()
    d, _, _ = cute.arch.block_dim()
    s = cutlass.utils.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(128))
    i = b * d + t
    mark("B load")
    if i < n:
        s[t] = x[i]
    mark("E load")
    cute.arch.sync_threads()
    mark("B sum")
    if i < n:
        y[i] = y[i] + s[t] * 2.0
    mark("E sum")


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, n: cutlass.Int32):
    saxpy(x, y, n).launch(grid=[8, 1, 1], block=[128, 1, 1], smem=512)


x, y = (make_fake_compact_tensor(cutlass.Float32, (1024,)) for _ in range(2))
with tempfile.TemporaryDirectory() as folder:
    compiled = cute.compile(launch, x, y, cutlass.Int32(1000), options=f"--keep-ptx --dump-dir={folder}")
Path(__file__).with_name("cute_saxpy.ptx").write_text(compiled.__ptx__)
