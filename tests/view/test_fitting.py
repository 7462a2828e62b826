"""Tables in a narrow terminal: columns may go, digits may not."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from warplens.commands.shared.console import table

NAMES = ("region", "count", "mean", "std", "p50", "p95")


def shown(width: int, cells: dict[str, list[str]], spare: tuple[str, ...] = ("std",)) -> str:
    rows = [{name: values[i] for name, values in cells.items()} for i in range(len(cells["region"]))]
    columns = [(name, lambda row, name=name: row[name]) for name in cells]
    console = Console(file=io.StringIO(), width=width, no_color=True)
    console.print(table("", columns, rows, spare))
    return console.file.getvalue()


@given(
    st.integers(30, 120),
    st.lists(st.lists(st.integers(0, 10**9), min_size=5, max_size=5), min_size=1, max_size=4),
)
def test_no_number_is_ever_cut_and_what_is_left_out_is_named(width: int, rows: list[list[int]]) -> None:
    cells = {"region": [f"r{i}" for i in range(len(rows))]}
    cells |= {name: [f"{row[i]:,}" for row in rows] for i, name in enumerate(NAMES[1:])}
    text = shown(width, cells)
    assert "…" not in text
    said = re.search(r"columns not shown: (.*?);", text.replace("\n", " "))
    gone = [] if said is None else [name.strip() for name in said[1].split(",")]
    header = next(line for line in text.splitlines() if line.startswith("region")).split()
    assert header == [name for name in NAMES if name not in gone]
    for name in header[1:]:
        assert all(value in text for value in cells[name])
    assert gone[:1] in ([], ["std"])


@pytest.mark.parametrize(("width", "expected"), [(100, "a kernel with a long name"), (24, "a kernel with a…")])
def test_names_are_shortened_before_a_column_goes(width: int, expected: str) -> None:
    text = shown(width, {"region": ["a kernel with a long name"], "count": ["12,345"]})
    assert expected in text
    assert "12,345" in text
