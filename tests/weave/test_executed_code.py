"""The code of a region is counted as one instance runs it: its path, its loops, its threads, each byte once."""

from __future__ import annotations

import pytest

from tests.support.ptx_kernels import HEAD
from warplens.weave.weaver import weave
from warplens.weave.weaving import SymbolBuffer

_REGISTERS = ".reg .pred %p<9>; .reg .b32 %r<40>; .reg .b64 %rd<40>; .reg .f32 %f<9>;"
_START = """
  ld.param.u64 %rd1, [a];
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ctaid.x;
  shl.b32 %r3, %r2, 8;
  add.s32 %r4, %r3, %r1;
  mul.wide.u32 %rd2, %r4, 4;
  add.s64 %rd3, %rd1, %rd2;
"""
_LOAD = "ld.global.f32 %f1, [%rd3];\n"
_BULK = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r9], 2048;\n"


def counted(body: str, start: str = _START, size: str = "", name: str = "part") -> dict[str, float]:
    """The counts of the region `part` around `body`; of another region, `body` has its marks."""
    if "@warplens" not in body:
        body = f"// @warplens B part\n{body}\n// @warplens E part\n"
    text = f"{HEAD}\n.visible .entry k(.param .u64 a, .param .u32 n)\n{size}\n{{\n{_REGISTERS}{start}{body}  ret;\n}}\n"
    woven = weave(text, buffer=SymbolBuffer())
    number = next(number for number, region in woven.regions.items() if region == name)
    return woven.code["k"][str(number)]


@pytest.mark.parametrize(
    ("lanes", "moved", "touched"),
    [
        ("shl.b32 %r5, %r1, 2;", 4 * 31 + 16, 160),  # 16 bytes each, 4 apart
        ("shl.b32 %r5, %r1, 4;", 512, 512),
        ("mov.u32 %r5, 64;", 16, 32),
        ("shl.b32 %r5, %r1, 7;", 512, 1024),
    ],
)
def test_bytes_that_several_lanes_read_are_moved_once(lanes: str, moved: int, touched: int) -> None:
    load = "cvt.u64.u32 %rd5, %r5; add.s64 %rd6, %rd1, %rd5; ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd6];\n"
    counts = counted(f"{lanes} {load}")
    assert (counts["moved_bytes"], counts["fetch_bytes"]) == (moved, touched)
    assert counts["moved_bytes"] + counts.get("wasted_bytes", 0) == touched


def test_neighbours_of_a_stencil_share_their_bytes() -> None:
    counts = counted("ld.global.f32 %f1, [%rd3+-4]; ld.global.f32 %f2, [%rd3]; ld.global.f32 %f3, [%rd3+4];\n")
    assert (counts["loads"], counts["moved_bytes"]) == (3, 4 * 34)


def test_a_copy_that_one_thread_starts_is_moved_once_per_block() -> None:
    first = f"setp.ne.u32 %p1, %r1, 0;\n@%p1 bra $skip;\n{_BULK}$skip:\n"
    assert counted(first)["block_bytes"] == 2048
    assert "moved_bytes" not in counted(first)
    elected = f"and.b32 %r8, %r1, 31;\nsetp.ne.u32 %p1, %r8, 0;\n@%p1 bra $skip;\n{_BULK}$skip:\n"
    assert counted(elected)["moved_bytes"] == 2048, "one lane of each warp that runs the region"
    warp = "shr.u32 %r8, %r1, 5; shfl.sync.idx.b32 %r7, %r8, 0, 31, -1;\nsetp.ne.u32 %p1, %r7, 2;\n@%p1 bra $skip;\n"
    one = warp + "elect.sync %r6|%p2, -1;\n@%p2 " + _BULK + "$skip:\n"
    assert counted(one)["block_bytes"] == 2048


def test_a_region_of_a_producer_warp_moves_its_bytes_each_time() -> None:
    """The condition is around the region, so that only the warp that starts copies has instances of it."""
    body = f"setp.ne.u32 %p1, %r1, 0;\n@%p1 bra $skip;\n// @warplens B part\n{_BULK}// @warplens E part\n$skip:\n"
    assert counted(body)["moved_bytes"] == 2048


def test_copies_of_unknown_size_are_said_to_be_unknown() -> None:
    of_register = "ld.param.u32 %r8, [n];\n" + _BULK.replace("2048", "%r8")
    assert counted(of_register)["unknown_bytes"] == 1
    assert counted("mov.u32 %r8, 1024;\n" + _BULK.replace("2048", "%r8"))["moved_bytes"] == 1024
    store = "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd1, {%r1, %r2}], [%r9];\n"
    assert counted(store)["unknown_bytes"] == 1
    sized = "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r9], 512;\n"
    assert counted(sized)["moved_bytes"] == 512


