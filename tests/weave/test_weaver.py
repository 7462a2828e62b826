"""The weaver, run: woven PTX in the interpreter must leave exactly the records the marks ask for."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import numpy as np
import pytest

from tests.support.looped_ptx import HEAD, KERNEL, POLICIES
from tests.support.woven_launch import launch
from warplens import simulate
from warplens.auto.ptx import mark_ptx
from warplens.auto.ptx.value_arrival import arrived
from warplens.auto.rules import Auto
from warplens.decode import decode
from warplens.errors import UsageError, WarplensError
from warplens.ptx.operands import written_by
from warplens.ptx.syntax import PtxError
from warplens.ptx.tree import Label, parse
from warplens.record.capture import Capture, Launch
from warplens.record.layout import HEADER, HEADER_BYTES, Kind, split_word0, track_stride
from warplens.weave.calls import with_parameter
from warplens.weave.track_ptx import ZERO
from warplens.weave.weaver import weave
from warplens.weave.weaving import ParamBuffer, Selection, SymbolBuffer, Weaving, capacity_of, select_blocks, shift_for


def expected(block: int, warp: int, steps: int, early: bool) -> list[tuple[Any, ...]]:
    """What lane 0 of a warp records."""
    found: list[tuple[Any, ...]] = [(Kind.BEGIN, "all", 0, None), (Kind.VALUE, "thread", 0, 32 * warp)]
    if early:
        return found
    for step in range(steps):
        found += [
            (Kind.BEGIN, "load it", 0, None), (Kind.END, "load it", 0, None), (Kind.BEGIN, "dot", 0, None),
            (Kind.INSTANT, "tick", 0, None), (Kind.ASYNC_BEGIN, "copy", step & 3, None),
            (Kind.ASYNC_END, "copy", 1, None), (Kind.END, "dot", 0, None),
        ]  # fmt: skip
    return [*found, (Kind.INSTANT, "odd", 0, None) if block == 1 else (Kind.END, "all", 0, None)]


@pytest.mark.parametrize(("store", "keep", "pin", "pair", "fuse"), [
    *[(store, 4, True, True, True) for store in POLICIES],
    *[(store, 0, False, False, False) for store in POLICIES],
])  # fmt: skip
@pytest.mark.parametrize("full", ["stop", "ring"])
def test_every_policy_leaves_the_same_records(
    full: str, store: str, keep: int, pin: bool, pair: bool, fuse: bool
) -> None:
    how = Weaving(full=full, store=store, keep=keep, pin=pin, pair=pair, fuse=fuse, lean=not fuse)
    woven = weave(KERNEL, how=how)
    plain = simulate.GlobalMemory()
    result = plain.alloc(3 * 64 * 4)
    simulate.run(KERNEL, "work", 3, 64, [result, 5, 32, 0], memory=plain)
    tracks, out, _ = launch(woven, "work", 3, 64, ["OUT", 5, 32, "BUFFER"], out=3 * 64)
    np.testing.assert_array_equal(out, plain.read(result, np.int32, 3 * 64))
    assert len(tracks) == 6
    for number, (header, records) in enumerate(tracks):
        block, warp = divmod(number, 2)
        assert (header["block"], header["warp"], header["lane"], header["state"]) == (block, warp, 0, 1)
        assert [record[:4] for record in records] == expected(block, warp, 5, early=number == 0)
        start = int(header["start_clock"])
        clocks = [0, *[(record[4] - start) % 2**32 for record in records], int(header["exit_clock"]) - start]
        assert clocks == sorted(clocks)
        assert header["start_ns"] <= header["exit_ns"]


# Every block leaves an even number of records; the last two differ from block to block, share a clock or have a tag.
EVEN = (
    HEAD
    + """\
