"""A kernel in PTX with every kind of mark, a loop and early exits, and the ways to store its records."""

from __future__ import annotations

POLICIES = ("now", "late", "end", "defer", "spread", "auto")

HEAD = """\
.version 8.0
.target sm_80
.address_size 64
"""

# Threads below `limit` leave early; the others loop, and each warp's values differ.
KERNEL = (
    HEAD
    + """\
.visible .entry work(.param .u64 out, .param .u32 steps, .param .u32 limit, .param .u64 scratch)
{
	.reg .pred %p<4>;
	.reg .b32 %r<12>;
	.reg .b64 %rd<6>;
	ld.param.u32 %r1, [steps];
	ld.param.u32 %r2, [limit];
	ld.param.u64 %rd1, [out];
	mov.u32 %r3, %tid.x;
	mov.u32 %r4, %ctaid.x;
	mov.u32 %r5, %ntid.x;
	// @warplens B all
	mad.lo.s32 %r6, %r4, %r5, %r3;
	// @warplens V thread s32 %r3
	setp.lt.u32 %p1, %r6, %r2;
	@%p1 ret;
	mov.u32 %r7, 0;
	mov.u32 %r8, 0;
$loop:
	// @warplens B load%20it
	mad.lo.s32 %r8, %r7, 3, %r8;
	// @warplens E load%20it
	// @warplens B dot
	add.s32 %r8, %r8, %r3;
	// @warplens I tick
	and.b32 %r9, %r7, 3;
	// @warplens A copy %r9
	xor.b32 %r8, %r8, %r4;
	// @warplens Z copy 1
	// @warplens E dot
	add.s32 %r7, %r7, 1;
	setp.lt.u32 %p2, %r7, %r1;
	@%p2 bra $loop;
	mul.wide.s32 %rd2, %r6, 4;
	add.s64 %rd3, %rd1, %rd2;
	st.global.u32 [%rd3], %r8;
	setp.eq.u32 %p3, %r4, 1;
	@!%p3 bra $done;
	// @warplens I odd
	exit;
$done:
	// @warplens E all
	ret;
}
"""
)
