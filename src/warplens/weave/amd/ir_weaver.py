"""weave_ir(): LLVM IR of an AMD kernel whose marks are comments in, LLVM IR that records out.

Each mark becomes a clock read, between two barriers for the instruction scheduler, and a store right after it. Marks
without an instruction between them share a clock read. The kernel is edited as text, when LLVM's optimiser is done.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from warplens.errors import UsageError, WarplensError
from warplens.ptx.syntax import PtxError
from warplens.record.layout import HEADER_BYTES, MAX_REGION, MAX_TAG, TAG_SHIFT, Kind
from warplens.weave.amd.gpu_traits import GpuTraits
from warplens.weave.amd.ir_marks import IrMark, ir_mark
from warplens.weave.amd.offset_values import ir_blocks, join_offsets
from warplens.weave.amd.track_ir import DECLARATIONS, NEEDED, TrackIr
from warplens.weave.mark_comments import PREFIX, encode_name
from warplens.weave.record_words import RecordWords
from warplens.weave.weaving import Selection, Weaving
from warplens.weave.woven_ptx import Woven

_KERNEL = re.compile(r"define amdgpu_kernel void @([\w.$]+)\((.*)\)[^()]*?#(\d+).*\{$")
_POINTER = re.compile(r"ptr addrspace\(1\) (?P<attributes>[^%]*)(?P<name>%[\w.$]+)$")
_UNTRUE = re.compile(r"readnone |readonly |captures\([^)]*\) ")
"""Attributes of the buffer's parameter that hold no longer."""
_MEMORY = re.compile(r" memory\([^\"]*?\)(?= |$)")
_TO_64 = {
    "s32": ("i32", "sext i32 {} to i64"),
    "u32": ("i32", "zext i32 {} to i64"),
    "s64": ("i64", "add i64 {}, 0"),
    "u64": ("i64", "add i64 {}, 0"),
    "f32": ("float", "fpext float {} to double"),
    "f64": ("double", "bitcast double {} to i64"),
}


@dataclass(frozen=True)
class _Kernel:
    name: str
    attributes: str
    pointer: str
    first: int
    end: int


def check_weaving(how: Weaving) -> None:
    """Refuse what is only woven into PTX."""
    refused = {
        "full='ring'": how.full != "stop",
        "clock='64'": how.clock != "32",
        "mode='aggregate'": how.mode != "trace",
        "a selection of warps, blocks or SMs": how.select != Selection(),
        "a delay": how.delay is not None,
        "a buffer in shared memory": how.shared is not None,
    }
    for what, asked in refused.items():
        if asked:
            raise UsageError(f"{what} is not supported in kernels for AMD's GPUs: leave it out")


def weave_ir(source: str, traits: GpuTraits, waves: int, how: Weaving | None = None, *, fenced: bool = True) -> Woven:
    """Weave the kernel of a module, `waves` waves per block. Without marks, only the life of each wave is recorded.

    `fenced=False` leaves the barriers for the scheduler out. Arithmetic may then move across a mark.
    """
    how = how or Weaving()
    check_weaving(how)
    lines = source.splitlines()
    kernel = _kernel(lines)
    track = TrackIr(traits, waves, kernel.pointer, fenced=fenced)
    body = _Body(track, how)
    woven = body.weave(lines[kernel.first : kernel.end])
    head = [_without_promises(line, kernel) for line in lines[: kernel.first]]
    tail = [_without_promises(line, kernel) for line in lines[kernel.end :]]
    outside = next((line for line in (*head, *tail) if PREFIX in line), None)
    if outside is not None:
        raise WarplensError(
            f"kernel {kernel.name} has marks in a function that is not inlined, which is not supported on AMD's GPUs: "
            "remove noinline=True or the marks"
        )
    missing = [text for name, text in DECLARATIONS.items() if f" @{name}(" not in "\n".join(tail)]
    text = "\n".join([*head, *woven, *tail[:1], "", *missing, *tail[1:], ""])
    regions = {number: name for name, number in body.ids.items()}
    threads = {kernel.name: waves * traits.lanes}
    return Woven(text, regions, entries={kernel.name: body.marks}, threads=threads, stores={kernel.name: "now"})


def _kernel(lines: list[str]) -> _Kernel:
    """Find the kernel, the range of its lines, and the parameter of the profile's buffer, which is its last one."""
    for at, line in enumerate(lines):
        found = _KERNEL.match(line)
        if found is None:
            continue
        pointer = _POINTER.search(found[2])
        if pointer is None:
            raise PtxError(at + 1, line, "the last parameter is not the profile's buffer", "use Triton 3.6 or newer")
        end = lines.index("}", at)
        return _Kernel(found[1], found[3], pointer["name"], at + 1, end)
    raise WarplensError("the LLVM IR has no kernel")