.visible .entry even(.param .u32 steps, .param .u64 scratch)
{
	.reg .pred %p<2>; .reg .b32 %r<6>;
	ld.param.u32 %r1, [steps];
	mov.u32 %r2, 0;
	// @warplens B all
	add.u32 %r3, %r1, 1;
	// @warplens I first
	setp.eq.u32 %p1, %r1, 0;
	@%p1 bra $done;
$loop:
	// @warplens B load
	mad.lo.s32 %r3, %r2, 3, %r3;
	// @warplens E load
	// @warplens B dot
	and.b32 %r4, %r2, 3;
	// @warplens A copy %r4
	// @warplens Z copy 1
	add.s32 %r2, %r2, 1;
	// @warplens E dot
	setp.lt.u32 %p1, %r2, %r1;
	@%p1 bra $loop;
$done:
	// @warplens E all
	// @warplens I last
	ret;
}
"""
)


@pytest.mark.parametrize("store", ["now", "end", "defer"])
@pytest.mark.parametrize("lead", range(4))
def test_two_records_that_wait_together_are_kept_or_lost_together(store: str, lead: int) -> None:
    """Also at the end of a full track, wherever in a block that is."""
    more = "\t// @warplens I a\n\t// @warplens I b\n" * lead
    woven = weave(EVEN.replace("\t// @warplens B all\n", f"{more}\t// @warplens B all\n"), how=Weaving(store=store))
    assert ("%wl_pb, %wl_pw, %wl_pc}" in woven.text) == (store == "defer"), "one store of both"
    for steps in (0, 1, 2, *range(4, 10)):
        names = ["a", "b"] * lead + ["all", "first"] + ["load", "load", "dot", "copy", "copy", "dot"] * steps
        ((header, records),) = launch(woven, "even", 1, 32, [steps, "BUFFER"], slots=8)[0]
        assert header["written"] == len(names) + 2
        capacity = capacity_of(shift_for(8, "stop", woven.slack), "stop", woven.slack)
        assert [record[1] for record in records] == [*names, "all", "last"][:capacity]
        tags = [record[2] for record in records if record[0] is Kind.ASYNC_BEGIN]
        assert tags == [step & 3 for step in range(len(tags))]
        clocks = [(record[4] - int(header["start_clock"])) % 2**32 for record in records]
        assert clocks == sorted(clocks)
        assert not records or clocks[-1] <= int(header["exit_clock"]) - int(header["start_clock"])


# In a row of regions, one clock read ends a region and begins the next.
ROW = (
    HEAD
    + """\
.visible .entry row(.param .u64 scratch)
.reqntid 32, 1, 1
{
	.reg .b32 %r<9>;
	mov.u32 %r1, %laneid;
	// @warplens I start
	add.u32 %r2, %r1, 1;
	// @warplens B a
	add.u32 %r3, %r2, 1;
	// @warplens E a
	// @warplens B b
	add.u32 %r4, %r3, 1;
	// @warplens E b
	// @warplens B c
	add.u32 %r5, %r4, 1;
	// @warplens E c
	add.u32 %r6, %r5, 1;
	// @warplens I done
	ret;
}
"""
)


@pytest.mark.parametrize("full", ["stop", "ring"])
def test_records_of_one_clock_read_go_out_in_one_store(full: str) -> None:
    paired, single = (weave(ROW, how=Weaving(full=full, store="late", pair=pair)) for pair in (True, False))
    assert single.text.count("st.global.v2.b32") - paired.text.count("st.global.v2.b32") == 2 * 2
    assert paired.text.count("st.global.v4.b32") - single.text.count("st.global.v4.b32") == 2
    seen = [launch(woven, "row", 1, 32, ["BUFFER"])[0] for woven in (paired, single)]
    names = [[record[:3] for _, records in tracks for record in records] for tracks in seen]
    assert names[0] == names[1]
    assert len(names[0]) == 8


# Whole warps leave early, and every value a mark reads is the same in all lanes: all of its blocks can be spread.
UNIFORM = KERNEL.replace("setp.lt.u32 %p1, %r6, %r2", "setp.lt.u32 %p1, %r4, %r2").replace("s32 %r3\n", "s32 %r4\n")


def test_records_wait_in_the_lanes_of_a_whole_warp_and_go_out_in_one_store() -> None:
    now, spread = (weave(UNIFORM, how=Weaving(store=store, aligned=True)) for store in ("now", "spread"))
    marks = UNIFORM.count("@warplens")
    assert spread.text.count("st.global.v2.b32") == now.text.count("st.global.v2.b32") - marks + 4
    seen = []
    for woven in (now, spread):
        tracks, out, _ = launch(woven, "work", 3, 64, ["OUT", 5, 1, "BUFFER"], out=3 * 64)
        seen.append(([[record[:4] for record in records] for _, records in tracks], out.tolist()))
    assert seen[0] == seen[1]
    for number, records in enumerate(seen[1][0]):
        block = number // 2
        whole = expected(block, 0, 5, early=block < 1)
        assert records == [whole[0], (Kind.VALUE, "thread", 0, block), *whole[2:]]


# Only the first two lanes, or all but those, pass the marks of `few`: their state must not run ahead of the others'.
MIXED = (
    HEAD
    + """\
