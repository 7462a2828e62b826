"""The kernel of known_work.cu in the CuTe DSL: the same PTX between the same marks, woven or, with a buffer, direct."""

from __future__ import annotations

from typing import Any

import cutlass
from cutlass import Int32, Int64, cute
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import T, dsl_user_op

import warplens.cute as wlc


def _ptx(text: str, *operands: Int64, loc: Any = None, ip: Any = None) -> Int64:
    """PTX that sets `$0`, with at most one operand."""
    return Int64(
        llvm.inline_asm(
            T.i64(),
            [operand.ir_value(loc=loc, ip=ip) for operand in operands],
            text,
            ",".join(["=l", *("l" for _ in operands), "~{memory}"]),
            has_side_effects=True,
            is_align_stack=False,
            asm_dialect=llvm.AsmDialect.AD_ATT,
            loc=loc,
            ip=ip,
        )
    )


ptx = dsl_user_op(_ptx)


@cute.kernel
def known_work(extra: cute.Tensor, memory: Int64, repeats: Int32, texts: cutlass.Constexpr, prof: wlc.Buffer | None):
    if cutlass.const_expr(prof is not None):
        wlc.kernel(prof)
    block, _, _ = cute.arch.block_idx()
    ptx(texts["SETUP"], memory)
    for _ in cutlass.range(repeats, unroll=1):
        with wlc.region("work"):
            cycles = ptx(texts["INSIDE"])
        wlc.value("inside", cycles)
    for i in cutlass.range(repeats, unroll=1):
        extra[block * repeats + i] = ptx(texts["AROUND"])
    left = ptx(texts["RESULT"])
    if left == 12345:
        extra[0] = left


@cute.jit
def run(
    extra: cute.Tensor, memory: Int64, blocks: Int32, repeats: Int32, texts: cutlass.Constexpr, prof: wlc.Buffer | None
):
    known_work(extra, memory, repeats, texts, prof).launch(grid=(blocks, 1, 1), block=(32, 1, 1))
