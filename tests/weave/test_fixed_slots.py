"""Kernels that hold no register between two marks, and those of which only the lives of the warps are recorded."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.support.woven_launch import launch
from warplens import simulate
from warplens.ptx.operands import read_by, written_by
from warplens.ptx.syntax import PtxError
from warplens.ptx.tree import parse
from warplens.record.layout import TRACK_MAGIC, Kind, TrackState
from warplens.weave.fixed_slots import MAX_FIXED_SLOTS, fits_fixed
from warplens.weave.weaver import Woven, weave
from warplens.weave.weaving import ParamBuffer, Selection, Weaving

HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 buffer) {
	.reg .pred %p<4>; .reg .b32 %r<9>; .reg .b64 %rd<9>;
	ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x;
"""
LOOP = """	mov.u32 %r3, 0;
$L_loop:
	add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, 5;
	@%p1 bra $L_loop;
"""
STORE = """	mad.lo.u32 %r4, %r2, 64, %r1; mul.wide.u32 %rd2, %r4, 4; add.s64 %rd3, %rd1, %rd2;
	st.global.u32 [%rd3], %r3;
"""
END = "	ret;\n}\n"
FIXED = Weaving(fixed=True)


def mark(letter: str, name: str) -> str:
    return f"	// @warplens {letter} {name}\n"


def wrapped(name: str, code: str) -> str:
    return mark("B", name) + code + mark("E", name)


def run(woven: Woven, grid: int = 3, **options: object) -> tuple[list, list[int]]:
    tracks, out, _ = launch(woven, "k", grid, 64, ["OUT", "BUFFER"], out=grid * 64, **options)  # type: ignore[arg-type]
    return tracks, out.tolist()


def test_the_life_of_every_warp_of_a_kernel_without_marks_is_recorded() -> None:
    woven = weave(HEAD + LOOP + STORE + END, lives=["k"])
    assert woven.regions == {}
    assert woven.entries == {"k": 0}
    tracks, out = run(woven)
    assert out == [5] * 192, "the kernel does what it did"
    assert [(header["block"], header["warp"]) for header, _ in tracks] == [(b, w) for b in range(3) for w in range(2)]
    for header, records in tracks:
        assert (header["magic"], header["state"], header["written"]) == (TRACK_MAGIC, TrackState.EXITED, 0)
        assert header["exit_clock"] > header["start_clock"]
        assert header["exit_ns"] >= header["start_ns"] > 0
        assert records == []


@pytest.mark.parametrize("recorded", [True, False])
def test_a_kernel_in_a_graph_finds_its_slots_by_a_cell(recorded: bool) -> None:
    text = HEAD + wrapped("loop", LOOP) + STORE + END
    direct, _ = run(weave(text, how=FIXED))
    woven = weave(text, how=FIXED, buffer=ParamBuffer(-1, indirect=True))
    found, out, _ = launch(woven, "k", 3, 64, ["OUT", "CELL"], out=192, recorded=recorded)
    assert out.tolist() == [5] * 192
    if recorded:
        assert [[record[:4] for record in records] for _, records in found] == [
            [record[:4] for record in records] for _, records in direct
        ]
        assert all(header["state"] == TrackState.EXITED and header["written"] == 2 for header, _ in found)
    else:
        assert not any(header["magic"] or header["written"] or records for header, records in found)


def test_only_the_named_kernels_are_woven() -> None:
    other = HEAD + LOOP + STORE + END
    text = other + other.partition(".address_size 64\n")[2].replace("entry k", "entry other").replace("$L_loop", "$L_2")
    woven = weave(text, lives=["k"])
    assert list(woven.entries) == ["k"]
    assert "%wl_" not in woven.text.partition("entry other")[2]
    assert weave(woven.text) == woven, "woven text stays as it is"


@pytest.mark.parametrize(
    "select", [Selection(), Selection(warps=(1,)), Selection(blocks=(0, 4, 2)), Selection(listed=(2,))]
)
def test_lives_are_recorded_of_the_selected_warps(select: Selection) -> None:
    woven = weave(HEAD + LOOP + STORE + END, how=Weaving(select=select), lives=["k"])
    tracks, _ = run(woven, select=select)
    chosen = [(b, w) for b in range(3) if select.blocks_of(b + 1) > select.blocks_of(b) for w in select.warps or (0, 1)]
    assert [(header["block"], header["warp"]) for header, _ in tracks] == chosen


def test_without_a_buffer_nothing_is_written() -> None:
    memory = simulate.GlobalMemory(1 << 20)
    out = memory.alloc(192 * 4)
    simulate.run(weave(HEAD + LOOP + STORE + END, lives=["k"]).text, "k", 3, 64, [out, 0], memory=memory)
    assert memory.read(out, np.int32, 192).tolist() == [5] * 192