.visible .entry mixed(.param .u64 scratch)
.reqntid 64, 1, 1
{
	.reg .pred %p<2>; .reg .b32 %r<5>;
	mov.u32 %r1, %laneid;
	// @warplens B all
	setp.ge.u32 %p1, %r1, 2;
	@%p1 bra $meet;
	// @warplens B few
	add.u32 %r3, %r1, 1;
	// @warplens E few
$meet:
	// @warplens B rest
	add.u32 %r4, %r1, 1;
	// @warplens E rest
	// @warplens I tick
	add.u32 %r4, %r1, 2;
	// @warplens E all
	ret;
}
"""
)


@pytest.mark.parametrize("few", ["ge", "lt"])
def test_marks_that_some_lanes_pass_by_leave_the_later_ones_in_order(few: str) -> None:
    woven = weave(MIXED.replace("ge.u32", f"{few}.u32"), how=Weaving(store="spread"))
    names = ["all", *(["few", "few"] if few == "ge" else []), "rest", "rest", "tick", "all"]
    for header, records in launch(woven, "mixed", 1, 64, ["BUFFER"])[0]:
        assert header["written"] == len(names)
        assert [record[1] for record in records] == names


@pytest.mark.parametrize("clock", ["32", "64"])
@pytest.mark.parametrize("store", POLICIES)
def test_an_anchor_ties_the_clock_to_the_global_timer(store: str, clock: str) -> None:
    text = UNIFORM.replace("\tadd.s32 %r7, %r7, 1;", "\t// @warplens T\n\tadd.s32 %r7, %r7, 1;")
    woven = weave(text, how=Weaving(store=store, clock=clock, aligned=True))
    tracks, _, _ = launch(woven, "work", 1, 64, ["OUT", 6, 0, "BUFFER"], out=64, parse=False)
    for header, words in tracks:
        at = [n for n, word in enumerate(words) if word & 0xFFFFFFFF == int(Kind.ANCHOR)]
        assert len(at) == 6
        times = [int(header["start_ns"]), *[words[n - 1] for n in at], int(header["exit_ns"])]
        clocks = [(words[n] >> 32) - int(header["start_clock"]) & 0xFFFFFFFF for n in at]
        assert times == sorted(times)
        assert clocks == sorted(set(clocks))


@pytest.mark.parametrize("slots", range(8, 17))
def test_a_spread_store_ends_where_the_track_ends(slots: int) -> None:
    woven = weave(UNIFORM, how=Weaving(store="spread", aligned=True))
    tracks, _, _ = launch(woven, "work", 2, 64, ["OUT", 40, 0, "BUFFER"], slots=slots, out=128)
    for header, records in tracks:
        whole = expected(int(header["block"]), 0, 40, early=False)
        assert header["written"] == len(whole) + 1
        assert [record[0] for record in records] == [record[0] for record in whole[: len(records)]]


def test_one_kernel_that_splits_its_warps_leaves_the_others_of_its_module_spread() -> None:
    splits = UNIFORM[len(HEAD) :].replace("work(", "splits(").replace("%p1, %r4, %r2", "%p1, %r3, %r2")
    woven = weave(
        UNIFORM + splits.replace("$loop", "$again").replace("$done", "$end"), how=Weaving(store="spread", aligned=True)
    )
    assert woven.stores == {"work": "spread", "splits": "defer"}
    tracks, _, _ = launch(woven, "splits", 1, 64, ["OUT", 5, 20, "BUFFER"], out=64)
    assert [len(records) for _, records in tracks] == [2, 2 + 5 * 7 + 1]


def test_a_partial_warp_or_an_unknown_block_size_is_not_spread() -> None:
    for text, aligned in ((UNIFORM, False), (UNIFORM.replace("scratch)\n", "scratch)\n.reqntid 48, 1, 1\n"), False)):
        assert weave(text, how=Weaving(store="spread", aligned=aligned)).stores["work"] != "spread"
    text = UNIFORM.replace("scratch)\n", "scratch)\n.reqntid 64, 1, 1\n")
    assert weave(text, how=Weaving(store="spread")).stores["work"] == "spread"


@pytest.mark.parametrize("store", POLICIES)
@pytest.mark.parametrize("lean", [False, True])
@pytest.mark.parametrize("steps", [1, 7, 8, 9, 60])
def test_a_full_track_keeps_the_first_counts_the_rest_and_stays_inside(store: str, steps: int, lean: bool) -> None:
    woven = weave(KERNEL, how=Weaving(store=store, lean=lean))
    tracks, _, _ = launch(woven, "work", 2, 32, ["OUT", steps, 0, "BUFFER"], slots=8, out=64)
    shift = shift_for(8, "stop", woven.slack)
    for number, (header, records) in enumerate(tracks):
        whole = expected(number, 0, steps, early=False)
        assert header["written"] == len(whole) + 1
        kept = whole[: len(records)]
        assert [record[:4] for record in records] == kept
        assert len(records) >= min(len(whole), capacity_of(shift, "stop", woven.slack)) - 1


@pytest.mark.parametrize("store", ["now", "late", "end", "defer", "spread"])
def test_a_payload_cut_off_from_its_record_at_the_end_of_a_full_track_is_no_record(store: str) -> None:
    """Its words may look like one: 9 would be the begin of region 1, at clock 0."""
    loop = "mov.u32 %r4, 9;\n$x:\n// @warplens B step\n// @warplens V step u32 %r4\nadd.u32 %r4, %r4, 0;\n"
    loop += "// @warplens E step\nadd.u32 %r1, %r1, 1;\nsetp.lt.u32 %p1, %r1, 60;\n@%p1 bra $x;\n"
    text = UNIFORM[: UNIFORM.index("\t// @warplens B all")] + loop + "ret;\n}\n"
    for steps in range(4):
        body = "// @warplens I tick\nadd.u32 %r5, %r5, 1;\n" * steps
        woven = weave(text.replace("mov.u32 %r4, 9;", body + "mov.u32 %r4, 9;"), how=Weaving(store=store, aligned=True))
        shift = shift_for(8, "stop", woven.slack)
        capacity, stride = capacity_of(shift, "stop", woven.slack), 1 << shift
        memory = simulate.GlobalMemory()
        base = memory.alloc(stride, align=stride)
        simulate.run(woven.text, "work", 1, 32, [base, 0, 0, base | shift], memory=memory)
        raw = memory.read(base, np.uint8, stride)[: track_stride(capacity)]
        trace = decode(Capture([Launch("work", (1, 1, 1), (32, 1, 1), woven.regions, capacity, raw.copy())]))
        found = trace.spans.select(["region", "kind"]).to_pylist()
        assert {(row["region"], row["kind"]) for row in found} <= {
            ("step", "span"), ("step", "value"), ("tick", "instant")
        }  # fmt: skip
        assert [row["kind"] for row in found].count("instant") == steps
        assert max(trace.spans["dur_cycles"].to_pylist()) < 1 << 20


def test_a_ring_keeps_the_latest() -> None:
    woven = weave(KERNEL, how=Weaving(full="ring"))
    tracks, _, _ = launch(woven, "work", 1, 32, ["OUT", 60, 0, "BUFFER"], slots=32, out=32)
    (header, records) = tracks[0]
    whole = expected(0, 0, 60, early=False)
    assert header["written"] == len(whole) + 1
    assert [record[:4] for record in records] == whole[-32:]


def test_a_ring_keeps_the_latest_of_records_that_share_a_store() -> None:
    """Wherever the ring begins again, in a block of marks or between two."""
    woven = weave(EVEN, how=Weaving(full="ring", store="end"))
    assert woven.text.count("st.global.v4.b32") > 3
    for steps in range(12):
        names = ["all", "first"] + ["load", "load", "dot", "copy", "copy", "dot"] * steps + ["all", "last"]
        ((header, records),) = launch(woven, "even", 1, 32, [steps, "BUFFER"], slots=32)[0]
        assert header["written"] == len(names)
        assert [record[1] for record in records] == names[-32:]
        clocks = [(record[4] - int(header["start_clock"])) % 2**32 for record in records]
        assert clocks == sorted(clocks)


DIES = HEAD + """\
.visible .entry dies(.param .u64 scratch)
{
	.reg .b32 %r<4>;
	.reg .b64 %rd<2>;
	mov.u64 %rd1, 1;
	// @warplens B one
	mov.u32 %r1, %tid.x;
	// @warplens B two
	ld.global.u32 %r2, [%rd1];
	// @warplens E two
	ret;
}
"""  # fmt: skip


@pytest.mark.parametrize(("store", "kept"), [("now", 2), ("defer", 0)])
def test_of_a_kernel_that_dies_only_what_was_stored_is_left(store: str, kept: int) -> None:
    """`now` leaves every record up to the fault; what other policies still hold in registers dies with the kernel."""
    woven = weave(DIES, how=Weaving(store=store))
    memory = simulate.GlobalMemory()
    shift = shift_for(8, "stop", woven.slack)
    base = memory.alloc(1 << shift, align=1 << shift)
    with pytest.raises(WarplensError, match="address 0x1"):
        simulate.run(woven.text, "dies", 1, 32, [base | shift], memory=memory)
    row = memory.read(base, np.uint8, 1 << shift)
    assert row[:HEADER_BYTES].view(HEADER)[0]["state"] == 0, "the exit was not reached"
    words = row[HEADER_BYTES:].view(np.uint64)
    found = [split_word0(int(word) & 0xFFFFFFFF) for word in words[words != 0]]
    assert [(kind, woven.regions[region]) for kind, region, _ in found] == [
        (Kind.BEGIN, "one"), (Kind.BEGIN, "two")
    ][:kept]  # fmt: skip


@pytest.mark.parametrize("pointer", [0, 4096])
def test_without_a_buffer_of_ours_nothing_is_written(pointer: int) -> None:
    woven = weave(KERNEL)
    memory = simulate.GlobalMemory()
    result = memory.alloc(64 * 4)
    scratch = memory.alloc(1 << 16) if pointer else 0
    simulate.run(woven.text, "work", 1, 64, [result, 3, 0, scratch], memory=memory)
    if pointer:
        assert not memory.read(scratch, np.uint8, 1 << 16).any()


CUBES = HEAD + """\
.visible .entry cubes(.param .u64 scratch)
{
	.reg .b32 %r<4>;
	mov.u32 %r1, %ctaid.y;
	// @warplens V y u32 %r1
	mov.u32 %r2, %ctaid.z;
	// @warplens V z u32 %r2
	ret;
}
"""  # fmt: skip


def test_three_dimensional_grids_and_blocks() -> None:
    grid, block = (2, 3, 2), (8, 3, 4)
    tracks, _, _ = launch(weave(CUBES), "cubes", grid, block, ["BUFFER"])
    found = {(int(h["block"]), int(h["warp"])): [r[3] for r in records] for h, records in tracks}
    assert found == {
        (x + 2 * (y + 3 * z), warp): [y, z]
        for x, y, z, warp in itertools.product(range(2), range(3), range(2), range(3))
    }


@pytest.mark.parametrize(
    ("select", "blocks", "warps"),
    [
        (Selection(warps=(2, 0)), range(12), (0, 2)),
        (Selection(granularity="block"), range(12), (0,)),
        (Selection(blocks=(1, 9, 3)), (1, 4, 7), (0, 1, 2)),
        (Selection(blocks=(10, 99, 1), warps=(1,)), (10, 11), (1,)),
    ],
)
@pytest.mark.parametrize("lean", [False, True])
def test_selected_tracks_only(select: Selection, blocks: Any, warps: Any, lean: bool) -> None:
    woven = weave(CUBES, how=Weaving(select=select, lean=lean))
    tracks, _, _ = launch(woven, "cubes", (2, 3, 2), (8, 3, 4), ["BUFFER"], select=select)
    assert [(int(h["block"]), int(h["warp"])) for h, _ in tracks] == list(itertools.product(blocks, warps))
    assert all(len(records) == 2 for _, records in tracks)


FUNCTIONS = HEAD + """\
.func (.param .b32 result) leaf(.param .b32 x);
.func empty()
{
	ret;
}
.func (.param .b32 result) leaf(.param .b32 x)
{
	.reg .b32 %r<4>;
	.reg .pred %p1;
	ld.param.b32 %r1, [x];
	// @warplens B leaf
	add.s32 %r2, %r1, 5;
	// @warplens E leaf
	st.param.b32 [result], %r2;
	setp.gt.s32 %p1, %r2, 100;
	@%p1 ret;
	// @warplens I small
	ret;
}
.func middle()
{
	.reg .b32 %r<4>;
	{
	.param .b32 a; .param .b32 b;
	st.param.b32 [a], 1;
	call.uni (b), leaf, (a);
	ld.param.b32 %r1, [b];
	}
	call.uni empty;
	ret;
}
.visible .entry caller(.param .u64 out)
{
	.reg .b32 %r<8>;
	.reg .b64 %rd<3>;
	.reg .pred %p<2>;
	mov.u32 %r1, %tid.x;
	mov.u32 %r4, 0;
	// @warplens B outer
	{
	.param .b32 a; .param .b32 b;
	st.param.b32 [a], 200;
	call.uni (b), leaf, (a);
	ld.param.b32 %r2, [b];
	}
	// @warplens I between
	call.uni middle;
	// @warplens E outer
	ld.param.u64 %rd1, [out];
	mul.wide.u32 %rd2, %r1, 4;
	add.s64 %rd1, %rd1, %rd2;
	st.global.u32 [%rd1], %r2;
	ret;
}
.visible .entry unmarked(.param .u64 out)
{
	ret;
}
"""  # fmt: skip


@pytest.mark.parametrize("store", POLICIES)
@pytest.mark.parametrize("slots", [256, 4])
def test_marks_in_functions_that_are_not_inlined(store: str, slots: int) -> None:
    woven = weave(FUNCTIONS, buffer=SymbolBuffer(), how=Weaving(store=store, lean=store == "now"))
    assert woven.entries == {"caller": 6}
    tracks, out, _ = launch(woven, "caller", 2, 64, ["OUT"], out=64, slots=slots)
    assert (out == 205).all()
    marks = [("B", "outer"), ("B", "leaf"), ("E", "leaf"), ("I", "between"), ("B", "leaf"), ("E", "leaf"),
             ("I", "small"), ("E", "outer")]  # fmt: skip
    for header, records in tracks:
        assert header["written"] == len(marks)
        found = [(record[0].name[0], record[1]) for record in records]
        assert found == marks[: len(found)]
        assert len(found) >= min(slots, len(marks))


@pytest.mark.parametrize("full", ["stop", "ring"])
def test_a_mark_that_waits_for_a_value_may_stand_in_a_function(full: str) -> None:
    """It adds the value times zero to the records' pointer: a zero that nobody has set would lead the store astray."""
    text = FUNCTIONS.replace("// @warplens E leaf", f"{arrived('%r1', 4)}\n\t// @warplens E leaf")
    woven = weave(text, buffer=SymbolBuffer(), how=Weaving(full=full))
    for function in parse(woven.text).functions:
        uses = [instruction for instruction in function.instructions() if ZERO in instruction.arguments]
        assert not uses or ZERO in written_by(uses[0]), function.name
    tracks, out, _ = launch(woven, "caller", 2, 64, ["OUT"], out=64)
    assert (out == 205).all()
    assert [len(records) for _, records in tracks] == [8] * 4


