"""Decode a parsed function into basic blocks of steps: resolve names, inline calls, insert stalls.

Calls are inlined with their own registers, so a lane needs one program counter and no stack; recursion and calls
through pointers are not supported. Blocks are numbered in text order, so that executing the lowest block first makes
lanes reconverge.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from warplens.ptx import tree
from warplens.ptx.syntax import PtxError, split_operands
from warplens.simulate import async_barriers, bits, convert, floating, integer, memory_access, warp
from warplens.simulate.batch_state import Group, Reader, State, Step
from warplens.simulate.control import Terminator, fall, terminator
from warplens.simulate.cycle_clock import issue_cycles
from warplens.simulate.decode_site import BUILDERS, DecodeSite, NameScope, Registers, VariableLocation

if TYPE_CHECKING:
    from warplens.simulate.loaded_module import VariableLayout

FAMILIES = (async_barriers, bits, convert, floating, integer, memory_access, warp)
"""The modules that register instruction decoders; listing them here keeps their imports."""

_ENDS = frozenset({"bra", "brx", "ret", "exit", "trap", "bar", "barrier"})
_NEEDS_CLOCK = frozenset({"cp", "nanosleep", "mbarrier"})
_POLLS = frozenset({"volatile", "acquire", "relaxed", "mmio", "cas", "exch"})
_STUBS = frozenset({"vprintf"})


@dataclass
class StepBlock:
    """A basic block of executable steps.

    `members` reads the mask of lanes that the first instruction waits for. `polls` means that the block reads memory
    that other threads write, so that a loop over it may be waiting for them.
    """

    steps: list[Step] = field(default_factory=list)
    end: Terminator = fall
    cycles: int = 0
    length: int = 0
    joins: bool = False
    polls: bool = False
    members: Reader | None = None


class DecodedEntry:
    """One entry, decoded and ready to execute."""

    def __init__(self, entry: tree.Function, functions: dict[str, tree.Function], layout: VariableLayout) -> None:
        self.name = entry.name
        self.registers = Registers()
        self.layout, self._functions = layout, functions
        self.blocks: list[StepBlock] = [StepBlock()]
        self.labels: list[int] = []
        self._pending = 0
        self._arriving: dict[int, int] = {}
        self._stack = [entry.name]
        root = NameScope(self.registers)
        root.places.update(layout.places)
        self._body(entry.body or [], NameScope(self.registers, root), entry.name, None)
        self._close(fall)

    # -- structure

    def _new_label(self) -> int:
        self.labels.append(-1)
        return len(self.labels) - 1

    def _body(self, body: list[tree.Node], scope: NameScope, function: str, leave: int | None) -> None:
        previous: tree.Node | None = None
        for node in body:
            if isinstance(node, tree.Label):
                scope.labels[node.name] = self._new_label()
            elif isinstance(node, tree.Directive) and node.name == "branchtargets" and isinstance(previous, tree.Label):
                scope.tables[previous.name] = split_operands(node.arguments)
            if not isinstance(node, tree.Comment):
                previous = node
        for node in body:
            if isinstance(node, tree.Instruction):
                self._instruction(node, scope, function, leave)
            elif isinstance(node, tree.Label):
                self._place(scope.labels[node.name])
            elif isinstance(node, tree.Declaration):
                self._declare(node, scope, function)
            elif isinstance(node, tree.Scope):
                self._body(node.body, NameScope(self.registers, scope), function, leave)
            elif isinstance(node, tree.Raw):
                raise PtxError(
                    node.line, node.raw, "the interpreter cannot execute raw text; parse the rewritten module first"
                )

    def _declare(self, node: tree.Declaration, scope: NameScope, function: str) -> None:
        if node.space == "reg":
            if node.vector > 1 or node.type == "b128":
                raise PtxError(
                    node.line,
                    node.raw,
                    "the interpreter does not support vector and 128-bit registers",
                    function=function,
                )
            scope.declare(node)
            return
        for variable in node.variables:
            if node.space == "shared":
                scope.places[variable.name] = self.layout.shared[id(node), variable.name]
            elif node.space in ("local", "param"):
                size, align = node.size(variable), max(node.align or 1, node.element_bytes)
                scope.places[variable.name] = VariableLocation("local", self.registers.local(size, align))
            else:
                scope.places[variable.name] = self.layout.inner[id(node), variable.name]

    def _place(self, label: int) -> None:
        if self.blocks[-1].length or self.blocks[-1].steps:
            self._close(fall)
        self.labels[label] = len(self.blocks) - 1

    def _close(self, end: Terminator) -> None:
        for ready in self._arriving.values():
            self._stall(ready)
        self._arriving.clear()
        self.blocks[-1].end, self.blocks[-1].cycles = end, self._pending
        self._pending = 0
        self.blocks.append(StepBlock())

    # -- instructions

    def _instruction(self, node: tree.Instruction, scope: NameScope, function: str, leave: int | None) -> None:
        site = DecodeSite(node, scope, function)
        if node.opcode == "call":
            self._call(site)
            return
        try:
            self._add(site, leave)
        except (KeyError, IndexError, ValueError, ArithmeticError) as error:  # an unexpected combination of modifiers
            raise site.unknown("has a form that the interpreter does not support") from error

    def _add(self, site: DecodeSite, leave: int | None) -> None:
        """Decode one instruction and append it to the current block."""
        node = site.instruction
        joins = self._joins(site)
        if joins and self.blocks[-1].length:
            self._close(fall)
        predicate = None
        if node.predicate is not None:
            predicate = site.slot(node.predicate)
            site.reads.add(predicate)
        block = self.blocks[-1]
        block.length += 1
        block.polls |= node.opcode in ("ld", "atom") and not _POLLS.isdisjoint(node.modifiers)
        block.polls |= node.opcode == "mbarrier" and node.modifiers[:1] in (("try_wait",), ("test_wait",))
        if node.opcode in _ENDS and "warp" not in site.has:
            end = terminator(site, self.labels, predicate, node.negated, leave)
            self._stall_for(site.reads | site.writes)
            self._pending += issue_cycles(node.opcode, node.modifiers)
            self._close(end)
            return
        if joins:
            block.joins = True
            operand = warp.member_operand(site)
            block.members = site.read(operand, "u32") if operand is not None else None
        step = self._decode(site)
        self._stall_for(site.reads | site.writes)
        if node.opcode in _NEEDS_CLOCK or (node.opcode == "mov" and ("clock" in node.raw or "timer" in node.raw)):
            self._flush()
        if site.latency is not None:
            step = self._timed(step, site)
        if predicate is not None:
            step = _predicated(step, predicate, node.negated)
        block.steps.append(step)
        self._pending += issue_cycles(node.opcode, node.modifiers)

    @staticmethod
    def _joins(site: DecodeSite) -> bool:
        if site.opcode in ("bar", "barrier"):
            return "warp" in site.has
        return site.opcode in warp.SYNCHRONISING

    @staticmethod
    def _decode(site: DecodeSite) -> Step:
        if site.opcode == "bar":  # bar.warp.sync: the block's `joins` already waits
            return lambda S, g: None
        if site.opcode not in BUILDERS:
            raise site.unknown()
        return BUILDERS[site.opcode](site)

    def _timed(self, step: Step, site: DecodeSite) -> Step:
        """Note when the results arrive, so that the first use of one stalls."""
        latency = site.latency
        assert latency is not None
        ready, before = self.registers.ready, self._pending
        self.registers.ready += 1
        for slot in site.writes:
            self._arriving[slot] = ready

        def run(S: State, g: Group) -> None:
            step(S, g)
            S.ready[ready] = S.cycles + (latency(S, g) + before)

        return run

    def _stall_for(self, slots: set[int]) -> None:
        for ready in {self._arriving[slot] for slot in slots if slot in self._arriving}:
            self._stall(ready)
            self._arriving = {slot: other for slot, other in self._arriving.items() if other != ready}

    def _stall(self, ready: int) -> None:
        before = self._pending
        self.blocks[-1].steps.append(lambda S, g: S.wait_until(g, S.ready[ready] - before))

    def _flush(self) -> None:
        cycles, self._pending = self._pending, 0
        if cycles:
            self.blocks[-1].steps.append(lambda S, g: S.advance(g, cycles))

    def _call(self, site: DecodeSite) -> None:
        operands = site.operands
        returned = split_operands(operands[0][1:-1]) if operands and operands[0].startswith("(") else ()
        rest = operands[1:] if operands and operands[0].startswith("(") else operands
        name = rest[0] if rest else ""
        passed = split_operands(rest[1][1:-1]) if len(rest) > 1 and rest[1].startswith("(") else ()
        callee = self._functions.get(name)
        if name in _STUBS:
            return
        if callee is None or callee.body is None:
            raise site.error(
                f"{name or 'this call'} has no body in this module; the interpreter only supports direct calls"
            )
        if name in self._stack:
            raise site.error(f"{name} calls itself, which the interpreter does not support")
        if site.instruction.predicate is not None:
            raise site.error("the interpreter does not support predicated calls")
        inner = NameScope(self.registers, self._root(site.scope))
        for formals, actuals in ((callee.returns, returned), (callee.params, passed)):
            if len(formals) != len(actuals):
                raise site.error(f"{name} has {len(formals)} parameters, the call has {len(actuals)}")
            for formal, actual in zip(formals, actuals, strict=True):
                place = site.scope.places.get(actual)
                if formal.space != "param" or place is None:
                    raise site.error(f"{actual} is not a .param variable; the interpreter supports no other arguments")
                inner.places[formal.name] = place
        self.blocks[-1].length += 1
        self._pending += issue_cycles("call", ())
        self._stack.append(name)
        after = self._new_label()
        self._body(callee.body, inner, name, after)
        self._stack.pop()
        self._place(after)

    @staticmethod
    def _root(scope: NameScope) -> NameScope:
        while scope.parent is not None:
            scope = scope.parent
        return scope


def _predicated(step: Step, slot: int, negated: bool) -> Step:
    def run(S: State, g: Group) -> None:
        predicate = S.R[slot]
        lanes = g.restrict(np.logical_not(predicate) if negated else predicate)
        if lanes is not None:
            step(S, lanes)

    return run
