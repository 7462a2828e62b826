"""Where a warp is whole: what the analysis says against what lanes do in the interpreter."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.paths import GOLDEN
from tests.support.ptx_kernels import HEAD, kernel
from tests.support.woven_launch import launch
from warplens import simulate
from warplens.ptx.divergence import Divergence
from warplens.ptx.tree import Comment, Instruction, parse, walk
from warplens.weave.weaver import weave
from warplens.weave.weaving import SymbolBuffer, Weaving


def split_at(text: str) -> dict[str, bool]:
    """For every comment of the kernel, whether the warp may be split there."""
    function = parse(text).entries[0]
    divergence = Divergence(function)
    return {node.content: divergence.diverges(node) for node in walk(function.body or []) if isinstance(node, Comment)}


CASES = {
    "a uniform branch": ("setp.eq.u32 %p1, %r3, 1;\n@%p1 bra $a;\n// in\nadd.u32 %r4, %r1, 1;\n$a:", False, False),
    "a lane's branch": ("setp.eq.u32 %p1, %r2, 1;\n@%p1 bra $a;\n// in\nadd.u32 %r4, %r1, 1;\n$a:", True, False),
    "a lane's return": ("setp.eq.u32 %p1, %r2, 1;\n@%p1 ret;\n// in\nadd.u32 %r4, %r1, 1;", True, True),
    "a warp's return": ("setp.gt.u32 %p1, %r2, 31;\n@%p1 ret;\n// in\nadd.u32 %r4, %r1, 1;", False, False),
    "not a warp's bound": ("setp.gt.u32 %p1, %r2, 30;\n@%p1 ret;\n// in\nadd.u32 %r4, %r1, 1;", True, True),
    "the warp's number": (
        "shr.u32 %r4, %r2, 5;\nsetp.eq.u32 %p1, %r4, 1;\n@%p1 bra $a;\n// in\nadd.u32 %r4, %r1, 1;\n$a:", False, False),
    "half the warp's number": (
        "shr.u32 %r4, %r2, 4;\nsetp.eq.u32 %p1, %r4, 1;\n@%p1 bra $a;\n// in\nadd.u32 %r4, %r1, 1;\n$a:", True, False),
    "lane 0's word": (
        "shfl.sync.idx.b32 %r4, %r2, 0, 31, -1;\nsetp.eq.u32 %p1, %r4, 1;\n@%p1 bra $a;\n// in\n"
        "add.u32 %r4, %r1, 1;\n$a:", False, False),
    "a vote": (
        "setp.eq.u32 %p1, %r2, 1;\nvote.sync.any.pred %p2, %p1, -1;\n@%p2 bra $a;\n// in\nadd.u32 %r4, %r1, 1;\n$a:",
        False, False),
    "what was loaded": (
        "ld.global.u32 %r4, [%rd1];\nsetp.eq.u32 %p1, %r4, 1;\n@%p1 bra $a;\n// in\nadd.u32 %r4, %r1, 1;\n$a:",
        True, False),
    "a value that lanes chose": (
        "setp.eq.u32 %p1, %r2, 1;\nmov.u32 %r4, 0;\n@%p1 bra $a;\nmov.u32 %r4, 1;\n$a:\nsetp.eq.u32 %p2, %r4, 1;\n"
        "@%p2 bra $b;\n// in\nadd.u32 %r5, %r1, 1;\n$b:", True, False),
    "a loop all leave together": (
        "mov.u32 %r4, 0;\n$a:\n// in\nadd.u32 %r4, %r4, 1;\nsetp.lt.u32 %p1, %r4, %r1;\n@%p1 bra $a;", False, False),
    "a loop each leaves alone": (
        "mov.u32 %r4, 0;\n$a:\n// in\nadd.u32 %r4, %r4, 1;\nsetp.lt.u32 %p1, %r4, %r2;\n@%p1 bra $a;", True, False),
    "a vote among lanes that chose their group": (
        "match.any.sync.b32 %r4, %r2, -1;\nvote.sync.ballot.b32 %r5, 1, %r4;\nsetp.eq.u32 %p1, %r5, 1;\n@%p1 bra $a;\n"
        "// in\nadd.u32 %r6, %r1, 1;\n$a:", True, False),
    "the first word of half a warp": (
        "shfl.sync.idx.b32 %r4, %r2, 0, 4127, -1;\nsetp.eq.u32 %p1, %r4, 1;\n@%p1 bra $a;\n// in\n"
        "add.u32 %r4, %r1, 1;\n$a:", True, False),
    "a carry": (
        "add.cc.u32 %r4, %r2, -5;\naddc.u32 %r5, 0, 0;\nsetp.eq.u32 %p1, %r5, 1;\n@%p1 bra $a;\n// in\n"
        "add.u32 %r4, %r1, 1;\n$a:", True, False),
    "a register of inline asm": (
        "{ .reg .pred p; setp.eq.u32 p, %r2, 1; selp.u32 %r4, 1, 0, p; }\nsetp.eq.u32 %p1, %r4, 1;\n@%p1 bra $a;\n"
        "// in\nadd.u32 %r4, %r1, 1;\n$a:", True, False),
    "labels that inline asm repeats": (
        "setp.eq.u32 %p1, %r2, 1;\n@!%p1 bra $b;\n{ bra DONE;\nDONE: ret; }\n$b:\n{ // in\nadd.u32 %r4, %r1, 1;\n"
        "DONE: }", True, True),
    "a loop that some never leave": (
        "setp.eq.u32 %p1, %r2, 1;\n$a:\n@%p1 bra $a;\n// in\n$b:\n@%p1 bra $c;\nbra $d;\n$c:\nbra $c;\n$d:",
        False, True),
    "a lock": (
        "$a:\natom.global.cas.b32 %r4, [%rd1], 0, 1;\nsetp.ne.u32 %p1, %r4, 0;\n@%p1 bra $a;\n// in", True, True,
    ),
    "a flag that was seen by a branch": (
        "mov.u32 %r5, 0;\n$a:\nld.volatile.global.u32 %r4, [%rd1];\nsetp.eq.u32 %p1, %r4, 0;\n@%p1 bra $b;\n"
        "mov.u32 %r5, 1;\n$b:\nsetp.eq.u32 %p2, %r5, 0;\n@%p2 bra $a;\n// in", True, True),
    "a lock and a barrier": (
        "$a:\natom.global.cas.b32 %r4, [%rd1], 0, 1;\nsetp.ne.u32 %p1, %r4, 0;\n@%p1 bra $a;\n// in\n$b:\n"
        "bar.warp.sync 0xffffffff;", True, False),
    "a lock and a barrier of some": (
        "$a:\natom.global.cas.b32 %r4, [%rd1], 0, 1;\nsetp.ne.u32 %p1, %r4, 0;\n@%p1 bra $a;\n// in\n"
        "bar.warp.sync 0xffff;", True, True),
    "a loop that counts in memory": (
        "mov.u32 %r4, %r2;\n$a:\natom.global.add.u32 %r5, [%rd1], 1;\n// in\nadd.u32 %r4, %r4, 64;\n"
        "setp.lt.u32 %p1, %r4, %r1;\n@%p1 bra $a;", True, False),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_known_kernels(name: str) -> None:
    body, inside, after = CASES[name]
    found = split_at(kernel(body))
    assert (found["in"], found["last"]) == (inside, after)


def test_without_a_block_size_no_warp_is_known_to_be_whole() -> None:
    for performance, full in (("", False), (".reqntid 48, 1, 1", False), (".reqntid 8, 8, 1", True)):
        assert Divergence(parse(kernel("", performance)).entries[0]).starts_full is full
    # With 8 threads in a row, threadIdx.x no longer says which warp a thread is in.
    assert split_at(kernel(CASES["a warp's return"][0], ".reqntid 8, 8, 1"))["in"]


def test_a_kernel_without_branches_is_analysed_only_for_its_operands() -> None:
    divergence = Divergence(parse(kernel("add.u32 %r4, %r2, 1;\nadd.u32 %r5, %r3, 1;")).entries[0])
    assert not divergence._reads, "nothing can diverge, so no instruction was looked at"
    assert divergence.varies("%r4")
    assert not divergence.varies("%r5")


SOURCES = ["%r1", "%r2", "%r3", "%r4", "%r5", "%r6", "7", "1"]
registers = st.sampled_from(["%r4", "%r5", "%r6"])
sources = st.sampled_from(SOURCES)
plain = st.tuples(st.sampled_from(["add.u32", "and.b32", "xor.b32", "shr.u32", "min.u32"]), registers, sources, sources)
tests = st.tuples(st.sampled_from(["lt", "eq", "ge"]), sources, sources)
trees = st.recursive(
    plain.map(lambda p: ("op", p)),
    lambda inner: st.one_of(
        st.tuples(st.just("if"), tests, st.lists(inner, max_size=3), st.lists(inner, max_size=3)),
        st.tuples(st.just("loop"), tests, st.lists(inner, max_size=3)),
        st.tuples(st.just("leave"), tests),
    ),
    max_leaves=8,
)


ALWAYS, NEVER = ("eq", "1", "1"), ("lt", "1", "1")
SPLIT = ("if", NEVER, [], [])
LOOP_IN_LOOP: tuple = ("loop", ALWAYS, [("if", NEVER, [SPLIT], []), SPLIT, ("loop", NEVER, [])])


class _Writer:
    """PTX of a random program; every stretch adds one to a counter of its own in each lane that runs it."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.places = self.labels = self.loops = 0

    def place(self) -> None:
        self.lines += [
            f"// place {self.places}",
            f"red.global.add.u32 [%rd3+{self.places * 4}], 1;",
        ]
        self.places += 1

    def compare(self, test: tuple[str, str, str]) -> None:
        how, left, right = test
        self.lines += [f"mov.u32 %r8, {left};", f"setp.{how}.u32 %p1, %r8, {right};"]

    def block(self, statements: list[tuple]) -> None:
        self.place()
        for statement in statements:
            getattr(self, "_" + statement[0])(*statement[1:])
        self.place()

    def _op(self, parts: tuple[str, str, str, str]) -> None:
        opcode, target, left, right = parts
        self.lines += [f"mov.u32 %r8, {left};", f"{opcode} {target}, %r8, {right};"]

    def _if(self, test: tuple[str, str, str], yes: list[tuple], no: list[tuple]) -> None:
        other, end = self._label(), self._label()
        self.compare(test)
        self.lines.append(f"@%p1 bra {other};")
        self.block(no)
        self.lines += [f"bra.uni {end};", f"{other}:"]
        self.block(yes)
        self.lines.append(f"{end}:")
        self.place()

    def _loop(self, test: tuple[str, str, str], body: list[tuple]) -> None:
        start, end = self._label(), self._label()
        # A loop inside another counts elsewhere: else it would set the outer one back for ever.
        count = f"%r{10 + self.loops}"
        self.lines += [f"mov.u32 {count}, 0;", f"{start}:"]
        self.loops += 1
        self.block(body)
        self.loops -= 1
        self.compare(test)
        self.lines += [f"@!%p1 bra {end};", f"add.u32 {count}, {count}, 1;", f"setp.lt.u32 %p2, {count}, 3;",
                       f"@%p2 bra {start};", f"{end}:"]  # fmt: skip
        self.place()

    def _leave(self, test: tuple[str, str, str]) -> None:
        self.compare(test)
        self.lines.append("@%p1 ret;")
        self.place()

    def _label(self) -> str:
        self.labels += 1
        return f"$l{self.labels}"


