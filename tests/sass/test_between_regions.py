"""The code between regions in real cubins: what it holds, and which lines of the source it owns."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pytest

from tests.support.golden_ptx import GOLDEN
from tests.support.sass_kernels import DIVISION, FILE, STRAIGHT, needs_tools
from warplens.auto.ptx.ptx_marker import mark_ptx
from warplens.auto.rules import Auto
from warplens.ptx.dominators import predecessors
from warplens.sass.between_regions import EXIT, START
from warplens.sass.cubin_file import SassError
from warplens.sass.disassembly import SassFunction, disassemble
from warplens.sass.machine_code import assemble_with_lines
from warplens.sass.marked_lines import MarkedLines, marked_lines
from warplens.sass.open_regions import cross, follow
from warplens.sass.region_verifier import verify_cubin
from warplens.sass.verified_regions import KernelVerification
from warplens.weave.weaver import weave
from warplens.weave.weaving import Selection, Weaving

pytestmark = needs_tools


def verified(text: str, **options: object) -> KernelVerification:
    woven = weave(text, how=Weaving(between=True, **options)).text  # type: ignore[arg-type]
    return verify_cubin(assemble_with_lines(woven), "k", woven, automatic=True)


def test_it_holds_the_instructions_from_one_clock_read_to_the_next() -> None:
    found = verified(STRAIGHT)
    names = [one.region for one in found.regions]
    assert names == ["load", "store", "work k.py:10", "work k.py:12-13", "work k.py:14"]
    first, middle, last = (found[name] for name in names[2:])
    assert first.counts["load.global"] == 1
    counts = {kind: middle.counts[kind] for kind in ("fp32", "special", "store.shared")}
    assert counts == {"fp32": 4, "special": 1, "store.shared": 1}  # a square root takes three
    assert last.counts["store.global"] == 1
    assert [one.copies for one in (first, middle, last)] == [1, 1, 1]
    assert {one.flag for one in found.regions} == {""}
    assert found.missing == ()


def test_it_owns_the_lines_that_no_other_region_has_code_on() -> None:
    found = verified(STRAIGHT)
    lines = {one.region: one.source_lines for one in found.regions if one.source_lines}
    assert lines == {
        "work k.py:10": (("/home/me/k.py", 10, 10),),
        "work k.py:12-13": (("/home/me/k.py", 12, 12),),  # line 13 is also that of `store`
        "work k.py:14": (("/home/me/k.py", 14, 14),),
    }


def test_what_was_moved_out_of_it_and_into_it_is_said() -> None:
    """ptxas computes the address of the stores where it is needed first."""
    found = verified(STRAIGHT)
    out, into = found["work k.py:10"], found["work k.py:12-13"]
    assert (out.moved_out_counts, out.moved_in) == ({"load.constant": 1, "integer": 1}, 0)
    assert (into.moved_in_counts, into.moved_out) == (out.moved_out_counts, 0)
    assert {one.belongs for one in into.moved} == {"work k.py:10"}


@pytest.mark.parametrize("options", [{"store": "now"}, {"store": "spread"}, {"clock": "64"}, {"fixed": True}])
def test_every_way_to_record_has_the_same_code(options: dict[str, object]) -> None:
    found = verified(STRAIGHT, **options)
    assert {one.region: one.kept + one.moved_out for one in found.regions} == {
        "load": 1, "store": 1, "work k.py:10": 5, "work k.py:12-13": 9, "work k.py:14": 1,
    }  # fmt: skip


def test_a_subroutine_of_ptxas_is_part_of_the_code_that_calls_it() -> None:
    text = DIVISION.replace("divide", "load").replace("\t// @warplens E load\n", "")
    text = text.replace("\tdiv.rn", "\t// @warplens E load\n\tdiv.rn") + FILE
    text = text.replace("\tld.global.f32 %f1, [%rd1];\n\t// @warplens B load", LOAD)
    found = verified(text)["work k.py:7"]
    assert found.counts["special"] >= 1
    assert found.kept > 30


LOAD = "\t// @warplens B load\n\tld.global.f32 %f1, [%rd1];\n\t.loc 1 7 1"


def test_blocks_that_record_nothing_are_no_part_of_it() -> None:
    """They run a plain copy of the code."""
    plain = verified(STRAIGHT)
    both = verified(STRAIGHT, select=Selection(blocks=(0, 8, 1)), plain_copy=True)
    assert both.instructions - both.own > 1.5 * (plain.instructions - plain.own)
    for name in ("work k.py:10", "work k.py:12-13", "work k.py:14"):
        assert both[name].counts.get("load.global") == plain[name].counts.get("load.global")
        assert both[name].source_lines == plain[name].source_lines


@pytest.mark.parametrize(
    ("name", "store"),
    [
        ("nvcc12_kernels", "auto"),
        ("nvcc_kernels_lineinfo", "now"),
        ("nvcc_gemm_lineinfo", "auto"),
        ("triton_softmax", "auto"),
    ],
)
def test_every_path_of_the_machine_code_runs_what_the_verification_says(name: str, store: str) -> None:
    text = (GOLDEN / f"{name}.ptx").read_text(errors="replace").replace("\0", "")
    plain = "\n".join(line for line in text.splitlines() if "@warplens" not in line)
    woven = weave(mark_ptx(plain, Auto.of(True)).text, how=Weaving(between=True, store=store))
    try:
        cubin = assemble_with_lines(woven.text)
    except SassError as error:
        pytest.skip(str(error))
    seen = 0
    for symbol, function in disassemble(cubin).items():
        lines = marked_lines(woven.text, symbol, automatic=True)
        found = verify_cubin(cubin, symbol, woven.text, automatic=True)
        walked = _between(function, lines)
        for region in found.regions:
            if region.region in set(lines.pairs.values()):
                ranged = {at for first, last in region.ranges for at in range(first, last, 16)}
                assert walked.get(region.region, set()) == ranged, region.region
                assert sum(region.counts.values()) + region.own == len(ranged)
                seen += 1
    assert seen


def _between(function: SassFunction, lines: MarkedLines) -> dict[str, set[int]]:
    """The addresses between two regions: for each instruction, look for the marks before it and behind it."""
    rows, calls = function.instructions, function.calls()
    successors = function.successors()
    marks = [lines.clocks.get(one.line, []) if one.reads_clock else [] for one in rows]
    outer = [lines.outer_clocks.get(one.line) if one.reads_clock else None for one in rows]
    states = follow(successors, [[(at, each)] for at, each in enumerate(marks)], calls=calls)

    def ended(at: int) -> str | None:
        """The region whose end this is, if no other is open behind it."""
        if marks[at]:
            return None if cross(states[at] or (), marks[at], 0) else marks[at][-1].region
        return START.region if outer[at] == START else None

    def begun(at: int) -> str | None:
        """The region whose begin this is, if no other is open before it."""
        if outer[at] == START:
            return None
        return EXIT.region if not marks[at] else None if states[at] else marks[at][0].region

    def stops(at: int) -> bool:
        return bool(marks[at]) or outer[at] is not None

    found: dict[str, set[int]] = {}
    backwards = predecessors(successors)
    for at, one in enumerate(rows):
        if states[at] != ():
            continue
        came = {ended(mark) for mark in _reached(at, backwards, stops)[1]}
        leads = {begun(mark) for mark in ([at] if stops(at) else _reached(at, successors, stops)[1])}
        for pair in itertools.product(came, leads):
            if pair in lines.pairs:
                found.setdefault(lines.pairs[pair], set()).add(one.address)
    for call, target in calls.items():
        for inside in found.values():
            if rows[call].address in inside:
                inside |= {rows[at].address for at in _reached(target, successors, lambda at: False)[0]}
    return found


def _reached(start: int, steps: Sequence[Sequence[int]], stops: Callable[[int], bool]) -> tuple[set[int], set[int]]:
    """What can be reached from a node, itself included, and the nodes at which the way ends."""
    seen, ends, work = {start}, set[int](), list(steps[start])
    while work:
        at = work.pop()
        if stops(at):
            ends.add(at)
        elif at not in seen:
            seen.add(at)
            work += steps[at]
    return seen, ends
