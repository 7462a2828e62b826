"""Compute addresses and descriptors before the wait that precedes a mark, in kernels with asynchronous matrix products.

ptxas lets a warp compute its next addresses while it waits for matrix products, for copies or at a barrier. A clock
read behind the wait keeps them behind it, where they delay the next copy or product. Integer arithmetic that is ready
moves in front of the wait; ptxas still decides when it is executed. It keeps its source line, so that the verification
of regions shows it where it belongs.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import zip_longest

from warplens.ptx.operands import names, read_by, written_by
from warplens.ptx.tree import Comment, Directive, Function, Instruction, Label, Node
from warplens.weave.early_conditions import instructions_of, is_integer_arithmetic
from warplens.weave.mark_comments import is_mark
from warplens.weave.mark_sites import BARRIERS, BRANCHES, is_placeholder
from warplens.weave.track_ptx import AWAITED

PRODUCTS = frozenset({"wgmma", "tcgen05"})
"""The opcodes of asynchronous matrix products."""


def move_addresses_up(function: Function) -> None:
    """Move arithmetic that follows a mark in front of the last wait before that mark."""
    products = [node for node in function.instructions() if node.opcode in PRODUCTS]
    if products:
        # The registers of a product change, or may not change, while it runs.
        vectors = (part for node in products for part in node.operands if part.startswith("{"))
        _move_in(function.body or [], set().union(*map(names, vectors)))


def _move_in(body: list[Node], asynchronous: set[str]) -> None:
    sections, location = [_Section()], None
    order: dict[tuple[str, ...], int] = {}
    """The places that a `.loc` names, numbered. A `.loc` of inlined code names an earlier one as its caller's."""
    late = set(asynchronous)
    """Registers whose values may not have arrived yet."""
    for node, following in zip_longest(body, body[1:]):
        if isinstance(node, Directive) and node.name == "loc":
            location = node
            order.setdefault(_place(node.arguments.partition(",")[0]), len(order))
        elif is_wait(node):
            sections.append(_Section(node, location, set(late), order=order, known=len(order)))
            sections[-1].add(node, location)
        elif isinstance(node, Label) or any(_ends_section(one) for one in instructions_of(node)):
            sections.append(_Section())
            late = set(asynchronous) if isinstance(node, Label) else late
        elif is_mark(node):
            sections[-1].add_mark(node)
        elif not (isinstance(node, Instruction) and is_placeholder(node, following)):
            sections[-1].add(node, location)
            late.update(*(written_by(one) for one in instructions_of(node) if _takes_long(one)))
    before = {id(one.wait): one.early_code() for one in sections if one.passes_mark}
    moved = {id(node) for one in sections if one.passes_mark for node, _ in one.early}
    body[:] = [part for node in body if id(node) not in moved for part in (*before.get(id(node), ()), node)]


def is_wait(node: Node) -> bool:
    """Whether a warp waits here for copies, for products or for other warps."""
    return any(
        one.opcode in BARRIERS or (one.opcode in ("cp", *PRODUCTS) and any("wait" in part for part in one.modifiers))
        for one in instructions_of(node)
    )


def _ends_section(instruction: Instruction) -> bool:
    return instruction.opcode in BRANCHES or (instruction.opcode in PRODUCTS and "fence" not in instruction.modifiers)


def _takes_long(instruction: Instruction) -> bool:
    return not is_integer_arithmetic(instruction) and "param" not in instruction.modifiers


def _may_move(node: Node) -> bool:
    # What waits for a value does so on behalf of the mark behind it.
    plain = isinstance(node, Instruction) and node.predicate is None and AWAITED not in node.raw
    return plain and isinstance(node, Instruction) and is_integer_arithmetic(node)


@dataclass
class _Section:
    """The code from a wait to the next wait, product, label or jump. Without a `wait` nothing in it moves."""

    wait: Node | None = None
    location: Directive | None = None
    """The `.loc` in force at the wait."""
    written: set[str] = field(default_factory=set)
    read: set[str] = field(default_factory=set)
    early: list[tuple[Node, Directive | None]] = field(default_factory=list)
    """The arithmetic that can move, each with its `.loc`."""
    marked: bool = False
    passes_mark: bool = False
    """Whether any of it follows a mark; otherwise nothing moves."""
    order: dict[tuple[str, ...], int] = field(default_factory=dict)
    known: int = 0
    """How many of these places are named in front of the wait."""

    def add_mark(self, mark: Comment) -> None:
        self.marked = True
        self.read |= names(mark.raw)

    def add(self, node: Node, location: Directive | None) -> None:
        """Note what can move, and what the code that stays writes and reads; the wait itself stays."""
        makes, needs = (set().union(*(part(one) for one in instructions_of(node))) for part in (written_by, read_by))
        free = not makes & (self.written | self.read) and not needs & self.written
        if self.wait is not None and free and _may_move(node):
            self.early.append((node, location))
            self.passes_mark |= self.marked
        else:
            self.written |= makes
            self.read |= needs

    def early_code(self) -> list[Node]:
        """The arithmetic with its source lines, for the place before the wait."""
        placed: list[Node] = []
        current = self.location
        for node, location in [*self.early, (None, self.location)]:
            if location is not current and location is not None and self._is_known(location):
                placed.append(replace(location))
                current = location
            placed += [node] if node is not None else []
        return placed

    def _is_known(self, location: Directive) -> bool:
        """Whether a `.loc` may stand in front of the wait. Without it, the instruction has the line before."""
        caller = location.arguments.partition("inlined_at")[2]
        return not caller or self.order.get(_place(caller), self.known) < self.known


def _place(arguments: str) -> tuple[str, ...]:
    """The file, line and column in the arguments of a `.loc`."""
    return tuple(arguments.split()[:3])
