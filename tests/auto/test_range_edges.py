"""The marks of a region that is scattered over basic blocks: on every path they alternate, around the region's code."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warplens.auto.ptx import mark_ptx
from warplens.auto.ptx.line_regions import line_ranges
from warplens.auto.ptx.units import FunctionUnits
from warplens.auto.rules import Auto, LineRange
from warplens.ptx.labels import end_with_return
from warplens.ptx.tree import parse
from warplens.weave.weaver import weave

RANGE = LineRange("mine", "k.py", 10, 19)
HEAD = '.version 8.0\n.target sm_80\n.address_size 64\n.file 1 "k.py"\n.visible .entry k()\n{\n'
HEAD += ".reg .pred %p<2>; .reg .f32 %f<2>; .reg .b64 %rd<2>;\n"


END = "\t.loc 1 40 0\n\tret;\n}\n"


def line(number: int, code: str) -> str:
    return f"\t.loc 1 {number} 0\n\t{code}\n"


def function(body: str) -> FunctionUnits:
    module = parse(HEAD + body + END)
    (entry,) = module.entries
    end_with_return(entry)
    return FunctionUnits(entry, module.files)


LOAD, LIGHT = "ld.global.f32 %f1, [%rd1];", "mov.f32 %f0, %f1;"
statements = st.lists(st.tuples(st.sampled_from([5, 10, 11, 30]), st.sampled_from([LOAD, LIGHT])), max_size=3)


@st.composite
def programs(draw: st.DrawFn) -> str:
    """Blocks with code of several lines, and jumps between them, forwards and back."""
    count = draw(st.integers(1, 6))
    parts = []
    for block in range(count):
        parts.append(f"$B{block}:\n")
        parts += [line(*one) for one in draw(statements)]
        kind, target = draw(st.sampled_from(["", "@%p1 bra", "bra", "@%p1 ret"])), draw(st.integers(0, count - 1))
        if kind:
            where = draw(st.sampled_from([5, 12]))
            parts.append(line(where, f"{kind};" if "ret" in kind else f"{kind} $B{target};"))
    return "".join(parts)


@settings(max_examples=300, deadline=None)
@given(programs())
def test_on_every_path_begins_and_ends_alternate_around_the_code_of_the_region(body: str) -> None:
    code = function(body)
    (region,) = list(line_ranges(code, (RANGE,))) or [None]
    if region is None:
        return
    begins, ends = set(region.begins), set(region.ends)
    seen: set[tuple[int, bool]] = set()
    todo = [(0, False, True)]  # a block, whether the region is open, and whether control falls into it
    while todo:
        number, is_open, falls = todo.pop()
        block = code.blocks[number]
        for at in range(block.start, block.stop):
            if at > block.start or falls:
                if at in ends:
                    assert is_open, body
                    is_open = False
                if at in begins:
                    assert not is_open, body
                    is_open = True
            unit = code.units[at]
            heavy = unit.instruction is not None and unit.opcode == "ld"
            if heavy and unit.location is not None and RANGE.holds(*unit.location):
                assert is_open, body
            if unit.opcode == "ret":
                assert not is_open, body
        last = code.units[block.stop - 1]
        jumps = {code.units[target].block for target in code.jumps.get(last.at, ())}
        following = [(one, False) for one in jumps]
        if code.falls_through(last) and number + 1 < len(code.blocks):
            following.append((number + 1, True))
        for after, into in following:
            key = (after * 2 + into, is_open)
            if key not in seen:
                seen.add(key)
                todo.append((after, is_open, into))


def marks(body: str) -> list[str]:
    """The marks, jumps and loads of the marked text, in order."""
    text = mark_ptx(HEAD + body + END, Auto(ranges=(RANGE,))).text
    weave(text.replace("entry k()", "entry k(.param .u64 buffer)"))
    return [mark or opcode for mark, opcode in re.findall(r"@warplens (.) |\b(ld|bra)\b", text)]


LOOP = "$L:\n" + line(12, LOAD) + "$W:\n" + line(13, LOAD) + line(13, "@%p1 bra $W;")


@pytest.mark.parametrize(("control", "expected"), [
    (5, ["B", "ld", "ld", "bra", "E", "ld", "bra"]),
    (14, ["B", "ld", "ld", "bra", "ld", "bra", "E"]),
])  # fmt: skip
def test_a_region_begins_anew_in_each_iteration_of_a_loop_around_it(control: int, expected: list[str]) -> None:
    """Loops inside the region, and a loop whose line is in the region, have no marks in between."""
    last = line(30, LOAD) + line(control, "@%p1 bra $L;")
    assert marks(LOOP + last) == expected


def test_code_of_a_function_counts_for_the_line_that_calls_it() -> None:
    inlined = "\t.loc 1 50 0, function_name $f, inlined_at 1 11 0\n\t" + LOAD + "\n"
    assert marks(line(5, LOAD) + inlined + line(30, LOAD)) == ["ld", "B", "ld", "E", "ld"]


def test_ranges_of_the_same_code_nest() -> None:
    ranges = tuple(LineRange(name, "k.py", 10, last) for name, last in (("outer", 19), ("inner", 12), ("same", 12)))
    text = mark_ptx(HEAD + line(10, LOAD) + END, Auto(ranges=ranges)).text
    assert re.findall(r"@warplens (.*)", text) == ["B outer", "B inner", "B same", "E same", "E inner", "E outer"]
