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
from warplens.weave.mark_comments import PREFIX
from warplens.weave.mark_sites import BARRIERS, BRANCHES, is_placeholder

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
    section, location = _Section(), None
    late = set(asynchronous)
    """Registers whose values may not have arrived yet."""
    for node, following in list(zip_longest(body, body[1:])):
        if isinstance(node, Directive) and node.name == "loc":
            location = node
        elif _is_wait(node):
            section.move(body)
            section = _Section(node, location, set(late))
        elif isinstance(node, Label) or any(_ends_section(one) for one in instructions_of(node)):
            section.move(body)
            section = _Section()
            late = set(asynchronous) if isinstance(node, Label) else late
        elif isinstance(node, Comment) and node.content.startswith(PREFIX):
            section.add_mark(node)
        elif not (isinstance(node, Instruction) and is_placeholder(node, following)):
            section.add(node, location)
            late.update(*(written_by(one) for one in instructions_of(node) if _takes_long(one)))
    section.move(body)


def _is_wait(node: Node) -> bool:
    """Whether a warp waits here for copies, for products or for other warps."""
    return any(
        one.opcode in BARRIERS or (one.opcode in ("cp", *PRODUCTS) and any("wait" in part for part in one.modifiers))
        for one in instructions_of(node)
    )


def _ends_section(instruction: Instruction) -> bool:
    return instruction.opcode in BRANCHES or (instruction.opcode in PRODUCTS and "fence" not in instruction.modifiers)


def _takes_long(instruction: Instruction) -> bool:
    return not is_integer_arithmetic(instruction) and "param" not in instruction.modifiers


@dataclass
class _Section:
    """The code from a wait to the next wait, product, label or jump. Without a `wait` nothing in it moves."""

    wait: Node | None = None
    location: Directive | None = None
    """The `.loc` in force at the wait."""
    written: set[str] = field(default_factory=set)
    read: set[str] = field(default_factory=set)
    early: list[tuple[Instruction, Directive | None]] = field(default_factory=list)
    """The arithmetic that can move, each with its `.loc`."""
    passes_mark: bool = False
    marked: bool = False

    def add_mark(self, mark: Comment) -> None:
        self.marked = True
        self.read |= names(mark.raw)

    def add(self, node: Node, location: Directive | None) -> None:
        makes, needs = (set().union(*(part(one) for one in instructions_of(node))) for part in (written_by, read_by))
        movable = isinstance(node, Instruction) and is_integer_arithmetic(node) and node.predicate is None
        if movable and not makes & (self.written | self.read) and not needs & self.written:
            assert isinstance(node, Instruction)
            self.early.append((node, location))
            self.passes_mark |= self.marked
        else:
            self.written |= makes
            self.read |= needs

    def move(self, body: list[Node]) -> None:
        """Move the arithmetic, if any of it follows a mark."""
        if self.wait is None or not self.passes_mark:
            return
        moved = {id(node) for node, _ in self.early}
        placed: list[Node] = []
        current = self.location
        for node, location in self.early:
            if location is not current and location is not None:
                placed.append(replace(location))
                current = location
            placed.append(node)
        if current is not self.location and self.location is not None:
            placed.append(replace(self.location))
        rest = [node for node in body if id(node) not in moved]
        at = next(number for number, node in enumerate(rest) if node is self.wait)
        body[:] = [*rest[:at], *placed, *rest[at:]]
