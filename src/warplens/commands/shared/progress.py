"""A progress bar on the terminal for what takes long: how far, how fast and how long still."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, Timer

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from warplens.trace.pass_progress import listening

DELAY_S = 0.4
"""Work that ends sooner shows nothing: a bar that flashes by only disturbs."""


class _RateColumn(TextColumn):
    """Rows per second, once a pass over rows is under way."""

    def __init__(self) -> None:
        super().__init__("")

    def render(self, task: Task) -> Text:
        self.text_format = f"{(task.speed or 0) / 1e6:.1f} M rows/s" if task.total else ""
        return super().render(task)


@contextmanager
def progress_bar(console: Console, message: str) -> Iterator[None]:
    """After `DELAY_S`, show a spinner, and a bar for each pass over the rows of a trace.

    A pass begins where the rows go back.
    """
    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), _RateColumn()
    shown = Progress(*columns, TimeRemainingColumn(), console=console, transient=True)
    task = shown.add_task(message, total=None)
    latest = 0

    def show(rows: int, total: int) -> None:
        nonlocal latest
        if rows < latest:
            shown.reset(task)
        latest = rows
        shown.update(task, completed=rows, total=total)

    with _started_later(shown), listening(show):
        yield


@contextmanager
def _started_later(shown: Progress) -> Iterator[None]:
    lock, is_over = Lock(), False

    def start() -> None:
        with lock:
            if not is_over:
                shown.start()

    timer = Timer(DELAY_S, start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        with lock:
            is_over = True
        if shown.live.is_started:
            shown.stop()
