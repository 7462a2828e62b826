"""Loops of a function by its control flow, and how often those run whose bounds are constants."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from warplens.ptx.control_flow import ControlFlow
from warplens.ptx.dominators import loop_bodies
from warplens.ptx.lane_values import COMPARISONS, LaneValue, LaneValues
from warplens.ptx.operands import written_by
from warplens.ptx.tree import Function, Instruction

_MOST_TRIPS = 1 << 20


@dataclass(frozen=True)
class NaturalLoop:
    """The blocks of a loop, which is entered at `header` only. `exits` are the blocks that follow it. `trips` is how
    often its body runs, None where that is not a constant."""

    header: int
    blocks: frozenset[int]
    exits: tuple[int, ...]
    trips: int | None


_Write = tuple[int, int, Instruction]
_Writers = Mapping[str, Sequence[_Write]]


def natural_loops(function: Function, flow: ControlFlow) -> list[NaturalLoop]:
    """The loops of a function, the outermost first. One that starts with the thread's index counts as for thread 0."""
    successors = [block.successors for block in flow.blocks]
    found = []
    known: _LoopBounds | None = None
    loops = loop_bodies(flow.dominators, successors, flow.predecessors, flow.dominators.order)
    for header, (ends, nodes) in loops.items():
        body = frozenset(nodes)
        edges = [(one, after) for one in body for after in successors[one] if after not in body]
        known = known or _LoopBounds(function, flow)
        exits = tuple(dict.fromkeys(after for _, after in edges))
        found.append(NaturalLoop(header, body, exits, _trips(flow, header, body, ends, edges, known)))
    return sorted(found, key=lambda one: -len(one.blocks))


class _LoopBounds:
    """Where registers are written, and what numbers loops start and end with."""

    def __init__(self, function: Function, flow: ControlFlow) -> None:
        found: defaultdict[str, list[_Write]] = defaultdict(list)
        tested: set[str] = set()
        for number, block in enumerate(flow.blocks):
            tested |= {block.predicate} if block.predicate else set()
            for at, node in enumerate(block.nodes):
                if isinstance(node, Instruction):
                    for register in written_by(node):
                        found[register].append((number, at, node))
        self.writers: _Writers = found
        compared = [one.operands[1:] for name in tested for _, _, one in found.get(name, ()) if one.opcode == "setp"]
        registers = {text.strip() for operands in compared for text in operands}
        # The sum of a counter may go to another register.
        added = [one for name in registers for _, _, one in found.get(name, ()) if one.opcode in ("add", "sub")]
        registers |= {text.strip() for one in added for text in one.operands[1:]}
        sources = [text for name in registers for _, _, one in found.get(name, ()) for text in one.operands[1:]]
        self._values = LaneValues(function, [*registers, *sources])

    def number(self, text: str) -> int | None:
        """The number that all lanes have, if it is known."""
        value = self._values.of(text)
        return _first(value) if value.uniform else None

    def result(self, instruction: Instruction) -> LaneValue:
        return self._values.result(instruction)


def _first(value: LaneValue) -> int | None:
    return int(value.lanes[0]) if value.exact and value.lanes is not None else None


def _trips(
    flow: ControlFlow,
    header: int,
    body: frozenset[int],
    latches: Sequence[int],
    edges: Sequence[tuple[int, int]],
    known: _LoopBounds,
) -> int | None:
    """How often the body of a loop runs that counts from one constant to another, and is left only by its test."""
    writers = known.writers
    if len(latches) != 1 or len(edges) != 1 or edges[0][0] not in (header, latches[0]):
        return None
    testing = edges[0][0]
    branch = flow.blocks[testing].nodes[-1]
    if not isinstance(branch, Instruction) or branch.predicate is None:
        return None
    tests = [one for one in writers.get(branch.predicate, ()) if one[0] in body]
    if len(tests) != 1 or tests[0][2].opcode != "setp" or len(tests[0][2].operands) != 3:
        return None
    compared = tests[0][2]
    test = next((COMPARISONS[name] for name in compared.modifiers if name in COMPARISONS), None)
    counter, bound = compared.operands[1].strip(), known.number(compared.operands[2])
    if test is None or bound is None:
        return None
    steps = [one for one in writers.get(counter, ()) if one[0] in body]
    starts = [one for one in writers.get(counter, ()) if one[0] not in body]
    if len(steps) == 1 and not starts and steps[0][2].opcode == "add":
        # The sum goes to another register, which the next round reads.
        steps, starts, counter = _copied(steps[0], body, writers)
    if len(steps) != 1 or len(starts) != 1:
        return None
    step, begins = _step(steps[0][2], counter, known), known.result(starts[0][2])
    first = _first(begins)
    if step is None or not step or first is None or begins.lanes is None:
        return None
    if int(begins.lanes.max() - begins.lanes.min()) > abs(step):
        return None  # lanes differ in how often they run it
    stays = (flow.blocks[testing].successors[0] in body) != branch.negated
    value, trips = first, 0
    before = _precedes(flow, steps[0], tests[0])
    leading = testing == header and testing != latches[0]
    while trips <= _MOST_TRIPS:
        if leading and test(value, bound) != stays:
            return trips
        trips += 1
        tested = value + step if before else value
        value += step
        if not leading and test(tested, bound) != stays:
            return trips
    return None


def _copied(added: _Write, body: frozenset[int], writers: _Writers) -> tuple[list[_Write], list[_Write], str]:
    """The addition, the starts and the name of a counter whose sum goes to another register first."""
    source = added[2].operands[1].strip()
    inside = [one for one in writers.get(source, ()) if one[0] in body]
    target = added[2].operands[0].strip()
    if len(inside) != 1 or inside[0][2].opcode != "mov" or inside[0][2].operands[-1].strip() != target:
        return [], [], ""
    return [added], [one for one in writers.get(source, ()) if one[0] not in body], source


def _step(instruction: Instruction, counter: str, known: _LoopBounds) -> int | None:
    operands = [one.strip() for one in instruction.operands]
    if instruction.opcode not in ("add", "sub") or len(operands) != 3 or operands[1] != counter:
        return None
    amount = known.number(operands[2])
    return amount if amount is None or instruction.opcode == "add" else -amount


def _precedes(flow: ControlFlow, first: _Write, second: _Write) -> bool:
    if first[0] == second[0]:
        return first[1] < second[1]
    return flow.dominators.strictly_dominates(first[0], second[0])
