"""TTGIR rules on text: nesting, names, ranges, and what nobody here has heard of."""

from __future__ import annotations

import re
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.growth import growth
from warplens.auto.rules import Auto, LineCoverage, LineRange
from warplens.auto.ttgir import mark_ttgir
from warplens.auto.ttgir.locations import Locations
from warplens.ptx.tree import parse

FILE = "/home/me/attn.py"
ALIASES = f"""\
#loc = loc("{FILE}":1:0)
#loc1 = loc(unknown)
#loc2 = loc("x"("{FILE}":12:8))
#loc3 = loc("/usr/lib/python3/site-packages/triton/language/standard.py":191:40)
#loc4 = loc(callsite(#loc3 at #loc2))
#loc5 = loc(fused[#loc1, "{FILE}":20:4])
#loc6 = loc(fused<"meta [1, 2]">[#loc1])
#loc7 = loc(callsite("y"("{FILE}":30:2) at callsite("{FILE}":40:2 at "{FILE}":50:2)))
#loc8 = loc("a \\"quoted\\" name")
#loc9 = loc(callsite(#loc3 at #loc3))
"""


@pytest.mark.parametrize(
    ("location", "lines"),
    [
        ("#loc2", [12]),
        ("#loc4", [12]),
        ("#loc5", [20]),
        ("#loc6", []),
        ("#loc7", [30, 40, 50]),
        ("#loc8", []),
        ("#loc9", [191]),
        ("#loc1", []),
        ("#nowhere", []),
        (f'"{FILE}":7:1', [7]),
    ],
)
def test_a_location_is_the_authors_line(location: str, lines: list[int]) -> None:
    assert [frame.line for frame in Locations(ALIASES).frames(location)] == lines


def test_files_have_the_names_that_their_author_gave_them() -> None:
    (frame,) = Locations(r'#loc = loc("/home/jos\C3\A9/my \22best\22 k.py":3:0)').frames("#loc")
    assert frame.file == '/home/josé/my "best" k.py'
    assert LineRange("x", 'josé/my "best" k.py', 1, 9).is_in(frame.file)
    (path,) = parse(r""".version 8.0
.target sm_80
.address_size 64
.file 1 "/home/jos\303\251/my \134 k.cu"
""").files.values()
    assert path == "/home/josé/my \\ k.cu"


def module(*body: str) -> str:
    inner = "\n".join("    " + line for line in body)
    head = 'module {\n  tt.func public @k(%p: !tt.ptr<f32> loc("p"(#loc))) {'
    return f'{head}\n{inner}\n  }} loc(#loc)\n}} loc(#loc)\n#loc = loc("{FILE}":1:0)\n'


def at(line: int) -> str:
    return f'loc("{FILE}":{line}:4)'


def marks(text: str) -> list[str]:
    """`B load attn.py:3` for each mark, in order."""
    found = re.findall(r'// @warplens (\w) (\S+?)(?: s32 \$1)?"', text)
    return [f"{letter} {unquote(name)}" for letter, name in found]


LOAD = "%{0} = tt.load %p : tensor<4x!tt.ptr<f32>>"
ADD = "%{0} = arith.addf %{1}, %{1} : tensor<4xf32>"
STORE = "tt.store %p, %{0} : tensor<4x!tt.ptr<f32>>"
RETURN = "tt.return loc(#loc)"


def test_a_load_lasts_until_its_value_is_used() -> None:
    text = module(
        f"{LOAD.format('a')} {at(3)}", f"{ADD.format('b', 'a')} {at(4)}", f"{STORE.format('b')} {at(5)}", RETURN
    )
    lines = mark_ttgir(text, Auto.of("loads")).text.splitlines()
    assert [line for line in lines if "warplens" in line or "arith" in line][1].lstrip().startswith("%b = arith.addf")
    assert marks("\n".join(lines)) == ["B load attn.py:3", "E load attn.py:3"]


def test_loads_that_others_come_between_are_issue_and_wait() -> None:
    text = module(
        f"{LOAD.format('a')} {at(3)}", f"{LOAD.format('b')} {at(4)}", f"{ADD.format('c', 'b')} {at(5)}",
        f"{ADD.format('d', 'a')} {at(6)}", RETURN,
    )  # fmt: skip
    assert marks(mark_ttgir(text, Auto.of("loads")).text) == [
        "B load issue attn.py:3", "E load issue attn.py:3", "B load attn.py:4", "E load attn.py:4",
        "B load wait attn.py:3", "E load wait attn.py:3",
    ]  # fmt: skip


def test_loads_are_not_kept_from_overlapping() -> None:
    """A mark between the use of one load and the next load would make the second wait for the first."""
    text = module(
        f"{LOAD.format('a')} {at(3)}", f"{ADD.format('b', 'a')} {at(3)}", f"{LOAD.format('c')} {at(4)}",
        f"{ADD.format('d', 'c')} {at(5)}", RETURN,
    )  # fmt: skip
    assert marks(mark_ttgir(text, Auto.of("loads")).text) == ["B load attn.py:3-4", "E load attn.py:3-4"]