@settings(max_examples=60, deadline=None)
@given(st.lists(trees, min_size=1, max_size=4))
@example([LOOP_IN_LOOP])
def test_a_place_called_whole_is_run_by_all_lanes_of_a_warp_or_by_none(program: list[tuple]) -> None:
    writer = _Writer()
    writer.block(program)
    setup = (
        "mov.u32 %r4, 5; mov.u32 %r5, 9; mov.u32 %r6, %tid.x; mad.lo.u32 %r7, %r3, 64, %r2; mul.wide.u32 %rd2, %r7, "
    )
    text = kernel(setup + f"{4 * writer.places}; add.s64 %rd3, %rd1, %rd2;\n" + "\n".join(writer.lines))
    memory = simulate.GlobalMemory()
    counts = memory.alloc(2 * 64 * writer.places * 4)
    simulate.run(text, "k", 2, 64, [counts, 3], memory=memory)
    runs = memory.read(counts, np.int32, 2 * 64 * writer.places).reshape(4, 32, writer.places)
    split = split_at(text)
    for place in range(writer.places):
        if not split[f"place {place}"]:
            assert (runs[:, :, place] == runs[:, :1, place]).all(), (place, text)


@settings(max_examples=120, deadline=None)
@given(
    program=st.lists(trees, min_size=1, max_size=4),
    early=st.booleans(),
    uniform=st.booleans(),
    marks=st.lists(st.sampled_from([0, 0, 1, 2, 10]), min_size=1, max_size=9),
    room=st.sampled_from([0, 3, 40, 4096]),
)
def test_spread_records_are_those_that_each_mark_stores_at_once(
    program: list[tuple], early: bool, uniform: bool, marks: list[int], room: int
) -> None:
    writer = _Writer()
    writer.block(program)

    def marked(line: str) -> str:
        place = re.fullmatch(r"// place (\d+)", line)
        if place is None:
            # %r2 and %r6 are the thread's; what is left is the same for all of a block.
            return re.sub(r"%r[26]\b", "%r3", line) if uniform else line
        here = range(marks[int(place[1]) % len(marks)])
        return "\n".join(f"// @warplens I {place[1]}.{n}\nadd.u32 %r9, %r9, 1;" for n in here)

    lines = ["// @warplens I first", *[marked(line) for line in writer.lines if "red." not in line]]
    leaves = "setp.lt.u32 %p3, %r2, 7;\n@%p3 ret;\n" if early else ""
    text = kernel("mov.u32 %r4, 5; mov.u32 %r5, 9; mov.u32 %r6, %tid.x;\n" + leaves + "\n".join(lines))
    seen = []
    for store in ("now", "spread"):
        woven = weave(text, buffer=SymbolBuffer(), how=Weaving(store=store))
        tracks, _, _ = launch(woven, "k", 2, 64, ["OUT", 3], slots=room)
        seen.append([(int(header["written"]), [record[:4] for record in records]) for header, records in tracks])
    for (written, kept), (also, others) in zip(*seen, strict=True):
        least = min(len(kept), len(others))
        assert (written, kept[:least]) == (also, others[:least])
        assert least >= min(room, written)


