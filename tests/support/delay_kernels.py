"""Kernels in PTX whose answer to a delay is known, for the interpreter: it has a clock, and barriers make warps wait.

Warp 0 is the producer and warp 1 the consumer of each step; both meet at a barrier. `work` spins for a given number of
cycles, so that the lengths of both sides are known.
"""

from __future__ import annotations

HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 steps, .param .u64 scratch) {
	.reg .pred %p<9>; .reg .b32 %r<30>; .reg .b64 %rd<9>;
	ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [steps];
	mov.u32 %r2, %tid.x; mov.u32 %r3, %ctaid.x; mov.u32 %r5, 0; mov.u32 %r6, 0;
	shr.u32 %r4, %r2, 5; setp.ne.u32 %p1, %r4, 0;
"""
TAIL = """	mov.u32 %r7, %ntid.x; mad.lo.u32 %r8, %r3, %r7, %r2;
	mul.wide.u32 %rd2, %r8, 4; add.s64 %rd3, %rd1, %rd2;
	st.global.u32 [%rd3], %r6;
	ret;
}
"""


def work(cycles: int, label: str) -> str:
    """Code that takes about so many cycles."""
    return f"""	mov.u32 %r10, %clock;
$L_{label}:
	mov.u32 %r11, %clock; sub.u32 %r12, %r11, %r10; setp.lt.u32 %p5, %r12, {cycles};
	@%p5 bra $L_{label};
	add.u32 %r6, %r6, 3;
"""


def region(name: str, code: str) -> str:
    return f"	// @warplens B {name}\n{code}	// @warplens E {name}\n"


def looped(code: str) -> str:
    return f"""$L_loop:
{code}	add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, %r1;
	@%p2 bra $L_loop;
"""


def serial(cycles: int = 200) -> str:
    """Two regions one after the other in every warp: a cycle in either reaches the end."""
    return HEAD + looped(region("first", work(cycles, "a")) + region("second", work(cycles, "b"))) + TAIL


def apart(cycles: int = 200) -> str:
    """Two regions with code between them, in a loop: the code behind the second leads to the first and to the exit."""
    return (
        HEAD
        + work(cycles, "head")
        + looped(region("first", work(cycles, "a")) + work(cycles, "mid") + region("second", "") + work(cycles, "late"))
        + TAIL
    )


def two_sides(producer: int, consumer: int) -> str:
    """Each step is as long as the longer of two warps, which meet at a barrier."""
    return (
        HEAD
        + looped(
            "	@%p1 bra $L_other;\n"
            + region("produce", work(producer, "a"))
            + "	bra $L_meet;\n$L_other:\n"
            + region("consume", work(consumer, "b"))
            + "$L_meet:\n	bar.sync 0;\n"
        )
        + TAIL
    )


LOCKED = (
    HEAD
    + """$L_take:
	atom.global.cas.b32 %r20, [%rd1], 0, 1;
	setp.ne.u32 %p3, %r20, 0;
	@%p3 bra $L_take;
"""
    + region("inside", "	add.u32 %r6, %r6, 1;\n")
    + "	atom.global.exch.b32 %r21, [%rd1], 0;\n"
    + region("after", "	add.u32 %r6, %r6, 1;\n")
    + TAIL
)
"""A lock that is taken, held over a region, and released before another."""

FLAG = (
    HEAD
    + """$L_wait:
	atom.global.cas.b32 %r20, [%rd1], 1, 1;
	setp.ne.u32 %p3, %r20, 1;
	@%p3 bra $L_wait;
"""
    + region("inside", "	add.u32 %r6, %r6, 1;\n")
    + "	atom.global.exch.b32 %r21, [%rd1], 0;\n"
    + TAIL
)
"""A wait for a flag that another block sets: nothing is held after it."""

ADDED = (
    HEAD
    + """	mov.u32 %r20, 0;
$L_again:
	mov.u32 %r21, %r20; add.u32 %r22, %r21, 1;
	atom.global.cas.b32 %r20, [%rd1], %r21, %r22;
	setp.ne.u32 %p3, %r20, %r21;
	@%p3 bra $L_again;
"""
    + region("inside", "	add.u32 %r6, %r6, 1;\n")
    + TAIL
)
"""An addition by compare-and-swap: no lock."""


def elected(test: str) -> str:
    """A region in a branch that `test`, which sets %p4, lets only some threads take."""
    return (
        HEAD
        + f"	{test}\n	@!%p4 bra $L_skip;\n"
        + region("inside", "	add.u32 %r6, %r6, 1;\n")
        + "$L_skip:\n"
        + region("outside", "	add.u32 %r6, %r6, 1;\n")
        + TAIL
    )
