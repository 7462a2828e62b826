"""Barrier marks: the words that woven PTX packs, and that ptxas takes every form of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.golden_ptx import ptxas
from tests.support.woven_launch import launch
from warplens.ptx.syntax import PtxError
from warplens.record.barrier_words import BarrierWord, Operation
from warplens.record.layout import Kind, ValueType
from warplens.weave.barrier_operands import BarrierOperands
from warplens.weave.weaver import weave
from warplens.weave.weaving import SymbolBuffer, Weaving

KERNEL = """.version 8.3
.target sm_90
.address_size 64
.shared .align 8 .b64 ready[4];
.visible .entry k()
{
	.reg .b32 %r<9>;
	.reg .b64 %rd<9>;
	.reg .b16 %rs<4>;
	.reg .pred %p<4>;
	mov.u32 %r1, 1024;
	mov.u64 %rd1, 2048;
	mov.u32 %r2, 3;
	mov.u16 %rs1, 37;
	setp.eq.u32 %p1, %r2, 3;
	mov.u32 %r3, ready;
	cvt.u64.u32 %rd2, %r3;
	cvta.shared.u64 %rd3, %rd2;
	// @warplens B full
	// @warplens S full MARK
	add.u32 %r4, %r1, %r2;
	// @warplens E full
	ret;
}
"""
WORDS = {
    "arrive u32:%r1 - - -": BarrierWord(Operation.ARRIVE, 1024),
    "arrive u32:%r1+8 - - -": BarrierWord(Operation.ARRIVE, 1032),
    "wait u64:%rd1-8 %r2 - -": BarrierWord(Operation.WAIT, 2040, 1),
    "wait u32:%r1 1 1 -": BarrierWord(Operation.WAIT, 1024, 1, 1),
    "copy symbol:ready+16 - - -": BarrierWord(Operation.COPY, 16),
    "copy generic:%rd3+8 - - -": BarrierWord(Operation.COPY, 8),
    "sync number:5 - 128 -": BarrierWord(Operation.SYNC, 5, 0, 128),
    "sync u32:%r2 - %r1 -": BarrierWord(Operation.SYNC, 3, 0, 1024),
    "arrive u32:%r1 - u16:%rs1 -": BarrierWord(Operation.ARRIVE, 1024, 0, 37),
    "arrive u32:%r1 - - %p1": BarrierWord(Operation.ARRIVE, 1024),
    "arrive u32:%r1 - - !%p1": BarrierWord(Operation.NONE, 1024),
    "event_start number:4294967295 - - -": BarrierWord(Operation.EVENT_START, (1 << 32) - 1),
}
CLUSTERS = [
    "cluster_arrive cluster: - - -", "cluster_wait cluster: - - -", "remote_arrive u32:%r1 - - -",
    "multicast u32:%r1 - u16:%rs1 -",
]  # fmt: skip


@pytest.mark.parametrize("store", ["now", "late", "end", "defer", "spread"])
@pytest.mark.parametrize(("text", "word"), WORDS.items(), ids=list(WORDS))
def test_a_mark_leaves_its_word_inside_its_region(text: str, word: BarrierWord, store: str) -> None:
    woven = weave(KERNEL.replace("MARK", text), buffer=SymbolBuffer(), how=Weaving(store=store, aligned=True))
    tracks, _, _ = launch(woven, "k", 1, 32, [])
    records = tracks[0][1]
    assert [kind for kind, *_ in records] == [Kind.BEGIN, Kind.VALUE, Kind.END]
    _, region, tag, payload, _ = records[1]
    assert (region, tag) == ("full", ValueType.BARRIER)
    found = BarrierWord.unpack(payload)
    assert found == word or (word.operation is found.operation is Operation.NONE)


def test_a_barrier_mark_shares_the_clock_of_the_begin_before_it() -> None:
    woven = weave(KERNEL.replace("MARK", "wait u32:%r1 %r2 - -"), buffer=SymbolBuffer(), how=Weaving(store="end"))
    records = launch(woven, "k", 1, 32, [])[0][0][1]
    assert records[0][4] == records[1][4]


def test_a_wait_behind_a_block_barrier_has_its_own_clock() -> None:
    """What the warp waited at the block barrier is no part of the wait that follows."""
    apart = KERNEL.replace("\t// @warplens S", "\tadd.u32 %r5, %r1, 1;\n\t// @warplens S")
    behind = apart.replace("\tadd.u32 %r5", "\tbar.sync 0;\n\tadd.u32 %r5")
    times = []
    for text in (apart, behind):
        woven = weave(text.replace("MARK", "wait u32:%r1 %r2 - -"), buffer=SymbolBuffer(), how=Weaving(store="end"))
        records = launch(woven, "k", 1, 32, [])[0][0][1]
        times.append(records[1][4] - records[0][4])
    assert times[0] == 0 < times[1]


@pytest.mark.parametrize("text", [*WORDS, *CLUSTERS])
def test_ptxas_takes_every_form(text: str, tmp_path: Path) -> None:
    (tmp_path / "k.ptx").write_text(weave(KERNEL.replace("MARK", text), buffer=SymbolBuffer()).text)
    subprocess.run([ptxas(), "-arch=sm_90", "k.ptx", "-o", "k.cubin"], cwd=tmp_path, check=True)


@pytest.mark.parametrize("text", [*WORDS, *CLUSTERS])
def test_operands_survive_printing(text: str) -> None:
    operands = BarrierOperands.parse(text.split())
    assert BarrierOperands.parse(operands.words()) == operands


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("come u32:%r1 - - -", "unknown barrier operation 'come'"),
        ("arrive r1 - - -", "'r1' is no barrier"),
        ("arrive number:4294967296 - - -", "outside"),
        ("sync number:1 - 65536 -", "extra 65536 is outside"),
        ("wait u32:%r1 [%r2] - -", "not a register"),
        ("arrive u32:%unknown - - -", "declares no register %unknown"),
        ("arrive u32:%r1 -", "unknown mark"),
    ],
)
def test_a_wrong_mark_is_refused(text: str, said: str) -> None:
    with pytest.raises(PtxError, match=said):
        weave(KERNEL.replace("MARK", text), buffer=SymbolBuffer())
