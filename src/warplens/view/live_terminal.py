"""A running program in the terminal: the same states as the live page, redrawn with each."""

from __future__ import annotations

import json
import urllib.error
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPException
from typing import Any

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from warplens.analyse.timeline import Strips, TimelineRows
from warplens.errors import WarplensError
from warplens.view.adaptive_table import AdaptiveTable
from warplens.view.loopback_client import fetch_loopback
from warplens.view.terminal import draw_strips
from warplens.wording import duration, percent

_LABELS = 24
"""Columns that the names of rows may take."""


def follow(url: str, console: Console, width: int | None = None) -> None:
    """Draw the states of a program until it ends or Ctrl-C. Without a terminal, draw one state."""
    columns = width or (min(console.width, 200) if console.is_terminal else 120)
    console.width = columns
    if not console.is_terminal:
        try:
            console.print(_next_state(url, 0, columns - _LABELS)[1])
        except OSError as error:
            raise WarplensError(f"{url} does not answer: {error}") from None
        return
    if draw_states(console, lambda after: _next_state(url, after, columns - _LABELS)):
        console.print("the program has ended")


def draw_states(console: Console, next_state: Callable[[int], tuple[Any, RenderableType]]) -> bool:
    """Draw the first state after each number until one has ended; False if Ctrl-C ended the view before."""
    document = {"number": 0, "ended": False}
    try:
        with Live(console=console, auto_refresh=False, vertical_overflow="crop") as screen, suppress(OSError):
            while not document["ended"]:
                document, drawn = next_state(document["number"])
                screen.update(drawn, refresh=True)
    except KeyboardInterrupt:
        return False  # the program continues
    return True


def fetch_state(url: str, after: int, columns: int) -> Any:
    """The first state of a program after a number."""
    return json.loads(fetch_loopback(f"{url}state?after={after}&columns={max(columns, 10)}"))


def _next_state(url: str, after: int, columns: int) -> tuple[Any, RenderableType]:
    """The next state, and how it looks. Where a program was killed, another one may answer at its address."""
    try:
        document = fetch_state(url, after, columns)
        return document, render(document)
    except (urllib.error.HTTPError, HTTPException, LookupError, TypeError, ValueError, AttributeError, RecursionError):
        raise WarplensError(f"{url} belongs to another program; start yours with `warplens run --live`") from None


def render(document: Any) -> RenderableType:
    """One state: what runs, where its warps are, and the timeline of its latest spans."""
    age = f"{document['age_s']:.1f} s old" if not document["ended"] else "ended"
    head = Text(f"{document['program']}  {duration(document['elapsed_s'] * 1e9)}  {age}", "bold")
    parts: list[RenderableType] = [head, *(Text(text, "yellow") for text in document["warnings"]), _kernels(document)]
    for each in document["where"]:
        parts.append(Text(f"{each['kernel']}: {each['running']:,} warps running", "bold"))
        parts += [Text(f"  {text}") for text in each["groups"]]
    found = _strips(document)
    if found is not None:
        left = document["strips"]["left_out"]
        parts += [Text(), draw_strips(found, more=f"{left:,} more rows" if left else "")]
    return Group(*parts, Text(), _regions(document))


def _kernels(document: Any) -> AdaptiveTable:
    table = AdaptiveTable(spare=("recorded",))
    table.add_column("kernel", no_wrap=True)
    for name in ("launches", "recorded", "runs for"):
        table.add_column(name, justify="right")
    for one in document["kernels"]:
        runs = "" if one["running_s"] is None else duration(one["running_s"] * 1e9)
        table.add_row(Text(one["name"]), f"{one['launches']:,}", f"{one['recorded']:,}", runs)
    return table


def _regions(document: Any) -> AdaptiveTable:
    table = AdaptiveTable(spare=("longest", "spans"))
    table.add_column("region", no_wrap=True)
    for name in ("warps now", "spans", "exclusive", "mean", "longest"):
        table.add_column(name, justify="right")
    for one in document["statistics"]:
        known = [percent(one["share"]), duration(one["mean_ns"]), duration(one["max_ns"])] if one["count"] else [""] * 3
        table.add_row(Text(one["name"]), f"{one['now']:,}", f"{one['count']:,}", *known)
    return table


def _strips(document: Any) -> Strips | None:
    known = document["strips"]
    if known is None or not known["cells"]:
        return None
    regions = [region["name"] for region in document["regions"]]
    cells = np.array(known["cells"])
    time = (cells[:, None, :] == np.arange(len(regions))[None, :, None]).astype(np.float64)
    none = np.empty(0, np.int64)
    rows = TimelineRows("sm", [], known["labels"], none, none)
    return Strips(rows, regions, known["begin"], known["end"], time)
