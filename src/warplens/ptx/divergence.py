"""Divergence analysis: where in a function a warp may execute with only some of its lanes active.

A branch whose condition varies between lanes makes the warp diverge until its postdominator; after a return that only
some lanes take, the warp stays diverged. The analysis is conservative: a value that is not provably the same in every
lane counts as varying, so a converged place may be reported as divergent, but never the reverse.

Lanes that diverged and met again may still execute separately. A warp barrier brings them back together, and it is
safe because all of them arrive. Lanes that leave a loop depending on what other threads write (a lock) may be waiting
for a lane that has already left the loop, so they count as diverged up to a barrier of the kernel itself.
"""

from __future__ import annotations

import functools
import math
import re
from collections import defaultdict

from warplens.ptx.control_flow import BasicBlock, ControlFlow, is_barrier
from warplens.ptx.divergent_blocks import BlocksBetween
from warplens.ptx.operands import names, written_by
from warplens.ptx.tree import Function, Instruction, Node

_LANE_REGISTER = re.compile(r"%(?:tid|laneid|lanemask|clock|globaltimer|pm\d|envreg|reg_)")
"""Special registers that may differ between the lanes of a warp."""
_WARP_REDUCTIONS = frozenset({"vote", "redux"})
"""Their result is the same in every participating lane."""
_WHOLE_WARP_SEGMENT = frozenset({"31", "0x1f", "0x1F"})
"""The clamp operand of a shuffle whose segment is the whole warp."""
_VARYING_RESULT = frozenset({"addc", "subc", "madc", "ld", "ldu", "atom", "match", "ldmatrix", "mma", "wmma", "wgmma",
                             "mbarrier", "elect", "call", "tex", "suld", "tld4", "activemask", "tcgen05", "movmatrix",
                             "multimem", "surf", "vset"})  # fmt: skip
"""Their result may vary even when all operands are uniform; `addc` and its kin also read the carry flag."""
_COHERENT_LOADS = frozenset({"volatile", "relaxed", "acquire", "mmio", "cv"})
"""Modifiers of loads that see concurrent writes. A wait at an mbarrier is not one: its phase ends for all lanes."""


def observes_other_threads(instruction: Instruction) -> bool:
    """Whether the instruction reads memory that other threads may be writing."""
    return instruction.opcode == "atom" or (
        instruction.opcode == "ld" and bool(_COHERENT_LOADS & set(instruction.modifiers))
    )