def test_no_register_is_held_from_one_mark_to_the_next() -> None:
    """Whatever the code of a mark reads of ours, it has written itself."""
    woven = weave(HEAD + wrapped("loop", LOOP) + STORE + END, how=FIXED)
    written: set[str] = set()
    reads = 0
    for instruction in parse(woven.text).entries[0].instructions():
        ours = [name for name in (*read_by(instruction), *written_by(instruction)) if name.startswith("%wl_")]
        if not ours:
            written.clear()  # code of the kernel
            continue
        made = set(written_by(instruction)) if instruction.opcode not in ("st", "bra") else set()
        # In `add %a, %a, 1` the target is read too.
        sources = " ".join(instruction.operands[1:]) if made else instruction.arguments
        needed = set(re.findall(r"%wl_\w+", f"{sources} {instruction.predicate or ''}"))
        reads += len(needed)
        assert needed <= written, instruction.raw
        written |= made
    assert reads > 100


def test_marks_around_a_loop_have_their_own_slots() -> None:
    woven = weave(HEAD + mark("B", "body") + wrapped("loop", LOOP) + STORE + mark("E", "body") + END, how=FIXED)
    assert woven.stores == {"k": "fixed"}
    tracks, out = run(woven)
    assert out == [5] * 192
    for header, records in tracks:
        assert [(kind, name) for kind, name, *_ in records] == [
            (Kind.BEGIN, "body"), (Kind.BEGIN, "loop"), (Kind.END, "loop"), (Kind.END, "body")
        ]  # fmt: skip
        clocks = [clock for *_, clock in records]
        assert clocks == sorted(clocks)
        lived = int(header["exit_clock"] - header["start_clock"])
        assert all((clock - int(header["start_clock"])) & 0xFFFFFFFF <= lived for clock in clocks)


def test_slots_are_in_the_order_in_which_blocks_run_and_not_in_that_of_the_text() -> None:
    """The second block of the text runs first; blocks of odd number skip it."""
    text = (
        HEAD
        + "	and.b32 %r5, %r2, 1; setp.ne.u32 %p2, %r5, 0; mov.u32 %r3, 7;\n	@!%p2 bra $L_early;\n	bra $L_late;\n"
    )
    text += "$L_late:\n" + wrapped("late", STORE) + END.replace("}\n", "")
    text += "$L_early:\n" + wrapped("early", "	add.u32 %r3, %r3, 1;\n") + "	bra $L_late;\n}\n"
    tracks, out = run(weave(text, how=FIXED), parse=False)
    assert out == [8] * 64 + [7] * 64 + [8] * 64
    for header, words in tracks:
        skipped = header["block"] % 2 == 1
        assert header["written"] == len(words) == 4
        assert [word == 0 for word in words] == [skipped, skipped, False, False]
        clocks = [word >> 32 for word in words if word]
        assert clocks == sorted(clocks)


def test_a_warp_that_leaves_early_has_an_exit() -> None:
    text = HEAD + "	mov.u32 %r3, 1; setp.eq.u32 %p2, %r2, 1;\n	@%p2 ret;\n" + LOOP + STORE + END
    tracks, out = run(weave(text, lives=["k"]))
    assert out == [5] * 64 + [0] * 64 + [5] * 64
    assert all(header["state"] == TrackState.EXITED for header, _ in tracks)


def test_marks_in_a_loop_have_no_fixed_slots() -> None:
    inside = LOOP.replace("	add.u32", mark("B", "step") + mark("E", "step") + "	add.u32")
    with pytest.raises(PtxError, match="outside loops"):
        weave(HEAD + inside + STORE + END, how=FIXED)
    assert not fits_fixed(HEAD + inside + STORE + END)
    assert fits_fixed(HEAD + wrapped("loop", LOOP) + STORE + END)


def test_marks_that_would_not_fit_the_smallest_track_are_refused() -> None:
    def marked(regions: int) -> str:
        return HEAD + LOOP + "".join(wrapped(f"r{n}", STORE) for n in range(regions)) + END

    most = MAX_FIXED_SLOTS // 2
    assert fits_fixed(marked(most))
    assert not fits_fixed(marked(most + 1))
    tracks, _ = run(weave(marked(most), how=FIXED), slots=0)
    assert {len(records) for _, records in tracks} == {2 * most}, "no slot is outside the smallest track"


def test_a_mark_waits_for_values_with_registers_of_its_own() -> None:
    text = HEAD + LOOP + mark("B", "load") + STORE + "	ld.global.u32 %r6, [%rd3];\n"
    text += "	mov.b32 %wl_t, %r6; mad.lo.u32 %wl_hi, %wl_t, %wl_z, %wl_hi;\n" + mark("E", "load") + END
    woven = weave(text, how=FIXED)
    assert not re.search(r"mad\.lo\.u32 %wl_hi", woven.text)
    tracks, _ = run(woven)
    assert all([kind for kind, *_ in records] == [Kind.BEGIN, Kind.END] for _, records in tracks)