@pytest.mark.parametrize("buffer", [SymbolBuffer(), ParamBuffer(1)])
@pytest.mark.parametrize("full", ["stop", "ring"])
def test_a_thread_that_ends_inside_a_function_still_closes_its_track(full: str, buffer: Any) -> None:
    text = FUNCTIONS.replace("	@%p1 ret;", "	@%p1 exit;").replace(
        "caller(.param .u64 out)", "caller(.param .u64 out, .param .u64 wl)"
    )
    woven = weave(text, buffer=buffer, how=Weaving(full=full))
    args = ["OUT", "BUFFER" if isinstance(buffer, ParamBuffer) else 0]
    tracks, out, _ = launch(woven, "caller", 1, 32, args, out=32)
    assert not out.any(), "every thread left inside the first call"
    header, records = tracks[0]
    assert [record[1] for record in records] == ["outer", "leaf", "leaf"]
    assert (header["written"], header["state"]) == (3, 1)


@pytest.mark.parametrize("value", ["leaf", "{0, generic(leaf), 0}"])
def test_a_table_of_functions_with_a_marked_one_is_refused_by_line(value: str) -> None:
    """Of function pointers, or of virtual functions: a call through it would not pass the track's state."""
    at = FUNCTIONS.index(".visible .entry caller")
    table = f".global .align 8 .u64 table{'[3]' if '{' in value else ''} = {value};\n"
    with pytest.raises(PtxError, match=r"line \d+.*address of leaf, which contains marks, is taken.*table"):
        weave(FUNCTIONS[:at] + table + FUNCTIONS[at:], buffer=SymbolBuffer())
    weave(FUNCTIONS[:at] + table.replace("leaf", "other") + FUNCTIONS[at:], buffer=SymbolBuffer())