FOR = "scf.for %i = %c0 to %n step %c1  : i32 {"


def test_ranges_hold_whole_loops_and_stop_at_others() -> None:
    text = module(
        f"%w = math.exp %p : tensor<4xf32> {at(9)}", FOR, f"  {STORE.format('p')} {at(11)}", f"}} {at(10)}",
        FOR, f"  {STORE.format('p')} {at(21)}", f"  {ADD.format('e', 'p')} {at(12)}", f"}} {at(20)}",
        f"{STORE.format('w')} {at(12)}", RETURN,
    )  # fmt: skip
    made = mark_ttgir(text, Auto.of(None, {"part": "attn.py:9-13"}))
    assert made.matched == {"part"}
    found = [
        "mark" if "warplens" in line else line.split()[0]
        for line in (line.strip() for line in made.text.splitlines())
        if not line.startswith(("#", "module", "tt.func"))
    ]
    # One region over the first operation and the whole of the first loop, one for each other place.
    assert found == [
        "mark", "%w", "scf.for", "tt.store", "}", "mark", "scf.for", "tt.store", "mark", "%e", "mark", "}",
        "mark", "tt.store", "mark", "tt.return", "}", "}",
    ]  # fmt: skip


def test_ranges_that_cross_are_cut_so_that_they_nest() -> None:
    ops = [f"{STORE.format('p')} {at(line)}" for line in range(1, 7)]
    made = mark_ttgir(module(*ops, RETURN), Auto.of(None, {"a": "attn.py:1-4", "b": "attn.py:3-6"}))
    assert _nested(made.text)
    assert marks(made.text).count("B b") == 2


def test_marks_that_are_there_are_not_crossed() -> None:
    def mark(letter: str) -> str:
        asm = f"mov.u32 $0, 0; // @warplens {letter} mine"
        return f'%{letter} = tt.elementwise_inline_asm "{asm}" {{constraints = "=r"}} -> i32 loc(#loc)'

    ops = [f"{STORE.format('p')} {at(line)}" for line in (1, 2, 2, 3)]
    text = module(ops[0], ops[1], mark("B"), ops[2], mark("E"), ops[3], RETURN)
    for auto in (Auto.of("all"), Auto.of(None, {"r": "attn.py:1-3"}), Auto.of("lines", {"r": "attn.py:2"})):
        assert _nested(mark_ttgir(text, auto).text), auto
    half = module(ops[0], mark("B"), ops[1], RETURN)
    assert marks(mark_ttgir(half, Auto.of(None, {"r": "attn.py:1-3"})).text) == ["B r", "E r", "B mine", "B r", "E r"]


def test_early_returns_and_unknown_operations_do_no_harm() -> None:
    text = module(
        f"cf.cond_br %c, ^bb1, ^bb2 {at(3)}", "^bb1:  // pred: ^bb0", f"{STORE.format('p')} {at(4)}", RETURN,
        "^bb2:  // pred: ^bb0", '%z = "new.op"(%p) <{a = 1 : i32}> ({', "^bb0(%q: f32 loc(unknown)):",
        f"  {STORE.format('q')} {at(8)}", "  new.yield loc(#loc)", f"}}) : (f32) -> f32 {at(7)}",
        f"{STORE.format('z')} {at(9)}", RETURN,
    )  # fmt: skip
    made = mark_ttgir(text, Auto.of("stores,lines"))
    stores = [name for name in marks(made.text) if " store " in name]
    assert stores == [f"{letter} store attn.py:{line}" for line in (4, 9) for letter in "BE"]
    assert _nested(made.text)


def test_iterations_count_from_zero_whatever_the_loop_counts() -> None:
    body = ["  tt.store %p, %p : tensor<4xf32> loc(#loc)", f"}} {at(3)}"]
    constants = ["%c0 = arith.constant 0 : i32 loc(#loc)", "%c1 = arith.constant 1 : i32 loc(#loc)"]
    plain = mark_ttgir(module(*constants, FOR, *body, RETURN), Auto.of("loops")).text
    assert re.search(r"V loop%20attn.py:3 s32 \$1.* %i : i32 -> i32", plain)
    strided = FOR.replace("%c0 to", "%a to").replace("step %c1", "step %b").replace(": i32 {", ": i64 {")
    text = mark_ttgir(module(*constants, strided, *body, RETURN), Auto.of("loops")).text
    assert re.search(r"arith\.subi %i, %a : i64.*\n.*arith\.divui %warplens_\d+, %b : i64.*\n.*V loop\S+ s64", text)
    index = mark_ttgir(module(FOR.replace("  : i32 {", " {"), *body, RETURN), Auto.of("loops")).text
    assert re.search(r"arith\.index_cast %warplens_\d+ : index to i64", index)


