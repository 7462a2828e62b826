"""Where a track's next record goes, as a value of LLVM IR in static single assignment form.

A block that stores a record leaves another offset than it found. Where the predecessors of a block leave different
offsets, a phi joins them. LLVM would do this for a variable in memory, but not in the stages that follow the weaver.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from warplens.errors import WarplensError

_LABEL = re.compile(r"(?P<name>[-\w.$]+):(?:\s+; preds = (?P<preds>.*))?$")


@dataclass
class IrBlock:
    """A basic block: its label's line, its instructions, and the names of its predecessors, with repetitions."""

    name: str
    label: str = ""
    lines: list[str] = field(default_factory=list)
    preds: list[str] = field(default_factory=list)

    @property
    def incoming(self) -> str:
        """What stands for the offset at the block's begin until it is known."""
        return f"%wl.in.{self.name}"


def ir_blocks(lines: Sequence[str]) -> list[IrBlock]:
    """The blocks of a function. LLVM prints the predecessors of each as a comment."""
    blocks = [IrBlock("")]
    for line in lines:
        found = _LABEL.match(line)
        if found is None:
            blocks[-1].lines.append(line)
        else:
            preds = [name.strip().removeprefix("%") for name in (found["preds"] or "").split(",") if name.strip()]
            blocks.append(IrBlock(found["name"], line, [], preds))
    named = {block.name for block in blocks}
    entry = {name for block in blocks for name in block.preds} - named
    if len(entry) > 1:
        raise WarplensError(f"the LLVM IR has blocks that the weaver does not find: {', '.join(sorted(entry))}")
    if entry:
        blocks[0].name = entry.pop()
    return blocks


def join_offsets(blocks: Sequence[IrBlock], outgoing: Mapping[str, str], first: str) -> None:
    """Put the offset of each block in place of its name, and phis where paths with different offsets meet.

    `outgoing` has the offset that each block with a record leaves; `first` is that of the kernel's begin.
    """
    incoming: dict[str, str] = {blocks[0].name: first}

    def leaves(name: str) -> str | None:
        return outgoing.get(name) or incoming.get(name)

    changed = True
    while changed:
        changed = False
        for block in blocks[1:]:
            own = block.incoming
            if incoming.get(block.name) == own:
                continue
            known = {value for value in map(leaves, block.preds) if value is not None}
            if known:
                value = known.pop() if len(known) == 1 else own
                changed |= incoming.get(block.name) != value
                incoming[block.name] = value
    for block in blocks:
        value = incoming.get(block.name, "poison")
        if value != block.incoming:
            name = re.compile(re.escape(block.incoming) + r"(?![\w.$])")
            block.lines = [name.sub(lambda _, value=value: value, line) for line in block.lines]  # type: ignore[misc]
            continue
        edges = ", ".join(f"[ {leaves(name)}, %{name} ]" for name in block.preds)
        block.lines.insert(0, f"  {value} = phi i32 {edges}")
