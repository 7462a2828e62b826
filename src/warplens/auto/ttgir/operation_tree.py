"""TTGIR text as a tree of operations and blocks, with their line numbers.

The parser only relies on how MLIR prints operations: one per line, or from an opening brace to its closing brace.
Unknown operations therefore need no special handling.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_NAME = re.compile(r'(?:%[^=]*? = )?"?([A-Za-z_][\w$]*(?:\.[\w$.]+)?)"?')
_ANOTHER_REGION = re.compile(r"(?:default|partition\d+|case -?\d+)\b.*\{$")
_TERMINATOR = re.compile(r"(?:[.]|^)(?:yield|return|condition|br|cond_br|switch|warp_yield|warp_return)$")


@dataclass(eq=False)
class Op:
    """An operation from line `first` to line `last`, both included; `location` is the inside of its `loc(...)`."""

    name: str
    first: int
    last: int
    header: str
    location: str = ""
    regions: list[list[OperationBlock]] = field(default_factory=list)

    @property
    def blocks(self) -> Iterator[OperationBlock]:
        for region in self.regions:
            yield from region

    @property
    def is_terminator(self) -> bool:
        return _TERMINATOR.search(self.name) is not None


@dataclass(eq=False)
class OperationBlock:
    """A block of operations. `end` is the line after the last one."""

    ops: list[Op] = field(default_factory=list)
    end: int = 0

    @property
    def body(self) -> list[Op]:
        """The operations without the terminator, which must stay last."""
        return self.ops[:-1] if self.ops and self.ops[-1].is_terminator else self.ops

    def line_of(self, index: int) -> int:
        """The line before which to insert text that precedes operation `index`."""
        return self.ops[index].first if index < len(self.ops) else self.end


def parse(lines: list[str]) -> list[Op]:
    """The top-level operations of a module's text."""
    top = OperationBlock()
    regions: list[tuple[Op | None, list[OperationBlock]]] = [(None, [top])]
    for number, raw in enumerate(lines):
        line = raw.strip()
        if not line or line.startswith(("//", "#")):
            continue
        block = regions[-1][1][-1]
        if line.startswith("^"):
            block.end = number
            if block.ops:
                regions[-1][1].append(OperationBlock())
        elif line.startswith("}"):
            block.end = number
            if len(regions) > 1:
                op, _ = regions.pop()
                assert op is not None
                op.last = number
                if line.endswith("{"):
                    _open(op, regions)
                else:
                    op.location = _location(line) or op.location
        elif line.endswith("{"):
            if not _ANOTHER_REGION.match(line):
                block.ops.append(_op(line, number))
            if block.ops:
                _open(block.ops[-1], regions)
        else:
            block.ops.append(_op(line, number))
    return top.ops


def _open(op: Op, regions: list[tuple[Op | None, list[OperationBlock]]]) -> None:
    op.regions.append([OperationBlock()])
    regions.append((op, op.regions[-1]))


def _op(line: str, number: int) -> Op:
    name = _NAME.match(line)
    return Op(name[1] if name else "", number, number, line, _location(line))


def _location(line: str) -> str:
    start = line.rfind(" loc(")
    return line[start + 5 : -1] if start >= 0 and line.endswith(")") else ""