def test_a_loop_in_a_loop_of_the_same_line_has_a_name_of_its_own() -> None:
    text = module(FOR, f"  {FOR}", f"    {STORE.format('p')} {at(4)}", f"  }} {at(3)}", f"}} {at(3)}", RETURN)
    names = [name for name in marks(mark_ttgir(text, Auto.of("loops")).text) if name.startswith("B")]
    assert names == ["B loop attn.py:3", "B loop attn.py:3 (2)"]


def test_the_cap_keeps_what_runs_least_often() -> None:
    ops = [f"{STORE.format('p')} {at(line)}" for line in (1, 2)]
    text = module(*ops, FOR, f"  {STORE.format('p')} {at(5)}", f"  {STORE.format('p')} {at(6)}", f"}} {at(4)}", RETURN)
    made = mark_ttgir(text, Auto.of("stores,lines", most=3))
    assert dict(made.dropped) == {"lines": 5, "stores": 1}
    assert [site.region for site in made.sites] == [f"store attn.py:{line}" for line in (1, 2, 5)]
    ranged = mark_ttgir(text, Auto.of("stores", {"r": "attn.py:5-6"}, most=1))
    assert [site.region for site in ranged.sites] == ["r"], "what was asked for by name stays"


def test_coverage_says_where_there_is_code() -> None:
    coverage = LineCoverage()
    coverage.add(["found"], {FILE: [3, 4, 5, 9]})
    ranges = [LineRange("found", "attn.py", 3, 4), LineRange("lost", "attn.py", 6, 8), LineRange("x", "b.py", 1, 1)]
    assert coverage.missing(ranges) == [
        f"region lost=attn.py:6-8: no kernel that ran has code in these lines; {FILE} has code in lines 3-5, 9",
        "region x=b.py:1-1: no kernel that ran has code in a file b.py; files with code: attn.py (3-5, 9)",
    ]


def _nested(text: str) -> bool:
    stack: list[str] = []
    for mark in marks(text):
        letter, name = mark.split(" ", 1)
        if letter == "B":
            stack.append(name)
        elif letter == "E" and (not stack or stack.pop() != name):
            return False
    return not stack


_OTHERS = ["ttg.async_wait {num = 0 : i32}", '%r = "tt.reduce"(%v) <{axis = 0 : i32}>', "%s = tt.splat %c : i32 -> i32"]
OPS = st.sampled_from([LOAD.format("v"), ADD.format("w", "v"), STORE.format("w"), *_OTHERS])


@st.composite
def blocks(draw: st.DrawFn, depth: int = 0) -> list[str]:
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(st.integers(0, 3 if depth < 3 else 1))
        if kind <= 1:
            lines.append(f"{draw(OPS)} {at(draw(st.integers(1, 6)))}")
        else:
            inner = ["  " + line for line in draw(blocks(depth=depth + 1))]
            head = FOR if kind == 2 else "scf.if %c {"
            middle = ["} else {", *inner] if kind == 3 and draw(st.booleans()) else []
            lines += [head, *inner, *middle, f"}} {at(draw(st.integers(1, 6)))}"]
    return lines


@settings(max_examples=300, deadline=None)
@given(blocks(), st.sets(st.sampled_from(["loads", "stores", "waits", "reduce", "loops", "lines"])), st.data())
def test_any_program_keeps_its_lines_and_its_marks_nest(
    body: list[str], classes: set[str], data: st.DataObject
) -> None:
    spans = [
        sorted(data.draw(st.tuples(st.integers(1, 6), st.integers(1, 6)))) for _ in range(data.draw(st.integers(0, 3)))
    ]
    ranges = {f"r{n}": f"attn.py:{a}-{b}" for n, (a, b) in enumerate(spans)}
    text = module(*body, RETURN)
    made = mark_ttgir(text, Auto.of(classes, ranges, most=data.draw(st.sampled_from([3, 1000]))))
    assert "\n".join(line for line in made.text.split("\n") if not line.startswith("%warplens")) == text
    assert _nested(made.text)
    assert sum(mark.startswith("B") for mark in marks(made.text)) == len(made.sites)


def test_time_to_mark_grows_with_the_lines_and_no_faster() -> None:
    def long(pairs: int) -> str:
        lines = [(LOAD.format(f"v{n}"), ADD.format(f"w{n}", f"v{n}")) for n in range(pairs)]
        return module(*(f"{line} {at(n % 50)}" for n, pair in enumerate(lines) for line in pair), RETURN)

    # Four times the lines: 16 times the time were it square.
    assert growth(lambda text: mark_ttgir(text, Auto.of("all")), long(500), long(2000)) < 8
