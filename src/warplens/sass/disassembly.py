"""Run nvdisasm on a cubin and parse its listing: instructions with their PTX lines, labels and branches."""

from __future__ import annotations

import functools
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from warplens.sass.cubin_file import SassError, read_cubin_file
from warplens.sass.cuda_tools import all_tools, find_tool
from warplens.sass.opcode_classes import class_of

TIMEOUT_S = 120
OTHER_SECTIONS = 1 << 32
"""The least address of an instruction that is not in the kernel's own section, in `linked` code."""
_SECTION = re.compile(r"\s*\.section\s+\.text\.([^,\s]+)\s*,")
_LINE = re.compile(r'\s*//## File "([^"]*)", line (\d+)')
"""With -gp, nvdisasm only prints lines of the PTX, with -g those of `.loc`; a linker changes the file's name."""
_LABEL = re.compile(r"([.$\w]+):\s*$")
_INSTRUCTION = re.compile(
    r"\s*/\*([0-9a-f]+)\*/\s+(?:@(?P<negated>!?)(?P<predicate>U?P\w+)\s+)?(?P<opcode>[A-Z][\w.]*)\s*(?P<operands>[^;]*);"
)
_SCHEDULE = re.compile(r"(?:^|\s+)(?:\?\w+|&\w+=\S+)")
"""How the instruction is scheduled, which nvdisasm prints behind the operands for sm_120."""
_CALLED = re.compile(r"`\(((?!\.L)[^)]+)\)")
_TARGETS = re.compile(r"`\(([^)]+)\)|BRANCH_TARGETS\s+([^\"]+)")


_MOVES = re.compile(r"(?:@\S+ )?(?:HFMA2\S* R\d+, -RZ, RZ,|U?IMAD(?!\.X)\S* U?R\d+, U?RZ, U?RZ,)")


@dataclass(frozen=True, slots=True)
class SassInstruction:
    """One instruction; `line` is the line of the PTX that it was made for, 0 if unknown."""

    address: int
    opcode: str
    operands: str
    predicate: str = ""
    line: int = 0

    @property
    def kind(self) -> str:
        """Its class. ptxas also moves values by adding them to a product of zeros."""
        return "move" if _MOVES.match(self.text) else class_of(self.opcode)

    @property
    def reads_clock(self) -> bool:
        return "SR_CLOCKLO" in self.operands or "SR_CLOCK_LO" in self.operands

    @property
    def called(self) -> str:
        """The function that it calls; empty for a call by a pointer, and for one of a local label: that is a jump to
        code out of reach of a branch, and sets no address to return to."""
        match = _CALLED.match(self.operands) if self.opcode.startswith("CALL") else None
        return match[1] if match else ""

    @property
    def text(self) -> str:
        guard = f"@{self.predicate} " if self.predicate else ""
        return f"{guard}{self.opcode} {self.operands}".strip()


@dataclass(frozen=True)
class SassFunction:
    """The machine code of one kernel, in the order of its addresses."""

    name: str
    instructions: tuple[SassInstruction, ...]
    labels: dict[str, int] = field(default_factory=dict)
    """The address of each label."""

    @cached_property
    def index_of(self) -> dict[int, int]:
        return {one.address: number for number, one in enumerate(self.instructions)}

    @property
    def has_lines(self) -> bool:
        return any(one.line for one in self.instructions)

    def successors(self) -> list[list[int]]:
        """By number of an instruction, the numbers of those that may come after it; after a call, those behind it."""
        regions: dict[str, int] = {}  # by convergence barrier, where its newest BSSY leads
        return [self._following(number, one, regions) for number, one in enumerate(self.instructions)]

    def calls(self) -> dict[int, int]:
        """By number of a call: that of the first instruction of the subroutine in this code that it calls."""
        found: dict[int, int] = {}
        for number, one in enumerate(self.instructions):
            if one.called:
                found.update((number, self.index_of[at]) for at in self._targets(one.operands) if at in self.index_of)
        return found

    def _following(self, number: int, one: SassInstruction, regions: dict[str, int]) -> list[int]:
        base = one.opcode.partition(".")[0]
        after = [number + 1] if number + 1 < len(self.instructions) else []
        targets = [self.index_of[at] for at in self._targets(one.operands) if at in self.index_of]
        barrier = one.operands.partition(",")[0].strip()
        if base == "BSSY":
            regions.update((barrier, target) for target in targets)
            return after
        if base == "BSYNC":
            return [regions.get(barrier, number + 1), *(after if one.predicate else [])]
        if base in ("EXIT", "RET", "KILL", "RTT"):
            return after if one.predicate else []
        if base == "CALL" and not one.called and one.operands.startswith("`"):
            return [*targets, *(after if one.predicate else [])]
        if base in ("BRA", "BRX", "BRXU", "JMP", "JMX", "JMXU"):
            # A branch may also name its condition among its operands: BRA.U !UP0, `(.L_x_1).
            always = not one.predicate and (one.operands.startswith("`") or base not in ("BRA", "JMP"))
            return targets if always else [*targets, *after]
        return after

    def _targets(self, operands: str) -> Iterator[int]:
        for one, many in _TARGETS.findall(operands):
            for name in [one] if one else many.split(","):
                if name.strip() in self.labels:
                    yield self.labels[name.strip()]