def _without_promises(line: str, kernel: _Kernel) -> str:
    """Remove the attributes of the kernel that do not hold for woven code."""
    found = _KERNEL.match(line)
    if found is not None:
        at, end = found.span(2)
        cut = found[2].rfind("ptr addrspace(1)")
        return line[: at + cut] + _UNTRUE.sub("", found[2][cut:]) + line[end:]
    if line.startswith(f"attributes #{kernel.attributes} = "):
        for name in NEEDED:
            line = line.replace(f'"{name}" ', "").replace(f'"{name}"="true" ', "")
        return _MEMORY.sub("", line)
    return line


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]


class _Body:
    """Rewrites a kernel's lines one by one."""

    def __init__(self, track: TrackIr, how: Weaving) -> None:
        self.track = track
        self.omit = {encode_name(name) for name in how.omit} | set(how.omit)
        self.fuse = how.fuse
        self.ids: dict[str, int] = {}
        self.marks = 0
        self._clock = ""
        """The clock that the line before has read, if it was a mark."""
        self._offset = ""

    def weave(self, lines: list[str]) -> list[str]:
        """The lines of the woven kernel."""
        blocks, outgoing = ir_blocks(lines), dict[str, str]()
        for block in blocks:
            self._clock, self._offset = "", block.incoming
            block.lines = [made for line in block.lines for made in self._line(line)]
            if self._offset != block.incoming:
                outgoing[block.name] = self._offset
        join_offsets(blocks, outgoing, str(HEADER_BYTES))
        blocks[0].lines[:0] = _indented(self.track.prologue())
        return [line for block in blocks for line in (*([block.label] if block.label else []), *block.lines)]

    def _line(self, text: str) -> list[str]:
        """What stands for a line of the kernel."""
        found = ir_mark(text)
        if found is not None:
            if found.mark.name in self.omit:
                return _dead(found)
            return [*_indented(self._record(found)), *_dead(found)]
        self._clock = ""
        if text.strip().startswith("ret void"):
            return [*_indented(self.track.epilogue(self._offset)), text]
        return [text]

    def _record(self, found: IrMark) -> list[str]:
        mark = found.mark
        self.marks += 1
        lines = list[str]()
        if not (self.fuse and self._clock and mark.shares_clock):
            self._clock = f"%wl.mark{self.marks}.clock"
            lines += self.track.read_clock(self._clock)
        payload = ""
        if mark.kind is Kind.ANCHOR:
            payload, reads = self.track.timer()
            lines += reads
        elif mark.kind is Kind.VALUE:
            payload = f"%wl.mark{self.marks}.value"
            lines += _payload(payload, found)
        word, made = self._word(found)
        self._offset, stores = self.track.record(self._offset, word, self._clock, payload)
        return [*lines, *made, *stores]

    def _word(self, found: IrMark) -> tuple[str, list[str]]:
        """The first word of a record, and what computes it where a tag is only known at run time."""
        mark = found.mark
        if mark.kind is not Kind.ANCHOR and mark.name not in self.ids:
            if len(self.ids) == MAX_REGION:
                raise UsageError(f"more than {MAX_REGION} region names")
            self.ids[mark.name] = len(self.ids) + 1
        word = RecordWords(self.ids).word(mark)
        if not found.value or mark.kind is Kind.VALUE:
            return str(_signed(word)), []
        stem = f"%wl.mark{self.marks}.tag"
        return f"{stem}.word", [
            f"{stem}.kept = and i32 {found.value}, {MAX_TAG}",
            f"{stem}.high = shl i32 {stem}.kept, {TAG_SHIFT}",
            f"{stem}.word = or i32 {stem}.high, {_signed(word)}",
        ]


def _payload(name: str, found: IrMark) -> list[str]:
    kind, convert = _TO_64[found.mark.type]
    if found.type not in ("", kind):
        raise PtxError(found.mark.line, found.mark.name, f"its value has type {found.type}, not {kind}")
    lines = [f"{name} = {convert.format(found.value)}"]
    if found.mark.type == "f32":
        return [lines[0].replace(name, f"{name}.wide", 1), f"{name} = bitcast double {name}.wide to i64"]
    return lines


def _signed(word: int) -> int:
    return word - (1 << 32) if word >> 31 else word


def _dead(found: IrMark) -> list[str]:
    """What stands for the call of the comment: its result has a number that later values count from."""
    return [f"  {found.result} = freeze i32 poison"] if found.result else []