def test_an_instance_runs_one_arm_of_a_branch() -> None:
    body = (
        "ld.param.u32 %r8, [n];\nsetp.eq.u32 %p1, %r8, 0;\n@%p1 bra $other;\n"
        f"{_LOAD}{_LOAD.replace('[%rd3]', '[%rd3+1024]')}bra $end;\n$other:\n{_LOAD}$end:\n"
    )
    counts = counted(body)
    assert (counts["loads"], counts["moved_bytes"], counts["instructions"]) == (2, 256, 6)
    predicated = f"ld.param.u32 %r8, [n];\nsetp.eq.u32 %p1, %r8, 0;\n@%p1 {_LOAD}@!%p1 {_LOAD}"
    assert counted(predicated)["loads"] == 1


def test_an_early_exit_inside_a_region_is_not_its_path() -> None:
    body = f"ld.param.u32 %r8, [n];\nsetp.lt.u32 %p1, %r4, %r8;\n@%p1 bra $go;\nret;\n$go:\n{_LOAD}"
    assert counted(body)["moved_bytes"] == 128


def test_code_that_stands_elsewhere_belongs_to_the_region_that_jumps_to_it() -> None:
    body = (
        f"// @warplens B part\nbra $away;\n$back:\n// @warplens E part\nbra $end;\n$away:\n{_LOAD}bra $back;\n$end:\n"
    )
    assert counted(body)["loads"] == 1


@pytest.mark.parametrize(
    ("start", "step", "test", "trips"),
    [
        ("mov.u32 %r8, 0;", 1, "setp.lt.u32 %p1, %r8, 16;", 16),
        ("mov.u32 %r8, 0;", 4, "setp.ne.u32 %p1, %r8, 64;", 16),
        ("mov.u32 %r8, 12;", -3, "setp.gt.s32 %p1, %r8, 0;", 4),
        ("mov.u32 %r8, %r1;", 256, "setp.lt.u32 %p1, %r8, 2048;", 8),
    ],
)
def test_loops_of_known_length_count_as_often_as_they_run(start: str, step: int, test: str, trips: int) -> None:
    loop = f"{start}\n$L:\n{_LOAD}add.s64 %rd3, %rd3, 1024;\nadd.s32 %r8, %r8, {step};\n{test}\n@%p1 bra $L;\n"
    counts = counted(loop)
    assert (counts["loads"], counts["moved_bytes"]) == (trips, 128 * trips)
    assert not {"repeats", "loops"} & set(counts)
    assert counts["fetch_bytes"] == 128, "each round waits for its load"


def test_a_loop_that_tests_first_counts_its_body() -> None:
    loop = (
        "mov.u32 %r8, 0;\n$L:\nsetp.ge.u32 %p1, %r8, 10;\n@%p1 bra $end;\n"
        f"{_LOAD}add.s32 %r8, %r8, 1;\nbra $L;\n$end:\n"
    )
    assert counted(loop)["loads"] == 10
    unknown = "ld.param.u32 %r7, [n];\n" + loop.replace("%r8, 10", "%r8, %r7")
    assert (counted(unknown)["loads"], counted(unknown)["repeats"]) == (1, 1)


def test_a_region_with_several_places_has_the_counts_of_one() -> None:
    """As after unrolling, or where a pipelined loop starts copies before it."""
    product = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1}, {%r2}, {%r2}, {%f1};\n"
    body = f"// @warplens B part\n{product}{_LOAD}// @warplens E part\n" * 4
    counts = counted(body)
    assert (counts["matrix"], counts["matrix_flops"], counts["loads"]) == (1, 2 * 16 * 8 * 16, 1)


def test_what_all_blocks_of_a_row_read_alike_is_known() -> None:
    start = _START.replace("%ctaid.x", "%ctaid.y") + "mov.u32 %r20, %ctaid.x;\n"
    assert counted(_LOAD, start)["moved_by_y"] == 128
    same = _START.replace("mov.u32 %r2, %ctaid.x;", "mov.u32 %r2, 3; mov.u32 %r20, %ctaid.x;")
    assert counted(_LOAD, same)["moved_by_"] == 128
    assert not any(name.startswith("moved_by_") for name in counted(_LOAD))


def test_loads_that_need_the_result_of_another_are_not_in_flight_together() -> None:
    chase = (
        "shl.b64 %rd4, %rd2, 1; add.s64 %rd4, %rd1, %rd4;\nld.global.u64 %rd5, [%rd4];\n"
        "ld.global.u64 %rd6, [%rd5];\nld.global.u64 %rd7, [%rd6];\n"
    )
    counts = counted(chase)
    assert counts["load_levels"] == 3
    assert counts["fetch_bytes"] == (32 * 8 + 2 * 32 * 32) / 3, "neighbours, then two sectors of each lane's own"