def test_taking_a_marked_functions_address_is_refused_by_line() -> None:
    text = FUNCTIONS.replace("	mov.u32 %r4, 0;", "	mov.u64 %rd2, leaf;")
    with pytest.raises(PtxError, match=r"line 41 in caller.*address of leaf"):
        weave(text, buffer=SymbolBuffer())


@pytest.mark.parametrize("text", [".visible .entry entry()\n{ ret; }", ".entry entry\n{ ret; }"])
def test_a_kernel_may_be_called_as_a_word_of_the_language(text: str) -> None:
    (function,) = parse(HEAD + text).entries
    function.header = with_parameter(function, ".param .u64 more")
    assert [param.name for param in parse(HEAD + function.text()).entries[0].params] == ["more"]


ENDLESS = (
    HEAD
    + """\
.visible .entry open_end(.param .u64 out, .param .u64 scratch)
{
	.reg .pred %p<2>; .reg .b32 %r<2>; .reg .b64 %rd<2>;
	ld.param.u64 %rd1, [out];
	mov.u32 %r1, %tid.x;
	setp.lt.u32 %p1, %r1, 32;
	@%p1 bra $done;
	st.global.u32 [%rd1], %r1;
$done:
	// @warplens I end
}
"""
)


def test_the_last_return_may_be_left_away() -> None:
    tracks, out, _ = launch(weave(ENDLESS), "open_end", 1, 64, ["OUT", "BUFFER"], out=1)
    assert [(int(header["state"]), [record[1] for record in records]) for header, records in tracks] == [
        (1, ["end"])
    ] * 2
    assert 32 <= out[0] < 64
    plain = ENDLESS.replace("// @warplens I end", "").replace("$done:", "").replace("@%p1 bra $done;", "")
    marked = mark_ptx(plain, Auto.of("stores,lines"))
    tracks, _, _ = launch(weave(marked.text), "open_end", 1, 64, ["OUT", "BUFFER"], out=1)
    assert all(header["state"] == 1 and len(records) == 2 for header, records in tracks)