def test_marks_hold_no_lane_back_that_others_wait_for() -> None:
    """Each lane in turn holds a lock that it gives back after a mark: a warp barrier there would never open."""
    lock = "$a:\natom.global.cas.b32 %r4, [%rd1], 0, 1;\nsetp.ne.u32 %p1, %r4, 0;\n@%p1 bra $a;\n"
    free = "atom.global.exch.b32 %r6, [%rd1], 0;\n"
    text = kernel(f"{lock}// @warplens I locked\n{free}", ".reqntid 32, 1, 1")
    woven = weave(text, buffer=SymbolBuffer(), how=Weaving(store="spread"))
    assert "bar.warp.sync" not in woven.text
    tracks, _, _ = launch(woven, "k", 1, 32, ["OUT", 3])
    assert [record[1] for _, records in tracks for record in records] == ["locked"]


LOCKED = """.visible .func take(.param .b64 where)
{
	.reg .pred %p<2>; .reg .b32 %r<2>; .reg .b64 %rd<2>;
	ld.param.b64 %rd1, [where];
$a:
	READ
	setp.ne.u32 %p1, %r1, 0;
	@%p1 bra $a;
	ret;
}
"""


@pytest.mark.parametrize(
    ("read", "spread"), [("atom.global.cas.b32 %r1, [%rd1], 0, 1;", False), ("mov.u32 %r1, 0;", True)]
)
def test_marks_behind_a_call_hold_no_lane_back_either(read: str, spread: bool) -> None:
    call = "{\n.param .b64 to;\nst.param.b64 [to], %rd1;\ncall.uni take, (to);\n}\n"
    free = "atom.global.exch.b32 %r6, [%rd1], 0;\n"
    text = kernel(f"{call}// @warplens I locked\n{free}", ".reqntid 32, 1, 1")
    text = HEAD + LOCKED.replace("READ", read) + text.removeprefix(HEAD)
    woven = weave(text, buffer=SymbolBuffer(), how=Weaving(store="spread"))
    assert (woven.stores["k"] == "spread") is spread
    tracks, _, _ = launch(woven, "k", 1, 32, ["OUT", 3])
    assert [record[1] for _, records in tracks for record in records] == ["locked"]


def test_a_value_of_the_lane_itself_is_not_taken_from_another() -> None:
    text = kernel("// @warplens I first\nadd.u32 %r4, %r1, 1;\n// @warplens V lane u32 %laneid\nadd.u32 %r4, %r1, 1;")
    woven = weave(text, buffer=SymbolBuffer(), how=Weaving(store="spread"))
    tracks, _, _ = launch(woven, "k", 1, 64, ["OUT", 3])
    assert [record[3] for _, records in tracks for record in records] == [None, 0, None, 0]


def test_the_analysis_finds_most_of_a_real_kernel_whole() -> None:
    """Were everything called split it would be safe, and useless."""
    function = parse((GOLDEN / "ptx" / "triton_attention_sm80.ptx").read_text()).entries[0]
    divergence = Divergence(function)
    assert not any(divergence.diverges(node) for node in walk(function.body or []) if isinstance(node, Instruction))
