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

from warplens.ptx.control_flow import Flow, Piece, is_barrier
from warplens.ptx.operands import names, written_by
from warplens.ptx.tree import Function, Instruction, Node

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


def hears(instruction: Instruction) -> bool:
    """Whether it reads what other threads write meanwhile."""
    return instruction.opcode == "atom" or (instruction.opcode == "ld" and bool(_HEARS & set(instruction.modifiers)))


class Wholeness:
    """`split` says of a node whether the warp may be split there."""

    def __init__(self, function: Function, *, aligned: bool = False, full: bool = False) -> None:
        """`aligned`: the host launches it only with blocks whose x size is a multiple of 32; `full`: only with blocks
        of so many threads."""
        sizes = function.performance.get("reqntid")
        # A function that is called gets each lane's own.
        self._params = {param.name for param in function.params if function.is_entry}
        self._aligned = aligned or (sizes is not None and sizes[0] % 32 == 0)
        self.known = full or self._aligned or (sizes is not None and math.prod(sizes) % 32 == 0)
        """Whether every warp of the kernel starts with 32 lanes."""
        self.flow = Flow(function)
        self._pieces = self.flow.pieces
        jumps = any(i.opcode == "brx" for piece in self._pieces for i in piece.instructions)
        self.differs: set[str] = set()
        self._heard: set[str] = set()
        """Registers that depend on what other threads write meanwhile."""
        self._split = set(range(len(self._pieces)) if jumps else ())
        self._thread = _thread_registers(self._pieces) if self._aligned else set()
        if not jumps:
            self._solve()
        self._behind = self.flow.ways(list(self._split), 0)

    def split(self, node: Node) -> bool:
        piece = self.flow.piece(node)
        return piece is None or piece in self._split

    def out_of_step(self, node: Node) -> bool:
        """Whether the lanes may have been split on the way to `node`."""
        return self.flow.piece(node) in self._behind

    def own(self, operand: str) -> bool:
        """Whether an operand of a mark can differ between lanes."""
        return self._differ((operand,))

    def _solve(self) -> None:
        """Registers that differ make branches that split, which make more registers differ, until nothing changes."""
        after = self.flow.postdominators()
        settled = sum(1 << number for number, piece in enumerate(self._pieces) if _settles(piece))
        told: set[int] = set()
        while True:
            before = len(self.differs), len(self._split), len(self._heard), len(told)
            for number, piece in enumerate(self._pieces):
                for instruction in piece.instructions:
                    if number in self._split or self._own(instruction):
                        self.differs.update(written_by(instruction))
                    if number in told or self._hears(instruction):
                        self._heard.update(written_by(instruction))
            for number, piece in enumerate(self._pieces):
                if len(piece.follow) > 1 and piece.predicate in self.differs:
                    parted = self.flow.ways(piece.follow, after[number])
                    if piece.predicate in self._heard:
                        told |= parted
                        if number in parted:
                            parted = self.flow.ways(piece.follow, after[number] & settled)
                    self._split |= parted
            if before == (len(self.differs), len(self._split), len(self._heard), len(told)):
                return

    def _hears(self, instruction: Instruction) -> bool:
        """Whether what it writes can depend on what other threads write meanwhile."""
        if hears(instruction):
            return True
        read = names(" ".join(instruction.operands[1:]))
        return instruction.predicate in self._heard or bool(self._heard & read)

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
        return any(_BY_LANE.search(text) or self.differs & names(text) for text in operands)

    def _constant_load(self, instruction: Instruction) -> bool:
        """A load of the kernel's parameters or constants from an address that is the same in every lane."""
        if instruction.opcode != "ld" or not {"param", "const"} & set(instruction.modifiers):
            return False
        address = names(instruction.operands[1])
        own = "param" not in instruction.modifiers or bool(address & self._params)
        return own and not address & self.differs

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


def _settles(piece: Piece) -> bool:
    return bool(piece.nodes) and is_barrier(piece.nodes[0])


def _thread_registers(pieces: list[Piece]) -> set[str]:
    """Registers that hold threadIdx.x and never anything else."""
    holds: set[str] = set()
    other: set[str] = set()
    for piece in pieces:
        for instruction in piece.instructions:
            is_thread = instruction.opcode == "mov" and instruction.operands[1:] == ("%tid.x",)
            (holds if is_thread and not instruction.predicate else other).update(written_by(instruction))
    return holds - other