class Divergence:
    """The divergence analysis of one function."""

    def __init__(self, function: Function, *, aligned: bool = False, full_warps: bool = False) -> None:
        """Analyse `function`.

        `aligned` promises that it is only launched with blocks whose x size is a multiple of 32, `full_warps` that
        only the number of threads per block is.
        """
        sizes = function.performance.get("reqntid")
        # The arguments of a called function may vary between lanes; those of a kernel may not.
        self._params = {param.name for param in function.params if function.is_entry}
        self._aligned = aligned or (sizes is not None and sizes[0] % 32 == 0)
        self.starts_full = full_warps or self._aligned or (sizes is not None and math.prod(sizes) % 32 == 0)
        """Whether every warp of the kernel starts with 32 active lanes."""
        self.flow = ControlFlow(function)
        self._blocks = self.flow.blocks
        self._varying: set[str] = set()
        """Registers that may differ between lanes."""
        self._observed: set[str] = set()
        """Registers that depend on concurrent writes of other threads."""
        self._reads: dict[int, set[str]] = {}
        """By the `id` of an instruction, the names in its operands behind the first."""
        self._divergent: set[int] = set()
        self._solved = False
        if any(block.is_indirect for block in self._blocks):
            self._divergent, self._solved = set(range(len(self._blocks))), True
        elif any(block.predicate and len(block.successors) > 1 for block in self._blocks):
            self._solve()
        self._after_divergence = self.flow.reachable(list(self._divergent))

    def diverges(self, node: Node) -> bool:
        """Whether some lanes of the warp may be inactive at `node`."""
        block = self.flow.block_of(node)
        return block is None or block in self._divergent

    def needs_reconvergence(self, node: Node) -> bool:
        """Whether the lanes may have diverged on a path to `node`, and so may still execute separately there."""
        return self.flow.block_of(node) in self._after_divergence

    def varies(self, operand: str) -> bool:
        """Whether an operand may differ between lanes."""
        if not self._solved:  # a function without branches has no divergent block, so nothing was computed yet
            self._solve()
        return self._any_varies((operand,))

    def _solve(self) -> None:
        """Propagate varying registers and divergent blocks until neither set grows; each change is followed once."""
        self._solved = True
        self._thread_index = _thread_registers(self._blocks) if self._aligned else set()
        readers: defaultdict[str, list[Instruction]] = defaultdict(list)
        branches: defaultdict[str, list[int]] = defaultdict(list)
        changed: list[str] = []

        def add(instruction: Instruction, registers: set[str]) -> None:
            new = written_by(instruction) - registers
            registers.update(new)
            changed.extend(new)

        def follow(instruction: Instruction) -> None:
            reads = self._reads[id(instruction)]
            if self._writes_varying(instruction, reads):
                add(instruction, self._varying)
            if self._writes_observed(instruction, reads):
                add(instruction, self._observed)

        for number, block in enumerate(self._blocks):
            for instruction in block.instructions:
                reads = self._reads[id(instruction)] = names(" ".join(instruction.operands[1:]))
                for name in reads | {instruction.predicate} if instruction.predicate else reads:
                    readers[name].append(instruction)
                follow(instruction)
            if len(block.successors) > 1 and block.predicate:
                branches[block.predicate].append(number)
        divergent, depends_on_others = BlocksBetween(self.flow), BlocksBetween(self.flow)
        self._divergent = divergent.blocks
        while changed:
            name = changed.pop()
            for instruction in readers[name]:
                follow(instruction)
            for number in branches[name] if name in self._varying else ():
                until = self.flow.postdominators.parent[number]
                if name in self._observed:
                    for inner in depends_on_others.add(number, until):
                        for instruction in self._blocks[inner].instructions:
                            add(instruction, self._observed)
                    if number in self.flow.reachable(self._blocks[number].successors, (until,)):
                        until = self._next_barriers[number]
                for inner in divergent.add(number, until):
                    for instruction in self._blocks[inner].instructions:
                        add(instruction, self._varying)

    @functools.cached_property
    def _next_barriers(self) -> list[int]:
        """For each block, its nearest postdominator that starts with a barrier; -1 if there is none."""
        barriers = {at for at, one in enumerate(self._blocks) if one.nodes and is_barrier(one.nodes[0])}
        return self.flow.postdominators.nearest(barriers)

    def _writes_observed(self, instruction: Instruction, reads: set[str]) -> bool:
        """Whether the result may depend on concurrent writes of other threads."""
        if observes_other_threads(instruction):
            return True
        return instruction.predicate in self._observed or not self._observed.isdisjoint(reads)

    def _writes_varying(self, instruction: Instruction, reads: set[str]) -> bool:
        """Whether the result may differ between lanes."""
        if instruction.predicate in self._varying:
            return True
        opcode, operands = instruction.opcode, instruction.operands
        if opcode in _WARP_REDUCTIONS:
            return self._any_varies(operands[2:])  # lanes may vote in groups, each with its own mask
        if opcode == "shfl":
            one_lane = "idx" in instruction.modifiers and len(operands) == 5 and operands[2].isdigit()
            return not one_lane or operands[3] not in _WHOLE_WARP_SEGMENT or self._any_varies(operands[4:])
        if opcode in _VARYING_RESULT:
            return not self._is_uniform_load(instruction)
        varies = not self._varying.isdisjoint(reads) or any(map(_LANE_REGISTER.match, reads))
        return varies and not self._is_warp_index(instruction)

    def _any_varies(self, operands: tuple[str, ...]) -> bool:
        return any(_LANE_REGISTER.search(text) or self._varying & names(text) for text in operands)

    def _is_uniform_load(self, instruction: Instruction) -> bool:
        """Whether it loads a kernel parameter or a constant from an address that is the same in every lane."""
        is_load = instruction.opcode == "ld" and len(instruction.operands) > 1
        if not is_load or not {"param", "const"} & set(instruction.modifiers):
            return False
        address = names(instruction.operands[1])
        of_kernel = "param" not in instruction.modifiers or bool(address & self._params)
        return of_kernel and not address & self._varying

    def _is_warp_index(self, instruction: Instruction) -> bool:
        """Whether it computes from threadIdx.x a value that is the same for 32 neighbouring threads."""
        operands = instruction.operands
        if len(operands) < 3 or operands[1] not in self._thread_index or not re.fullmatch(r"-?\d+", operands[2]):
            return False
        number, modifiers = int(operands[2]), set(instruction.modifiers)
        if instruction.opcode == "shr":
            return number >= 5
        if instruction.opcode == "and":
            return number & 31 == 0
        if instruction.opcode != "setp" or len(operands) != 3:
            return False
        return number % 32 == 0 if modifiers & {"lt", "ge"} else bool(modifiers & {"gt", "le"}) and number % 32 == 31


def _thread_registers(blocks: list[BasicBlock]) -> set[str]:
    """Registers that hold threadIdx.x and never anything else."""
    instructions = [instruction for block in blocks for instruction in block.instructions]
    moves = [one for one in instructions if one.opcode == "mov" and not one.predicate]
    reading = {id(one) for one in moves if one.operands[1:] == ("%tid.x",)}
    holds = {name for one in instructions if id(one) in reading for name in written_by(one)}
    for one in instructions if holds else ():
        if id(one) not in reading:
            holds -= written_by(one)
    return holds
