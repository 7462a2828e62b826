"""How control can flow through a function: its pieces, what may follow each, and which ways lead past which."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from warplens.ptx.labels import jump_targets
from warplens.ptx.tree import Function, Instruction, Label, Node, walk

_ENDS = frozenset({"bra", "brx", "ret", "exit", "trap"})


@dataclass
class Piece:
    """Instructions without a jump between them or a barrier behind the first; `nodes` also holds what stands among
    them."""

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


def is_barrier(node: Node) -> bool:
    """Whether all lanes of a warp wait for each other here, by the kernel's own will."""
    if not isinstance(node, Instruction) or node.opcode not in ("bar", "barrier") or node.predicate:
        return False
    if "warp" in node.modifiers:
        return node.operands in (("0xffffffff",), ("-1",), ("4294967295",))
    return "cluster" not in node.modifiers and bool({"sync", "red"} & set(node.modifiers))


class Flow:
    """A function's pieces in text order; the last is where all returns lead."""

    def __init__(self, function: Function) -> None:
        self.pieces = _cut(function)
        self._of = {id(node): number for number, piece in enumerate(self.pieces) for node in piece.nodes}

    def piece(self, node: Node) -> int | None:
        """The number of the piece that holds `node`."""
        return self._of.get(id(node))

    def ways(self, starts: list[int], stop: int) -> set[int]:
        """What can be reached from `starts` without passing a piece in the bits of `stop`."""
        seen: set[int] = set()
        work = [n for n in starts if not stop >> n & 1]
        while work:
            number = work.pop()
            if number not in seen:
                seen.add(number)
                work += [n for n in self.pieces[number].follow if not stop >> n & 1]
        return seen

    def postdominators(self) -> list[int]:
        """For each piece, the pieces that every way from it to the end passes, itself left out: bit n for piece n."""
        everything = (1 << len(self.pieces)) - 1
        found = [everything] * len(self.pieces)
        found[-1] = 1 << len(self.pieces) - 1
        changed = True
        while changed:
            changed = False
            for number in range(len(self.pieces) - 2, -1, -1):
                new = everything
                for after in self.pieces[number].follow:
                    new &= found[after]
                new |= 1 << number
                if new != found[number]:
                    found[number], changed = new, True
        return [bits & ~(1 << number) for number, bits in enumerate(found)]


def _cut(function: Function) -> list[Piece]:
    pieces = [Piece()]
    for node in walk(function.body or []):
        if (isinstance(node, Label) or is_barrier(node)) and pieces[-1].nodes:
            pieces.append(Piece())
        pieces[-1].nodes.append(node)
        if isinstance(node, Instruction) and node.opcode in _ENDS:
            pieces.append(Piece())
    pieces.append(Piece())
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


def _lead_out(pieces: list[Piece]) -> None:
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
