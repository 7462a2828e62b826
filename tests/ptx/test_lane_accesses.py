"""Which sectors and banks lanes touch: patterns with a known answer, written as compilers write them."""

from __future__ import annotations

import pytest

from tests.support.ptx_kernels import HEAD
from warplens.ptx.lane_accesses import LaneAccess, lane_access
from warplens.ptx.lane_values import LaneValues
from warplens.ptx.tree import parse

_KERNEL = """
.visible .entry k(.param .u64 a, .param .u32 n)
{
  .reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .f32 %f<4>;
  ld.param.u64 %rd1, [a];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %tid.x;
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mad.lo.s32 %r5, %r3, %r4, %r2;
  CODE
  ret;
}
"""
_GLOBAL = "mul.wide.s32 %rd2, INDEX, 4; add.s64 %rd3, %rd1, %rd2; ld.global.f32 %f1, [%rd3];"
_SHARED = "shl.b32 %r10, INDEX, 2; mov.u32 %r11, tile; add.s32 %r12, %r11, %r10; ld.shared.f32 %f1, [%r12+128];"


def access(code: str) -> LaneAccess:
    function = parse(HEAD + _KERNEL.replace("CODE", code)).entries[0]
    values = LaneValues(function)
    (found,) = [one for node in function.instructions() if (one := lane_access(node, values))]
    return found


@pytest.mark.parametrize(
    ("code", "waste"),
    [
        (_GLOBAL.replace("INDEX", "%r5"), 1.0),
        ("mul.lo.s32 %r6, %r5, 2;" + _GLOBAL.replace("INDEX", "%r6"), 2.0),
        ("mul.lo.s32 %r6, %r5, 64;" + _GLOBAL.replace("INDEX", "%r6"), 8.0),
        ("mul.lo.s32 %r6, %r5, %r1;" + _GLOBAL.replace("INDEX", "%r6"), 8.0),
        ("mad.lo.s32 %r6, %r3, %r1, %r2;" + _GLOBAL.replace("INDEX", "%r6"), 1.0),
        (_GLOBAL.replace("INDEX", "%r3"), 1.0),
        # Eight lanes side by side in each of four rows.
        ("shr.u32 %r6, %r2, 3; and.b32 %r7, %r2, 7; mad.lo.s32 %r8, %r6, %r1, %r7;"
         + _GLOBAL.replace("INDEX", "%r8"), 1.0),
        # The same, but a pointer that moves on in a loop.
        ("mul.wide.s32 %rd2, %r5, 4; add.s64 %rd3, %rd1, %rd2; $loop: ld.global.f32 %f1, [%rd3]; "
         "add.s64 %rd3, %rd3, 4096; setp.lt.s64 %p1, %rd3, 9; @%p1 bra $loop;", 1.0),
        ("mul.wide.s32 %rd2, %r5, 16; add.s64 %rd3, %rd1, %rd2; ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%rd3];", 1.0),
    ],
)  # fmt: skip
def test_sectors_of_a_global_load(code: str, waste: float) -> None:
    assert access(code).waste == pytest.approx(waste)


def test_addresses_from_loaded_or_masked_values_are_scattered() -> None:
    assert access("and.b32 %r6, %r5, %r1;" + _GLOBAL.replace("INDEX", "%r6")).scattered
    chase = "ld.local.u32 %r6, [%r5];" + _GLOBAL.replace("INDEX", "%r6")
    function = parse(HEAD + _KERNEL.replace("CODE", chase)).entries[0]
    values = LaneValues(function)
    assert [one.scattered for node in function.instructions() if (one := lane_access(node, values))][-1]


@pytest.mark.parametrize(
    ("index", "ways"),
    [("%r2", 1), ("%r3", 1), ("times 2", 2), ("times 32", 32), ("times 33", 1), ("times 16", 16)],
)
def test_banks_of_a_shared_load(index: str, ways: int) -> None:
    scaled = f"mul.lo.s32 %r6, %r2, {index.split()[-1]};" if index.startswith("times") else f"mov.u32 %r6, {index};"
    assert access(scaled + _SHARED.replace("INDEX", "%r6")).ways == ways
