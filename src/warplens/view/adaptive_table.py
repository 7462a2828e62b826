"""A table that never cuts a number: where the terminal is narrow it leaves out columns, and says which."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Column, Table
from rich.text import Text

_GAP = 2
_SHORTEST = 12
"""To which the names in the first column may be shortened before a column of numbers goes."""


class AdaptiveTable(Table):
    """`spare` names the columns to leave out, the least first; then they go from the right. The first two stay."""

    def __init__(self, *args: Any, spare: Sequence[str] = (), **options: Any) -> None:
        super().__init__(*args, header_style="bold", pad_edge=False, box=None, **options)
        self.spare = tuple(spare)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        kept, left_out = self._choose(console, options.max_width)
        part = copy(self)
        part.columns = kept
        if left_out:
            words = f"left out here: {', '.join(left_out)}; a wider terminal shows more"
            part.caption = "; ".join(filter(None, (str(self.caption or ""), words)))
            part.caption_justify = "left"
        yield from Table.__rich_console__(part, console, options)

    def _choose(self, console: Console, width: int) -> tuple[list[Column], list[str]]:
        """The columns that fit, and the names of the others."""
        if not self.columns:
            return [], []
        needs = {id(column): _width(console, column) for column in self.columns}
        named = [column for name in self.spare for column in self.columns[2:] if column.header == name]
        order = [*named, *(column for column in reversed(self.columns[2:]) if column not in named)]
        kept, left_out = list(self.columns), []
        names = needs[id(self.columns[0])]
        while order and min(names, _SHORTEST) + sum(needs[id(column)] + _GAP for column in kept[1:]) > width:
            gone = order.pop(0)
            kept.remove(gone)
            left_out.append(str(gone.header))
        room = width - sum(needs[id(column)] + _GAP for column in kept[1:])
        kept = [copy(column) for column in kept]
        for i, column in enumerate(kept):
            column._index = i  # rich pads by it
        if names > room:
            kept[0].max_width = max(room, 1)
        return kept, left_out


def _width(console: Console, column: Column) -> int:
    cells = [column.header, *column.cells]
    texts = (cell if isinstance(cell, Text) else console.render_str(str(cell)) for cell in cells)
    return max(text.cell_len for text in texts)