def test_lanes_may_leave_twice_on_one_line() -> None:
    text = weave(KERNEL.replace("@%p1 ret;", "@%p1 ret; @%p2 exit;")).text
    labels = [node.name for node in parse(text).entries[0].walk() if isinstance(node, Label)]
    assert len(labels) == len(set(labels)) == 4


@pytest.mark.parametrize("end", ["\r\n", "\n\n"])
def test_line_ends_do_not_matter(end: str) -> None:
    plain, other = weave(KERNEL), weave(KERNEL.replace("\n", end))
    assert other.regions == plain.regions
    assert launch(other, "work", 2, 64, ["OUT", 5, 32, "BUFFER"], out=128)[1].any()


@pytest.mark.parametrize("buffer", [ParamBuffer(), SymbolBuffer()])
def test_weaving_twice_changes_nothing(buffer: Any) -> None:
    once = weave(KERNEL, buffer=buffer)
    assert weave(once.text, buffer=buffer) == once
    assert weave(once.text, buffer=buffer, how=Weaving(full="ring")) == once


def test_text_without_marks_is_untouched() -> None:
    text = KERNEL.replace("@warplens", "@other")
    assert weave(text).text == text
    assert weave(text).entries == {}


def test_ids_are_dense_from_one_and_locations_follow_loc() -> None:
    text = (
        KERNEL.replace("	// @warplens B dot", "	.loc 1 42 7\n	// @warplens B dot")
        + '.file 1 "kernels/my.py"\n'
    )
    woven = weave(text)
    assert sorted(woven.regions) == list(range(1, 8))
    assert woven.locations[next(k for k, v in woven.regions.items() if v == "dot")] == "kernels/my.py:42"


