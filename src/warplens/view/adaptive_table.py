"""A table that never truncates numbers: on a narrow terminal it drops columns, and says which."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Column, Table
from rich.text import Text

_GAP = 2
_MIN_NAME_WIDTH = 12
"""The names in the first column are shortened to this width before a column is dropped."""


class AdaptiveTable(Table):
    """Columns in `spare` are dropped first, in that order, then others from the right. The first two stay."""

    def __init__(self, *args: Any, spare: Sequence[str] = (), **options: Any) -> None:
        super().__init__(*args, header_style="bold", pad_edge=False, box=None, **options)
        self.spare = tuple(spare)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown, dropped = self._choose(console, options.max_width)
        part = copy(self)
        part.columns = shown
        part.title = part.caption = None
        part.show_header = bool(self.row_count) and any(str(column.header) for column in shown)
        note = f"columns not shown: {', '.join(dropped)}; widen the terminal to see them" if dropped else ""
        caption = "; ".join(filter(None, (str(self.caption or ""), note)))
        # Rich would wrap them to the width of the columns, and fill them up with spaces.
        if self.title:
            yield console.render_str(str(self.title), style="table.title")
        yield from Table.__rich_console__(part, console, options)
        if caption:
            yield console.render_str(caption, style="table.caption")

    def _choose(self, console: Console, width: int) -> tuple[list[Column], list[str]]:
        """The columns that fit, and the names of the dropped ones."""
        if not self.columns:
            return [], []
        needs = {id(column): _width(console, column) for column in self.columns}
        named = [column for name in self.spare for column in self.columns[2:] if column.header == name]
        order = [*named, *(column for column in reversed(self.columns[2:]) if column not in named)]
        shown, dropped = list(self.columns), []
        names = needs[id(self.columns[0])]
        while order and min(names, _MIN_NAME_WIDTH) + sum(needs[id(column)] + _GAP for column in shown[1:]) > width:
            gone = order.pop(0)
            shown.remove(gone)
            dropped.append(str(gone.header))
        available = width - sum(needs[id(column)] + _GAP for column in shown[1:])
        shown = [copy(column) for column in shown]
        for i, column in enumerate(shown):
            column._index = i  # rich derives the padding from it
        if names > available:
            shown[0].max_width = max(available, 1)
        return shown, dropped


def _width(console: Console, column: Column) -> int:
    cells = [column.header, *column.cells]
    texts = (cell if isinstance(cell, Text) else console.render_str(str(cell)) for cell in cells)
    return max(text.cell_len for text in texts)
