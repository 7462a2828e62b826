"""Where in a function a warp is whole: all of its lanes are there, or none.

A branch whose condition differs between lanes splits the warp from there to where all its ways meet again; after a
return that only some lanes take it stays split. What is not provably the same in every lane counts as different, so a
wrong answer can only be that a place is split where it is not. Lanes that were split and have met again need not run
together: a warp barrier there puts them in step, and since all of them come, it is safe. Lanes that leave a loop when
they hear from others (a lock) may be waiting for one that already left: they count as split up to a barrier of the
kernel's own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from warplens.weave.labels import jump_targets
from warplens.weave.ptx import Function, Instruction, Label, Node, walk

_NAME = re.compile(r"[A-Za-z_$%][\w$]*")
"""Registers, and whatever else is written like one: inline asm names its own without a %."""
_BY_LANE = re.compile(r"%(?:tid|laneid|lanemask|clock|globaltimer|pm\d|envreg|reg_)")
_SAME = frozenset({"vote", "redux"})
"""Their result is the same in every lane that takes part."""
_ALL_LANES = frozenset({"31", "0x1f", "0x1F"})
"""What makes a shuffle's lane one of the whole warp rather than of a part of it."""
_OWN = frozenset({"addc", "subc", "madc", "ld", "ldu", "atom", "match", "ldmatrix", "mma", "wmma", "wgmma",
                  "mbarrier", "elect", "call", "tex", "suld", "tld4", "activemask", "tcgen05", "movmatrix", "multimem",
                  "surf", "vset"})  # fmt: skip
"""Their result is each lane's own; a carry is not among the operands."""
_HEARS = frozenset({"volatile", "relaxed", "acquire", "mmio", "cv"})
"""Loads that see what other threads write meanwhile. A wait at an mbarrier is none: its phase ends for all lanes."""
_ENDS = frozenset({"bra", "brx", "ret", "exit", "trap"})


@dataclass
class _Piece:
    """Instructions without a jump between them; `nodes` also holds what stands among them."""

    nodes: list[Node] = field(default_factory=list)
    follow: list[int] = field(default_factory=list)

    @property
    def instructions(self) -> Iterator[Instruction]:
        return (node for node in self.nodes if isinstance(node, Instruction))

    @property
    def predicate(self) -> str | None:
        """What decides which way the piece is left."""
        last = self.nodes[-1] if self.nodes else None
        return last.predicate if isinstance(last, Instruction) else None


def hears(instruction: Instruction) -> bool:
    """Whether it reads what other threads write meanwhile."""
    return instruction.opcode == "atom" or (instruction.opcode == "ld" and bool(_HEARS & set(instruction.modifiers)))


class Wholeness:
    """`split` says of a node whether the warp may be split there; `ever` whether it is anywhere in the function."""

    def __init__(self, function: Function, *, aligned: bool = False) -> None:
        """`aligned`: the host launches it only with blocks whose x size is a multiple of 32."""
        sizes = function.performance.get("reqntid")
        # A function that is called gets each lane's own.
        self._params = {param.name for param in function.params if function.is_entry}
        self._aligned = aligned or (sizes is not None and sizes[0] % 32 == 0)
        self.known = self._aligned or (sizes is not None and math.prod(sizes) % 32 == 0)
        """Whether every warp of the kernel starts with 32 lanes."""
        self._pieces = _cut(function)
        self._of = {id(node): number for number, piece in enumerate(self._pieces) for node in piece.nodes}
        jumps = any(i.opcode == "brx" for piece in self._pieces for i in piece.instructions)
        self.differs: set[str] = set()
        self._heard: set[str] = set()
        """Registers that depend on what other threads write meanwhile."""
        self._split = set(range(len(self._pieces)) if jumps else ())
        self._thread = _thread_registers(self._pieces) if self._aligned else set()
        if not jumps:
            self._solve()

    def split(self, node: Node) -> bool:
        return self._of.get(id(node), -1) in self._split or id(node) not in self._of

    def own(self, operand: str) -> bool:
        """Whether an operand of a mark can differ between lanes."""
        return self._differ((operand,))

    @property
    def ever(self) -> bool:
        return bool(self._split)

    def _solve(self) -> None:
        """Registers that differ make branches that split, which make more registers differ, until nothing changes."""
        after = _postdominators(self._pieces)
        settled = sum(1 << number for number, piece in enumerate(self._pieces) if _settles(piece))
        told: set[int] = set()
        while True:
            before = len(self.differs), len(self._split), len(self._heard), len(told)
            for number, piece in enumerate(self._pieces):
                for instruction in piece.instructions:
                    if number in self._split or self._own(instruction):
                        self.differs.update(_written(instruction))
                    if number in told or self._hears(instruction):
                        self._heard.update(_written(instruction))
            for number, piece in enumerate(self._pieces):
                if len(piece.follow) > 1 and piece.predicate in self.differs:
                    parted = _between(self._pieces, number, after[number])
                    if piece.predicate in self._heard:
                        told |= parted
                        if number in parted:
                            parted = _between(self._pieces, number, after[number] & settled)
                    self._split |= parted
            if before == (len(self.differs), len(self._split), len(self._heard), len(told)):
                return

    def _hears(self, instruction: Instruction) -> bool:
        """Whether what it writes can depend on what other threads write meanwhile."""
        if hears(instruction):
            return True
        names = set(_NAME.findall(" ".join(instruction.operands[1:])))
        return instruction.predicate in self._heard or bool(self._heard & names)

    def _own(self, instruction: Instruction) -> bool:
        """Whether what it writes can differ between lanes."""
        if instruction.predicate in self.differs:
            return True
        opcode, operands = instruction.opcode, instruction.operands
        if opcode in _SAME:
            return self._differ(operands[2:])  # lanes may vote in groups, each with a mask of its own
        if opcode == "shfl":
            one = "idx" in instruction.modifiers and len(operands) == 5 and operands[2].isdigit()
            return not one or operands[3] not in _ALL_LANES or self._differ(operands[4:])
        if opcode in _OWN:
            return not self._constant_load(instruction)
        return not self._by_warp(instruction) and self._differ(operands[1:])

    def _differ(self, operands: tuple[str, ...]) -> bool:
        return any(_BY_LANE.search(text) or self.differs & set(_NAME.findall(text)) for text in operands)

    def _constant_load(self, instruction: Instruction) -> bool:
        """A load of the kernel's parameters or constants from an address that is the same in every lane."""
        if instruction.opcode != "ld" or not {"param", "const"} & set(instruction.modifiers):
            return False
        names = set(re.findall(r"[\w$%]+", instruction.operands[1]))
        own = "param" not in instruction.modifiers or bool(names & self._params)
        return own and not names & self.differs

    def _by_warp(self, instruction: Instruction) -> bool:
        """Arithmetic on threadIdx.x whose result is the same for 32 neighbours."""
        operands = instruction.operands
        if len(operands) < 3 or operands[1] not in self._thread or not re.fullmatch(r"-?\d+", operands[2]):
            return False
        number, modifiers = int(operands[2]), set(instruction.modifiers)
        if instruction.opcode == "shr":
            return number >= 5
        if instruction.opcode == "and":
            return number & 31 == 0
        if instruction.opcode != "setp" or len(operands) != 3:
            return False
        return number % 32 == 0 if modifiers & {"lt", "ge"} else bool(modifiers & {"gt", "le"}) and number % 32 == 31