@pytest.mark.parametrize(
    ("mark", "problem"),
    [
        ("Q name", "unknown mark"),
        ("B", "unknown mark"),
        ("V x s16 %r1", "unknown value type"),
        ("A x 32", "too large"),
        ("V x s32 {%r1}", "not a register"),
    ],
)
def test_a_bad_mark_is_named_by_its_line(mark: str, problem: str) -> None:
    with pytest.raises(PtxError, match=rf"line 15: .*{problem}"):
        weave(KERNEL.replace("B all", mark))


def test_options_refuse_what_does_not_go_together() -> None:
    with pytest.raises(UsageError, match="cannot be combined"):
        Selection(warps=(1,), granularity="block")
    with pytest.raises(UsageError, match="list 1 to 64 blocks"):
        Selection(**select_blocks([*range(0, 300, 2), 301]))
    assert select_blocks([1, 2, 5]) == {"listed": (1, 2, 5)}
    assert select_blocks([3, 5, 7]) == {"blocks": (3, 8, 2)}
    assert select_blocks(4) == {"blocks": (0, 4, 1)}
    assert select_blocks(slice(2, None)) == {"blocks": (2, (1 << 31) - 1, 1)}


def test_every_block_barrier_of_a_marked_kernel_holds_the_warp_before_the_next_clock_read() -> None:
    """A GPU issues a clock read behind `bar.sync` before the barrier takes effect, unless a warp barrier follows it."""
    text = (
        HEAD
        + """\
.visible .entry work(.param .u64 scratch)
{
	.reg .pred %p<2>;
	.reg .b32 %r<2>;
	mov.u32 %r1, %tid.x;
	setp.gt.u32 %p1, %r1, 31;
	// @warplens B wait
	bar.sync 0;
	// @warplens E wait
	@!%p1 bar.sync 1, 64;
	@!%p1 bar.arrive 2, 64;
	barrier.sync.aligned 0;
	barrier.sync 0;
	@%p1 barrier.sync 3, 64;
	bar.warp.sync -1;
	// @warplens I end
	ret;
}
"""
    )
    lines = [line.strip() for line in weave(text).text.splitlines()]
    behind = {line: lines[n + 1] for n, line in enumerate(lines) if line.lstrip("@!%p1 ").startswith("bar")}
    whole = "bar.warp.sync 0xffffffff;"
    assert behind["bar.sync 0;"] == whole
    assert behind["@!%p1 bar.sync 1, 64;"] == "@!%p1 " + whole
    assert behind["barrier.sync.aligned 0;"] == whole
    assert behind["@!%p1 bar.arrive 2, 64;"] == "barrier.sync.aligned 0;"
    assert behind["barrier.sync 0;"].startswith("activemask.b32 ")
    # Lanes that do not come to the barrier must not be waited for.
    assert behind["@%p1 barrier.sync 3, 64;"].startswith("@%p1 activemask.b32 ")
    assert not behind["bar.warp.sync -1;"].startswith("bar")


