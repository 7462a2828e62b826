"""A kernel with a region inside itself, regions that overlap, an instant, empty regions and an end without a begin."""

from __future__ import annotations

from tests.support.looped_ptx import HEAD

NESTED = (
    HEAD
    + """\
.visible .entry nested(.param .u64 out, .param .u32 steps, .param .u64 scratch)
.reqntid 64
{
	.reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %rd<4>;
	ld.param.u32 %r1, [steps];
	mov.u32 %r2, 0;
	mov.u32 %r3, %tid.x;
	shr.u32 %r4, %r3, 5;
	// @warplens B a
	xor.b32 %r3, %r3, 1;
$outer:
	// @warplens B a
	xor.b32 %r3, %r3, 1;
	// @warplens B b
	and.b32 %r5, %r2, 1;
	setp.eq.u32 %p1, %r5, %r4;
	@%p1 bra $skip;
	// @warplens B a
	xor.b32 %r3, %r3, 1;
	xor.b32 %r3, %r3, 2;
	// @warplens E a
$skip:
	xor.b32 %r3, %r3, 1;
	// @warplens E a
	xor.b32 %r3, %r3, 1;
	xor.b32 %r3, %r3, 1;
	// @warplens E b
	// @warplens I tick
	add.u32 %r2, %r2, 1;
	setp.lt.u32 %p2, %r2, %r1;
	@%p2 bra $outer;
	// @warplens E a
	// @warplens B short
	// @warplens E short
	// @warplens B short
	// @warplens E short
	// @warplens E nothing
	ld.param.u64 %rd1, [out];
	st.global.u32 [%rd1], %r3;
	ret;
}
"""
)