def test_only_lanes_that_are_active_conflict() -> None:
    access = "mov.u32 %r9, tile; shl.b32 %r8, %r1, 7; add.s32 %r7, %r9, %r8; ld.shared.f32 %f1, [%r7];\n"
    few = f"setp.gt.u32 %p1, %r1, 7;\n@%p1 bra $skip;\n{access}$skip:\n"
    assert counted(access)["ways"] == 32
    assert counted(few)["ways"] == 8


def test_blocks_with_short_rows_have_counts_of_their_own() -> None:
    """Rows of 16 threads, each row of them 4,096 bytes below the one before: a warp has two rows."""
    body = (
        "mov.u32 %r5, %tid.y; mul.lo.s32 %r6, %r5, 1024; add.s32 %r7, %r6, %r1; mul.wide.u32 %rd5, %r7, 4;\n"
        "add.s64 %rd6, %rd1, %rd5; ld.global.f32 %f1, [%rd6];\n"
        "mov.u32 %r9, tile; shl.b32 %r8, %r1, 7; add.s32 %r10, %r9, %r8; ld.shared.f32 %f1, [%r10];\n"
    )
    counts = counted(body)
    assert (counts["ways"], counts["ways@16"], counts["ways@8"]) == (32, 16, 8)


@pytest.mark.parametrize(
    ("step", "waste"),
    [("mov.u32 %r5, %r4;", 1), ("shl.b32 %r5, %r4, 5;", 8)],  # neighbours, or a line for each lane
)
def test_the_edge_of_an_image_leaves_lanes_as_far_apart_as_they_are(step: str, waste: float) -> None:
    clamp = f"{step} ld.param.u32 %r8, [n]; max.s32 %r6, %r5, 0; min.s32 %r7, %r6, %r8;\n"
    counts = counted(f"{clamp} mul.wide.s32 %rd5, %r7, 4; add.s64 %rd6, %rd1, %rd5; ld.global.f32 %f1, [%rd6];\n")
    assert "scattered" not in counts
    assert counts["load_waste"] == waste


def test_neighbours_that_are_kept_inside_an_image_have_mostly_the_same_bytes() -> None:
    """Two columns of a stencil: each load has an address of its own, and 33 words are surely moved at most."""
    loads = "".join(
        f"add.s32 %r{at}, %r4, {by}; max.s32 %r{at + 1}, %r{at}, 0; mul.wide.s32 %rd{at}, %r{at + 1}, 4; "
        f"add.s64 %rd{at + 1}, %rd1, %rd{at}; ld.global.f32 %f{at}, [%rd{at + 1}];\n"
        for at, by in ((6, -1), (8, 1))
    )
    counts = counted(loads)
    assert (counts["loads"], counts["moved_bytes"], counts["gathered_bytes"]) == (2, 256, 128)
    bound = "ld.param.u32 %r8, [n]; min.u32 %r5, %r2, %r8; add.s32 %r6, %r5, %r1; mul.wide.s32 %rd5, %r6, 4;"
    tile = f"{bound} add.s64 %rd6, %rd1, %rd5; ld.global.f32 %f1, [%rd6]; ld.global.f32 %f2, [%rd3];\n"
    assert "gathered_bytes" not in counted(tile), "the last block of a grid, the same for all lanes"


_TRY = "atom.global.cas.b32 %r5, [%rd1], 0, 1;"
_TOLD = "@%p1 st.shared.b32 [%r9], %r5; bar.sync 0; ld.shared.b32 %r5, [%r9];"


@pytest.mark.parametrize(
    ("body", "polls"),
    [
        (_TRY, 1),
        (f"bar.sync 0; @%p1 {_TRY} {_TOLD}", 1),  # one thread tries, and tells the block, as in Triton
        (f"ld.acquire.gpu.global.b32 %r5, [%rd1]; {_TOLD}", 1),
        ("ld.shared.b32 %r5, [%r9];", 0),
        (f"{_TRY} st.global.b32 [%rd3], %r5;", 0),
        (f"{_TRY} ld.global.f32 %f1, [%rd3];", 0),
    ],
)
def test_a_loop_that_tries_a_lock_polls_however_it_tells_the_block(body: str, polls: int) -> None:
    loop = f"$spin: {body} setp.ne.b32 %p2, %r5, 0; @%p2 bra $spin;\n"
    assert counted(loop).get("polls", 0) == polls


def test_a_region_inside_a_loop_that_polls_has_its_polls() -> None:
    """As automatic marks have it: a region around each try."""
    body = f"$spin:\n// @warplens B part\n{_TRY}\n// @warplens E part\nsetp.ne.b32 %p2, %r5, 0; @%p2 bra $spin;\n"
    assert counted(body)["polls"] == 1
