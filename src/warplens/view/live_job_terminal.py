"""A running job in the terminal: a line for each rank, redrawn with each state."""

from __future__ import annotations

from typing import Any

from rich.console import Console, Group, RenderableType
from rich.text import Text

from warplens.view.adaptive_table import AdaptiveTable
from warplens.view.live_job import ANSWERS, ENDED, GONE, SILENT
from warplens.view.live_job_feed import JobFeed
from warplens.view.live_terminal import draw_states
from warplens.wording import duration

_NAMES = ("kernel now", "runs for", "last launch", "ago", "last collective", "entered")
_TEXTS = ("status", "kernel now", "last launch", "last collective", "where")
_STYLES = {ANSWERS: "green", SILENT: "yellow", ENDED: "dim", GONE: "red"}


def follow_job(feed: JobFeed, console: Console, width: int | None = None) -> None:
    """Draw the states of a job until it ends or Ctrl-C. Without a terminal, draw one state."""
    console.width = width or (min(console.width, 200) if console.is_terminal else 160)
    if not console.is_terminal:
        console.print(render_job(feed.wait(0).document()))
        return

    def next_state(after: int) -> tuple[Any, RenderableType]:
        document = feed.wait(after).document()
        return document, render_job(document)

    if draw_states(console, next_state):
        console.print("the job has ended")


def render_job(document: Any) -> RenderableType:
    """One state: who is behind, and a line for each rank."""
    facts = "  ".join(f"{name} {text}" for name, text in document["facts"] if text != "0")
    said = [Text(text, "bold yellow") for text in document["said"]]
    notes = [Text(text, "dim") for text in document["notes"]]
    return Group(Text(f"{document['program']}  {facts}", "bold"), *said, *notes, Text(), _table(document["ranks"]))


def _table(ranks: list[Any]) -> AdaptiveTable:
    table = AdaptiveTable(spare=("launches", "where"))
    for name in ("rank", "status", *_NAMES, "launches", "where"):
        table.add_column(name, justify="left" if name in _TEXTS else "right", no_wrap=True)
    for one in ranks:
        more = f" +{one['more']}" if one["more"] else ""
        state = " (in it)" if one["inside"] else ""
        table.add_row(
            str(one["rank"]),
            Text(status_text(one), "bold red" if one["flag"] else _STYLES[one["status"]]),
            Text(f"{one['kernel']}{more}" if one["kernel"] else ""),
            seconds(one["running_s"]),
            Text(one["last_launch"] or ""),
            seconds(one["last_launch_s"]),
            Text(f"{one['collective']}{state}" if one["collective"] else ""),
            seconds(one["collective_s"]),
            f"{one['launches']:,}",
            Text(one["where"]),
        )
    return table


def status_text(one: Any) -> str:
    """What a rank's line begins with."""
    if one["flag"]:
        return str(one["flag"])
    if one["status"] == SILENT:
        return f"no answer, {seconds(one['silent_s'])}"
    if one["status"] == ANSWERS:
        return "runs" if one["kernel"] else "waits" if one["inside"] else "no kernel"
    return str(one["status"])


def seconds(value: float | None) -> str:
    return "" if value is None else duration(value * 1e9)