@pytest.mark.parametrize(("store", "marks"), [("auto", 0), ("spread", 0), ("spread", 20)])
def test_a_full_track_may_end_at_a_four_gib_line(store: str, marks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions are 32-bit words: in the last track below the line their end is zero, also where a store takes many of
    the lanes and the last of them look far beyond it."""
    many = "".join(f"\tadd.s32 %r8, %r8, {number};\n\t// @warplens I many\n" for number in range(marks))
    text = UNIFORM.replace("\t// @warplens I tick\n", f"\t// @warplens I tick\n{many}")
    woven = weave(text, how=Weaving(store=store, aligned=True))
    stride, line = 1 << shift_for(8, "stop", woven.slack), 8 << 32
    users = [module for name, module in sys.modules.items() if name.startswith("warplens.simulate")]
    first = 0
    for below in (0, 1, 2, 3, 4):
        for module in users:
            if hasattr(module, "GLOBAL_BASE"):
                monkeypatch.setattr(module, "GLOBAL_BASE", line - first - below * stride)
        tracks, _, memory = launch(woven, "work", 2, 64, ["OUT", 40, 0, "BUFFER"], slots=8, out=128)
        assert not below or memory._starts[2] + below * stride == line
        first = first or memory._starts[2] - line
        for header, records in tracks:
            whole = expected(int(header["block"]), 0, 40, early=False)
            assert header["written"] == len(whole) + 1 + 40 * marks
            kinds = [record[0] for record in records if record[1] != "many"]
            assert kinds == [record[0] for record in whole[: len(kinds)]]
