"""Damaged PTX: parsing, automatic marks and weaving return a result or raise a PtxError, and nothing else."""

from __future__ import annotations

import functools
import random
import re
from pathlib import Path

from tests.support import large_ptx
from tests.support.paths import GOLDEN
from warplens.auto.ptx import mark_ptx
from warplens.auto.ptx.ptx_marker import mark_unmarked_code
from warplens.auto.rules import Auto
from warplens.ptx.module_variables import kernel_variables
from warplens.ptx.syntax import PtxError
from warplens.ptx.tree import parse
from warplens.weave.weaver import weave
from warplens.weave.weaving import POLICIES, LaunchBuffer, ParamBuffer, SymbolBuffer, Weaving

MAX_BYTES = 12_000
"""Longer golden files are left out: damage in them is not other damage, and takes longer."""
MARKS = ("B r", "E r", "I i", "V v f32 %f1", "V v u32 %r1", "V v s64 5", "A a 3", "Z a %r1", "T", "V v", "A a 99", "X")
ODD = ("{", "}", "{ }", ";", "\"", "/*", "*/", "//", "(", ")", "[", "]", "@", "@!%p1", "é", "\0", "\u202e", "ret;",
       "exit;", "@%p1 ret;", "bra $L0;", "$L0:", ".alias a, b;", ".reg .b32 %x<4>;", ".reg", ".align", ".entry k()",
       ".func f()", "call f, ();", "call %r1, (x), p;", "bar.sync 0;", "brx.idx %r1, $L0;", ".loc 1 x y",
       '.file 1 "a', "// @woven {", "99999999999999999999", "0x", "%p1", "fma.rn.f32 %f1, %f2;", ".section .x {",
       ".branchtargets $L0;", ".version", ".address_size x", ".param .b64 x[", "mov.u32 %r1, %tid.x;")  # fmt: skip
_TOKEN = re.compile(r"[\w$%.@]+|[^\w\s]")


@functools.cache
def sources() -> list[str]:
    golden = [path.read_text() for path in sorted((GOLDEN / "ptx").glob("*.ptx"))]
    small = [text for text in golden if len(text) <= MAX_BYTES]
    makers = (large_ptx.straight, large_ptx.many_blocks, large_ptx.loops, large_ptx.functions, large_ptx.values,
              large_ptx.unmarked, large_ptx.recomputed, large_ptx.early_returns)  # fmt: skip
    return small + [make(3) for make in makers]


def damaged(random: random.Random) -> str:
    """A source with some lines or tokens deleted, repeated, swapped, replaced or cut off, and perhaps with marks."""
    lines = random.choice(sources()).split("\n")
    for _ in range(random.choice((0, 0, 2, 6))):
        lines.insert(random.randrange(len(lines) + 1), f"\t// @warplens {random.choice(MARKS)}")
    for _ in range(random.choice((1, 1, 1, 2, 5))):
        _damage(lines, random)
    text = "\n".join(lines)
    return text[: random.randrange(len(text) + 1)] if random.random() < 0.1 else text


def _damage(lines: list[str], random: random.Random) -> None:
    at, other = random.randrange(len(lines)), random.randrange(len(lines))
    kind = random.randrange(8)
    if kind == 0 and len(lines) > 1:
        del lines[at : at + random.choice((1, 1, 1, 5, 40))]
        lines[:] = lines or [""]
    elif kind == 1:
        lines[at:at] = lines[other : other + random.choice((1, 1, 5, 40))]
    elif kind == 2:
        lines[at], lines[other] = lines[other], lines[at]
    elif kind == 3:
        lines.insert(at, random.choice(ODD))
    else:
        tokens = list(_TOKEN.finditer(lines[at]))
        if tokens:
            token, donor = random.choice(tokens), _TOKEN.findall(lines[other]) or [""]
            new = random.choice(["", token[0] * 2, random.choice(donor), random.choice(ODD), token[0][:-1]])
            lines[at] = lines[at][: token.start()] + new + lines[at][token.end() :]


def run_case(random: random.Random) -> str:
    """Parse, mark and weave one damaged text; the outcome says how far it came."""
    text = damaged(random)
    auto = Auto.of(random.choice(("all", "loads,stores", "loops", True)), most=random.choice((3, 256)))
    how = Weaving(
        store=random.choice(POLICIES), full=random.choice(("stop", "ring")), clock=random.choice(("32", "64")),
        lean=random.random() < 0.3, aligned=random.random() < 0.5,
    )  # fmt: skip
    buffer = random.choice(
        (ParamBuffer(-1), ParamBuffer(-1), SymbolBuffer(), SymbolBuffer(), ParamBuffer(7), LaunchBuffer())
    )
    reached = "parse"
    try:
        module = parse(text)
        assert module.text() == text, "the parsed text does not print back"
        reached = "variables"
        for entry in module.entries:
            kernel_variables(module, entry.name)
        reached = "mark"
        marked = mark_ptx(text, auto)
        reached = "mark unmarked code"
        mark_unmarked_code(marked.text)
        reached = "weave"
        woven = weave(marked.text, buffer=buffer, how=how)
        reached = "parse the woven text"
        parse(woven.text)
    except PtxError as error:
        if reached == "parse the woven text":
            raise RuntimeError("weaving made PTX that cannot be parsed") from error
        return f"refused in: {reached}"
    return "woven" if woven.entries else "nothing to weave"


def case(draw: random.Random, folder: Path) -> None:
    """Damage golden PTX; only a result or a PtxError may come out."""
    run_case(draw)