def linked(functions: Mapping[str, SassFunction], kernel: str) -> SassFunction:
    """A kernel with the functions that it calls, which are in sections of their own where they are compiled separately
    or for debugging. Their addresses begin past `OTHER_SECTIONS`."""
    found = [kernel]
    for name in found:
        called = dict.fromkeys(one.called for one in functions[name].instructions if one.called)
        found += [target for target in called if target in functions and target not in found]
    if len(found) == 1:
        return functions[kernel]
    rows: list[SassInstruction] = []
    labels: dict[str, int] = {}
    for number, name in enumerate(found):
        shift = number * OTHER_SECTIONS
        rows += [replace(one, address=one.address + shift) for one in functions[name].instructions]
        labels |= {label: at + shift for label, at in functions[name].labels.items()} | {name: shift}
    return SassFunction(kernel, tuple(rows), labels)


def disassemble(cubin: bytes, *, by_loc: bool = False) -> dict[str, SassFunction]:
    """Disassemble every function of a cubin. Lines are those of its PTX, or with `by_loc` those that its `.loc` named.

    Raises a `SassError` if there is no nvdisasm, or if it refuses.
    """
    read_cubin_file(cubin)
    find_tool("nvdisasm")
    return dict(_disassembled(cubin, tuple(all_tools("nvdisasm")), by_loc))


@functools.lru_cache(maxsize=4)  # the kernels of a program are verified one by one
def _disassembled(cubin: bytes, tools: Sequence[str], by_loc: bool) -> dict[str, SassFunction]:
    problem = SassError("")
    for tool in tools:
        try:
            return parse_listing(_listing(tool, cubin, "-g" if by_loc else "-gp"))
        except SassError as error:  # another copy may be newer than this one
            problem = problem if str(problem) else error
    raise problem


def _listing(tool: str, cubin: bytes, lines: str) -> str:
    with tempfile.TemporaryDirectory(prefix="warplens-sass-") as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        try:
            done = subprocess.run([tool, "-c", lines, str(path)], capture_output=True, timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise SassError(f"nvdisasm took longer than {TIMEOUT_S} s") from None
        except OSError as error:
            raise SassError(f"nvdisasm cannot be run: {error}") from None
    if done.returncode:
        said = (done.stderr or done.stdout).decode(errors="replace").strip().partition("\n")[0]
        raise SassError(f"nvdisasm cannot read this cubin: {said.replace(str(path), 'cubin')[:200]}")
    return done.stdout.decode(errors="replace")


def parse_listing(text: str) -> dict[str, SassFunction]:
    """Parse what `nvdisasm -c` prints with lines."""
    found: dict[str, SassFunction] = {}
    name, line = "", 0
    rows: list[SassInstruction] = []
    labels: dict[str, int] = {}
    waiting: list[str] = []

    def close() -> None:
        if name:
            found[name] = SassFunction(name, tuple(rows), dict(labels))

    for raw in text.splitlines():
        section = _SECTION.match(raw)
        if section:
            close()
            name, line, rows, labels, waiting = section[1], 0, [], {}, []
            continue
        if not name:
            continue
        if place := _LINE.match(raw):
            line = int(place[2])
        elif match := _INSTRUCTION.match(raw):
            address = int(match[1], 16)
            labels.update(dict.fromkeys(waiting, address))
            waiting = []
            guard = f"{match['negated']}{match['predicate']}" if match["predicate"] else ""
            operands = _SCHEDULE.sub("", match["operands"]).strip()
            rows.append(SassInstruction(address, match["opcode"], operands, guard, line))
        elif label := _LABEL.match(raw):
            waiting.append(label[1])
            if not label[1].startswith(".L"):
                line = 0  # a subroutine of ptxas's own, such as a division, which no line of the PTX stands for
    close()
    return found
