"""An independent account of what marks must record: each becomes PTX that appends its number to its thread's log."""

from __future__ import annotations

import itertools
import re
import struct
from dataclasses import dataclass

import numpy as np

from warplens.record.layout import Kind
from warplens.simulate import LoadedModule
from warplens.weave.mark_comments import Mark, parse_mark
from warplens.weave.track_ptx import AWAITED

ENTRIES = 1500
"""The length of a thread's log."""
_MARK = re.compile(r"^[^\n]*//\s*(@warplens [^\n]*)$", re.MULTILINE)
_INDEX = """\
	mov.u32 %fz_a, %tid.z; mov.u32 %fz_b, %ntid.y; mov.u32 %fz_c, %tid.y; mad.lo.u32 %fz_a, %fz_a, %fz_b, %fz_c;
	mov.u32 %fz_b, %ntid.x; mov.u32 %fz_c, %tid.x; mad.lo.u32 %fz_a, %fz_a, %fz_b, %fz_c;
	mov.u32 %fz_c, %ntid.y; mul.lo.u32 %fz_b, %fz_b, %fz_c; mov.u32 %fz_c, %ntid.z; mul.lo.u32 %fz_b, %fz_b, %fz_c;
	mov.u32 %fz_c, %ctaid.x; mad.lo.u32 %fz_a, %fz_b, %fz_c, %fz_a;"""


@dataclass(frozen=True)
class Passed:
    """A mark that a thread passed. Of its `slots`, the first `before` hold a clock that the record can do without."""

    kind: Kind
    name: str
    tag: int = 0
    value: float | None = None
    slots: int = 1
    before: int = 0


def log_marks(text: str, threads: int) -> tuple[str, list[Mark]]:
    """The text with marks that write logs, and its marks by number."""
    marks: list[Mark] = []

    def replaced(found: re.Match[str]) -> str:
        mark = parse_mark(found[1].rstrip(), 0)
        assert mark is not None
        marks.append(mark)
        return (
            "\t{ .reg .b32 %fz_a, %fz_b, %fz_c; .reg .b64 %fz_p, %fz_n, %fz_v; .reg .pred %fz_q;\n"
            f"{_INDEX}\n\tmov.u64 %fz_p, fz_log; mul.wide.u32 %fz_v, %fz_a, {16 * (ENTRIES + 1)};\n"
            "\tadd.s64 %fz_p, %fz_p, %fz_v;\n"
            f"\tld.global.u32 %fz_a, [%fz_p]; add.u32 %fz_b, %fz_a, 1; st.global.u32 [%fz_p], %fz_b;\n"
            f"\tsetp.lt.u32 %fz_q, %fz_a, {ENTRIES}; mul.wide.u32 %fz_n, %fz_b, 16; add.s64 %fz_p, %fz_p, %fz_n;\n"
            f"\t{_raw(mark)}\n\tmov.b64 %fz_n, {len(marks) - 1};\n"
            "\t@%fz_q st.global.v2.u64 [%fz_p], {%fz_n, %fz_v};\n\t}"
        )

    # Marks that wait for a value use registers of the woven track, and only for the time that it takes.
    text = re.sub(rf"^.*{AWAITED}.*$", "", _MARK.sub(replaced, text), flags=re.MULTILINE)
    at = re.search(r"^\.address_size.*$", text, re.MULTILINE)
    assert at is not None
    declared = f"\n.visible .global .align 16 .b8 fz_log[{16 * (ENTRIES + 1) * threads}];\n"
    return text[: at.end()] + declared + text[at.end() :], marks


def _raw(mark: Mark) -> str:
    """PTX that sets %fz_v to the bits of the mark's operand."""
    if not mark.operand:
        return "mov.b64 %fz_v, 0;"
    if mark.type in ("s64", "u64", "f64"):
        return f"mov.b64 %fz_v, {mark.operand};"
    return f"mov.b32 %fz_a, {mark.operand}; cvt.u64.u32 %fz_v, %fz_a;"


def read_log(module: LoadedModule, marks: list[Mark], threads: int) -> list[list[Passed]] | None:
    """What each thread passed; None if a log is too short."""
    raw = module.memory.read(module.symbols["fz_log"], np.uint64, 2 * (ENTRIES + 1) * threads)
    rows = raw.reshape(threads, ENTRIES + 1, 2)
    counts = rows[:, 0, 0]
    if counts.max() > ENTRIES:
        return None
    return [
        [_passed(marks[int(n)], int(v)) for n, v in row[1 : 1 + int(count)]]
        for row, count in zip(rows, counts, strict=True)
    ]


def _passed(mark: Mark, bits: int) -> Passed:
    if mark.kind is Kind.VALUE and mark.type:
        if mark.barrier is not None:
            return Passed(mark.kind, mark.name, slots=mark.slots)
        kind = {"s32": "<i", "u32": "<I", "f32": "<f", "s64": "<q", "u64": "<Q", "f64": "<d"}[mark.type]
        raw = bits.to_bytes(8, "little")
        return Passed(mark.kind, mark.name, value=float(struct.unpack_from(kind, raw)[0]), slots=mark.slots)
    return Passed(mark.kind, mark.name, tag=bits & 31 if mark.operand else 0, slots=mark.slots)


def nesting(passed: list[Passed]) -> dict[tuple[str, ...], int]:
    """How often each path of regions was executed; a ValueError if begins and ends do not match."""
    path: list[str] = []
    counts: dict[tuple[str, ...], int] = {}
    for one in passed:
        if one.kind is Kind.BEGIN:
            path.append(one.name)
            counts[tuple(path)] = counts.get(tuple(path), 0) + 1
        elif one.kind is Kind.END:
            if not path or path[-1] != one.name:
                raise ValueError(f"the end of {one.name} inside {path}")
            path.pop()
    if path:
        raise ValueError(f"{path} stay open")
    return counts


def kept_of(passed: list[Passed], capacity: int, full: str) -> list[Passed]:
    """What a track of this capacity keeps."""
    if full == "ring":
        ends = list(itertools.accumulate(one.slots for one in reversed(passed)))
        return [one for one, end in zip(reversed(passed), ends, strict=True) if end - one.before <= capacity][::-1]
    ends = list(itertools.accumulate(one.slots for one in passed))
    return [one for one, end in zip(passed, ends, strict=True) if end <= capacity]
