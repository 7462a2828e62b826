"""Which barriers are needed: small kernels whose answer is known, written as compilers write them."""

from __future__ import annotations

import pytest

from tests.support.ptx_kernels import HEAD
from warplens.ptx.barrier_need import barrier_needs
from warplens.ptx.control_flow import ControlFlow
from warplens.ptx.tree import parse

_KERNEL = """
.visible .entry k(.param .u64 a, .param .u64 b, .param .u32 n)
.maxntid 256, 1, 1
{
  .reg .pred %p<9>; .reg .b32 %r<40>; .reg .b64 %rd<20>; .reg .f32 %f<9>;
  .shared .align 4 .b8 tile[4096];
  .shared .align 4 .b8 other[4096];
  ld.param.u64 %rd1, [a];
  ld.param.u64 %rd2, [b];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %tid.x;
  shl.b32 %r3, %r2, 2;
  mov.u32 %r4, tile;
  mov.u32 %r5, other;
  add.s32 %r6, %r4, %r3;
  shr.u32 %r7, %r2, 5;
  and.b32 %r8, %r2, 31;
  CODE
  ret;
}
"""
_OWN = "st.shared.f32 [%r6], %f1;"
_SYNC = "bar.sync 0;"
_BLOCK_REVERSED = "sub.s32 %r10, 1020, %r3; add.s32 %r11, %r4, %r10; ld.shared.f32 %f2, [%r11];"
# The lanes of each warp in reverse: 31 - lane, in the row of the warp.
_WARP_REVERSED = (
    "sub.s32 %r12, 31, %r8; shl.b32 %r13, %r7, 5; add.s32 %r14, %r13, %r12; shl.b32 %r15, %r14, 2; "
    "add.s32 %r16, %r4, %r15; ld.shared.f32 %f2, [%r16];"
)
_FIRST_WARP = "setp.gt.s32 %p1, %r2, 31; @%p1 bra $skip; {code} $skip:"
_RUN_TIME = "mul.lo.s32 %r20, %r2, %r1; add.s32 %r21, %r4, %r20; ld.shared.f32 %f2, [%r21];"


def needs(code: str) -> list[str]:
    function = parse(HEAD + _KERNEL.replace("CODE", code)).entries[0]
    return [need.value for need in barrier_needs(function, ControlFlow(function)).values()]


@pytest.mark.parametrize(
    ("code", "need"),
    [
        (_OWN + _SYNC + _BLOCK_REVERSED, "needed"),
        (_BLOCK_REVERSED + _SYNC + _OWN, "needed"),  # written again before all have read
        (_OWN + _SYNC + _WARP_REVERSED, "unneeded"),
        (_OWN + _SYNC + "ld.shared.f32 %f2, [%r6];", "unneeded"),
        (_OWN + _SYNC + _RUN_TIME, "unknown"),
        (_SYNC, "unneeded"),
        (_OWN + _SYNC + _BLOCK_REVERSED.replace("%r4", "%r5"), "unneeded"),  # an array of its own
        (_OWN + _SYNC + _FIRST_WARP.format(code="ld.shared.f32 %f2, [%r6];"), "unneeded"),
        (_OWN + _SYNC + _FIRST_WARP.format(code="ld.shared.f32 %f2, [%r6+128];"), "needed"),
        (_FIRST_WARP.format(code=_OWN) + _SYNC + _BLOCK_REVERSED, "needed"),
        (_BLOCK_REVERSED + _SYNC + _BLOCK_REVERSED, "unneeded"),  # both read
        # Copies that run by themselves, and a flag in global memory beside what others wrote there.
        ("cp.async.ca.shared.global [%r6], [%rd1], 4;" + _SYNC + _BLOCK_REVERSED, "unknown"),
        ("st.global.f32 [%rd1], %f1;" + _SYNC + "atom.global.add.u32 %r30, [%rd2], 1;", "unknown"),
        ("ld.volatile.global.u32 %r30, [%rd2];" + _SYNC + "ld.global.f32 %f2, [%rd1];", "unknown"),
        ("st.global.f32 [%rd1], %f1;" + _SYNC + "ld.global.f32 %f2, [%rd1];", "unknown"),
        ("ld.global.f32 %f1, [%rd1];" + _SYNC + "st.global.f32 [%rd2], %f1;", "unneeded"),
        ("setp.gt.s32 %p1, %r2, 5; bar.red.popc.u32 %r30, 0, %p1;", "needed"),
        (_OWN + "bar.sync 1, 128;" + _BLOCK_REVERSED, "unknown"),  # half of the block
    ],
)
def test_a_barrier_is_needed_where_warps_exchange_data(code: str, need: str) -> None:
    assert needs(code) == [need]