def _cut(function: Function) -> list[_Piece]:
    """The function's pieces and what can follow each; the last is where all returns lead."""
    pieces = [_Piece()]
    for node in walk(function.body or []):
        if (isinstance(node, Label) or _is_barrier(node)) and pieces[-1].nodes:
            pieces.append(_Piece())
        pieces[-1].nodes.append(node)
        if isinstance(node, Instruction) and node.opcode in _ENDS:
            pieces.append(_Piece())
    pieces.append(_Piece())
    at = {id(node): number for number, piece in enumerate(pieces) for node in piece.nodes}
    leads = jump_targets(function)
    for number, piece in enumerate(pieces[:-1]):
        last = piece.nodes[-1] if piece.nodes else None
        if not isinstance(last, Instruction) or last.opcode not in _ENDS:
            piece.follow = [number + 1]
            continue
        piece.follow = [at[id(label)] for label in leads.get(id(last), ())] or [len(pieces) - 1]
        if last.predicate:
            piece.follow.append(number + 1)
    _lead_out(pieces)
    return pieces


def _is_barrier(node: Node) -> bool:
    """Whether all lanes of a warp wait for each other here, by the kernel's own will."""
    if not isinstance(node, Instruction) or node.opcode not in ("bar", "barrier") or node.predicate:
        return False
    if "warp" in node.modifiers:
        return node.operands in (("0xffffffff",), ("-1",), ("4294967295",))
    return "cluster" not in node.modifiers and bool({"sync", "red"} & set(node.modifiers))


def _settles(piece: _Piece) -> bool:
    return bool(piece.nodes) and _is_barrier(piece.nodes[0])


def _lead_out(pieces: list[_Piece]) -> None:
    """Let loops without an end lead to the end too: lanes caught in one meet the others nowhere."""
    before: list[list[int]] = [[] for _ in pieces]
    for number, piece in enumerate(pieces):
        for after in piece.follow:
            before[after].append(number)
    out: set[int] = set()
    for start in reversed(range(len(pieces))):
        if start not in out and start < len(pieces) - 1:
            pieces[start].follow.append(len(pieces) - 1)
        work = [start]
        while work:
            number = work.pop()
            if number not in out:
                out.add(number)
                work += before[number]


def _postdominators(pieces: list[_Piece]) -> list[int]:
    """For each piece, the pieces that every way from it to the end passes, itself left out: bit n for piece n."""
    everything = (1 << len(pieces)) - 1
    found = [everything] * len(pieces)
    found[-1] = 1 << len(pieces) - 1
    changed = True
    while changed:
        changed = False
        for number in range(len(pieces) - 2, -1, -1):
            new = everything
            for after in pieces[number].follow:
                new &= found[after]
            new |= 1 << number
            if new != found[number]:
                found[number], changed = new, True
    return [bits & ~(1 << number) for number, bits in enumerate(found)]


def _between(pieces: list[_Piece], start: int, stop: int) -> set[int]:
    """What lies on a way from `start` before the ways meet again, at one of the pieces in the bits of `stop`."""
    seen: set[int] = set()
    work = [n for n in pieces[start].follow if not stop >> n & 1]
    while work:
        number = work.pop()
        if number not in seen:
            seen.add(number)
            work += [n for n in pieces[number].follow if not stop >> n & 1]
    return seen


def _written(instruction: Instruction) -> list[str]:
    """Registers an instruction may write: those of its first operand that are not part of an address."""
    operands = instruction.operands
    return _NAME.findall(re.sub(r"\[[^\]]*\]", "", operands[0])) if operands else []


def _thread_registers(pieces: list[_Piece]) -> set[str]:
    """Registers that hold threadIdx.x and never anything else."""
    holds: set[str] = set()
    other: set[str] = set()
    for piece in pieces:
        for instruction in piece.instructions:
            is_thread = instruction.opcode == "mov" and instruction.operands[1:] == ("%tid.x",)
            (holds if is_thread and not instruction.predicate else other).update(_written(instruction))
    return holds - other
