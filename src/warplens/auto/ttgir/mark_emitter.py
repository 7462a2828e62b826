"""Emit marks as TTGIR operations, and fix them up in the PTX that Triton compiles from it."""

from __future__ import annotations

import re
from collections import defaultdict

from warplens.auto.ttgir.operation_spans import Span
from warplens.auto.ttgir.operation_tree import Op, OperationBlock
from warplens.weave.mark_comments import PREFIX, mark_text

_FOR = re.compile(
    r"scf\.for (?:unsigned )?(%[\w$.#-]+) = (%[\w$.#-]+) to %[\w$.#-]+ step (%[\w$.#-]+).*?(?: : (\w+))? \{$"
)
_CONSTANT = re.compile(r"(%[\w$.-]+) = arith\.constant (-?\d+) : ")
_TYPES = {"i32": ("s32", "r"), "i64": ("s64", "l"), "f32": ("f32", "f"), "f64": ("f64", "d")}
VALUES = tuple(_TYPES)
"""The MLIR types that a value mark can record."""


COUNTER = "%warplens_n"
"""The prefix of the PTX registers that count the iterations of while loops, which have no induction variable."""


def declare_counters(ptx: str) -> str:
    """Declare the counters that marks use, in every function that has a body."""
    names = sorted(set(re.findall(COUNTER + r"\d+\b", ptx)))
    return ptx.replace("\n{\n", f"\n{{\n\t.reg .b32 {', '.join(names)};\n") if names else ptx


_SILENT = re.compile(r"\s*(?:[.]|//|\$L__(?:func_begin|tmp)\d+:|$)")
"""Lines that are neither an instruction nor a jump target."""
_ELSEWHERE = re.compile(r"\s*(?:@|[$\w]+:|bra\b|brx\b|call\b|ret\b|exit\b|\})")
_FIRST_LINE = re.compile(r"// @warplens B line%20\S+")


def begin_at_once(ptx: str) -> str:
    """Move the begin mark of the kernel's first line to the kernel's start.

    LLVM moves parameter loads and other independent code before it.
    """
    lines = ptx.split("\n")
    entry = next((number for number, line in enumerate(lines) if ".entry" in line), len(lines))
    opens = next((number for number in range(entry, len(lines)) if lines[number].rstrip() == "{"), len(lines))
    top: int | None = None
    for number in range(opens + 1, len(lines)):
        line = lines[number]
        if PREFIX in line:
            mark = _FIRST_LINE.search(line)
            if mark is not None and top is not None:
                lines[number] = line.replace(mark[0], "")
                lines.insert(top, "\t" + mark[0])
            break
        if _SILENT.match(line):
            continue
        if _ELSEWHERE.match(line):
            break
        top = number if top is None else top
    return "\n".join(lines)


def _asm(name: str, text: str, location: str, register: str = "", operand: str = "") -> str:
    constraints = ",".join(part for part in ("=r", register, "~{memory}") if part)
    return (
        f'{name} = tt.elementwise_inline_asm "mov.u32 $0, 0; {text}" {{constraints = "{constraints}", '
        f"packed_element = 1 : i32, pure = false}}{operand} -> i32 loc({location or 'unknown'})"
    )


def mark_op(name: str, letter: str, region: str, location: str = "", value: str = "", type: str = "") -> str:
    """One mark: inline asm whose text is a comment, so that it costs nothing until the weaver expands it."""
    kind, register = _TYPES[type] if value else ("", "")
    text = mark_text(letter, region, kind, "$1") if value else mark_text(letter, region)
    return _asm(name, f"// {text}", location, register, f" {value} : {type}" if value else "")


class Emitter:
    """Collects marks and inserts them between the lines of TTGIR."""

    def __init__(self, lines: list[str], top: list[Op]) -> None:
        self.lines = lines
        self.inserted: dict[int, list[str]] = defaultdict(list)
        self.count = 0
        self.stem = "%warplens"
        while any(self.stem in line for line in lines):
            self.stem += "_"
        self.constants = {name: int(value) for name, value in _CONSTANT.findall("\n".join(lines))}

    def block(self, block: OperationBlock, spans: list[tuple[Op | None, Span]]) -> None:
        """Emit the marks of a block: ends before begins, inner ends first, inner begins last."""
        # Of two spans that cover the same operations, the later one is the inner one and ends first.
        ends = sorted(spans, key=lambda item: (item[1].start, item[1].level))[::-1]
        begins = sorted(spans, key=lambda item: (-item[1].stop, item[1].level))
        ending: defaultdict[int, list[Span]] = defaultdict(list)
        beginning: defaultdict[int, list[tuple[Op | None, Span]]] = defaultdict(list)
        for _, span in ends:
            ending[span.stop].append(span)
        for loop, span in begins:
            beginning[span.start].append((loop, span))
        for index in sorted({*ending, *beginning}):
            at = self.inserted[block.line_of(index)]
            for span in ending[index]:
                at.append(self._mark("E", span, block.ops[index - 1]))
            for loop, span in beginning[index]:
                at.append(self._mark("B", span, block.ops[index]))
                if loop is not None:
                    at += self._iteration(loop, span, block.ops[index])

    def _new(self) -> str:
        self.count += 1
        return f"{self.stem}_{self.count}"

    def _mark(self, letter: str, span: Span, near: Op) -> str:
        return mark_op(self._new(), letter, span.site.region, near.location)

    def _iteration(self, loop: Op, span: Span, near: Op) -> list[str]:
        """Record the iteration number, counted from 0, as the region's value."""
        found = _FOR.search(loop.header.partition(" loc(")[0])
        if found is None:
            return self._counted(loop, span, near)
        value, low, step, kind = found[1], found[2], found[3], found[4] or "index"
        place = f"loc({near.location or 'unknown'})"
        texts = []

        def compute(text: str) -> str:
            name = self._new()
            texts.append(f"{name} = {text} {place}")
            return name

        if self.constants.get(low) != 0:
            value = compute(f"arith.subi {value}, {low} : {kind}")
        if self.constants.get(step) != 1:
            value = compute(f"arith.divui {value}, {step} : {kind}")
        if kind not in _TYPES:
            value, kind = compute(f"arith.index_cast {value} : {kind} to i64"), "i64"
        return [*texts, mark_op(self._new(), "V", span.site.region, near.location, value, kind)]

    def _counted(self, loop: Op, span: Span, near: Op) -> list[str]:
        register = f"{COUNTER}{loop.first}"
        self.inserted[loop.first].append(_asm(self._new(), f"mov.u32 {register}, 0;", loop.location))
        return [
            _asm(self._new(), "// " + mark_text("V", span.site.region, "u32", register), near.location),
            _asm(self._new(), f"add.u32 {register}, {register}, 1;", near.location),
        ]

    def text(self) -> str:
        out: list[str] = []
        for number, line in enumerate(self.lines):
            out += self.inserted.get(number, ())
            out.append(line)
        return "\n".join(out)