def test_of_two_barriers_in_a_row_one_is_needed() -> None:
    assert needs(_OWN + _SYNC + _SYNC + _BLOCK_REVERSED) == ["unneeded", "needed"]


def test_the_way_around_a_loop_counts() -> None:
    """Read by others, then written in the next round: the barrier at the end is needed, too."""
    again = "add.s32 %r1, %r1, -1; setp.gt.s32 %p2, %r1, 0; @%p2 bra $loop;"
    for read, need in ((_BLOCK_REVERSED, "needed"), (_WARP_REVERSED, "unneeded")):
        assert needs(f"$loop: {_OWN} {_SYNC} {read} {_SYNC} {again}") == [need, need]


def test_of_two_barriers_of_which_either_may_go_it_is_the_inner_one() -> None:
    """A tile that all read piece by piece: to wait after each piece, or before the next tile is written."""
    read = "add.s32 %r30, %r4, %r22; ld.shared.f32 %f2, [%r30]; add.s32 %r22, %r22, 4; setp.lt.s32 %p3, %r22, 999;"
    inner = f"mov.u32 %r22, 0; $inner: {read} {_SYNC} @%p3 bra $inner;"
    again = "add.s32 %r1, %r1, -1; setp.gt.s32 %p2, %r1, 0; @%p2 bra $loop;"
    assert needs(f"$loop: {_SYNC} {_OWN} {_SYNC} {inner} {again}") == ["needed", "needed", "unneeded"]


def test_an_offset_that_changes_in_a_loop_proves_no_distance() -> None:
    """A buffer that is moved through: the same words at the same time, and others later."""
    walk = (
        "mov.u32 %r30, 0; $loop: add.s32 %r31, %r6, %r30; st.shared.f32 [%r31], %f1; bar.sync 0; "
        "ld.shared.f32 %f2, [%r31]; add.s32 %r30, %r30, 4; setp.lt.s32 %p2, %r30, %r1; @%p2 bra $loop;"
    )
    assert needs(walk) == ["unknown"]


def test_a_tile_that_all_warps_walk_through_is_an_exchange() -> None:
    """Each thread writes its word; then all read one word after the other, as with the bodies of a tile."""
    walk = (
        f"{_OWN} {_SYNC} mov.u32 %r30, 0; $loop: add.s32 %r31, %r4, %r30; ld.shared.f32 %f2, [%r31]; "
        "add.s32 %r30, %r30, 4; setp.lt.s32 %p2, %r30, 1024; @%p2 bra $loop;"
    )
    assert needs(walk) == ["needed"]


_HALVING = (
    "mov.u32 %r30, 512; $loop: mad.lo.s32 %r31, %r2, {pitch}, %r4; add.s32 %r32, %r31, %r30; "
    "ld.shared.f32 %f2, [%r32]; bar.sync 0; st.shared.f32 [%r31], %f2; "
    "shr.u32 %r30, %r30, 1; setp.gt.u32 %p2, %r30, 3; @%p2 bra $loop;"
)


def test_words_at_a_distance_that_changes_are_those_of_others_unless_there_is_room_for_own_ones() -> None:
    """A tree whose step is halved in a loop, and arrays of 32 words of each thread."""
    assert needs(_HALVING.format(pitch=4)) == ["needed"]
    assert needs(_HALVING.format(pitch=128)) == ["unknown"]


def test_a_block_with_rows_is_judged_for_rows_of_two_lengths() -> None:
    """A square of 16 by 16 that is turned: another warp's rows, whatever the length of a row."""
    turn = (
        "mov.u32 %r20, %tid.y; shl.b32 %r21, %r20, 6; shl.b32 %r22, %r2, 2; add.s32 %r23, %r21, %r22; "
        "add.s32 %r24, %r4, %r23; st.shared.f32 [%r24], %f1; bar.sync 0; "
        "shl.b32 %r25, %r2, 6; shl.b32 %r26, %r20, 2; add.s32 %r27, %r25, %r26; add.s32 %r28, %r4, %r27; "
        "ld.shared.f32 %f2, [%r28];"
    )
    assert needs(turn) == ["needed"]


def test_a_warp_number_that_is_passed_on_by_a_shuffle_is_followed() -> None:
    own = (
        "shfl.sync.idx.b32 %r20|%p3, %r7, 0, 31, -1; shl.b32 %r21, %r20, 7; shl.b32 %r22, %r8, 2; "
        "add.s32 %r23, %r21, %r22; add.s32 %r24, %r4, %r23; st.shared.f32 [%r24], %f1; bar.sync 0; "
        "xor.b32 %r25, %r22, 64; add.s32 %r26, %r21, %r25; add.s32 %r27, %r4, %r26; ld.shared.f32 %f2, [%r27];"
    )
    assert needs(own) == ["unneeded"]
