"""Polls all ranks of a job on this host for what they do; a slow rank does not delay the others."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from warplens.threads import BackgroundThread
from warplens.trace.io import rank_part
from warplens.view.live_address import LiveAddress, address_file, rank_addresses
from warplens.view.live_job import ANSWERS, ENDED, GONE, SILENT, JobState, RankView
from warplens.view.loopback_client import ask_loopback
from warplens.view.rank_summary import RankSummary

PERIOD_S = 0.5
"""The time between two questions to a rank, and between two states."""
ANSWER_S = 1.0
"""A rank that needs longer for its answer does not answer."""
LOOK_REST = 9.0
"""The rest after a slow look at the folder, in multiples of its duration."""
_FIRST_S = 0.05
"""The time between two tries to make the first state, which has all ranks that are there."""
MOST_RANKS = 256
"""Ranks that are asked; the lowest ones."""
LEFTOVER_S = 600.0
"""A rank that is gone is one of an earlier job if it began so much before the first rank that runs."""


class JobFeed:
    """Follows the ranks in a job's folder from `start` to `stop`. `state` may be read by any thread."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.state = folder, JobState(program=folder.stem)
        self._changed = threading.Condition()
        self._views: dict[str, RankView] = {}
        """The ranks that were asked by now, by their address."""
        self._asked: dict[str, asyncio.Task[None]] = {}
        """What asks each of them."""
        self._here: Sequence[LiveAddress] | None = None
        """What ranks of this host have in the folder; None before the first look."""
        self._elsewhere: Counter[str] = Counter()
        """How many ranks of which other hosts have something there."""
        self._closed = threading.Event()
        self._thread = BackgroundThread(lambda: asyncio.run(self._run()), "warplens-job-feed")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._closed.set()
        self._thread.join()

    def wait(self, after: int, seconds: float | None = None) -> JobState:
        """The first state with a number above `after`, or the latest one after that many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self.state.number > after, seconds)
        return self.state

    async def _run(self) -> None:
        """Publish what is known, as soon as all ranks that are there have answered or had the time to."""
        looking = asyncio.create_task(self._look())
        while not self._closed.is_set():
            self._publish()
            await asyncio.sleep(PERIOD_S if self.state.number else _FIRST_S)
        for task in (looking, *self._asked.values()):
            task.cancel()

    async def _look(self) -> None:
        """Ask every rank that shows itself in the folder. The files of many ranks may be on a slow file system."""
        while True:
            began = time.monotonic()
            found = await asyncio.to_thread(rank_addresses, self.folder)
            self._elsewhere = Counter(one.host_name for one, _ in found if not one.is_here)
            self._here = _of_one_job([(one, since) for one, since in found if one.is_here])
            for one in self._here[:MOST_RANKS]:
                if one.url not in self._asked:
                    self._asked[one.url] = asyncio.create_task(self._follow(one))
            await asyncio.sleep(max(PERIOD_S, LOOK_REST * (time.monotonic() - began)))

    async def _follow(self, address: LiveAddress) -> None:
        """Ask one rank until it is over."""
        view = RankView(address)
        while view.status in (ANSWERS, SILENT):
            asked_at = time.monotonic()
            try:
                answer = await asyncio.wait_for(ask_loopback(f"{address.url}summary"), ANSWER_S)
                summary = RankSummary.from_json(answer)
                status = ENDED if summary.ended else ANSWERS
                view = RankView(address, status, summary, time.monotonic() - summary.age_s)
            except (OSError, ValueError, asyncio.TimeoutError):
                view = replace(view, status=self._without_answer(view), silent_since=view.silent_since or asked_at)
            self._views[address.url] = view
            await asyncio.sleep(PERIOD_S)

    def _without_answer(self, view: RankView) -> str:
        """What it means that a rank does not answer; a program that ends takes its file away before it is gone."""
        if not address_file(rank_part(self.folder, view.rank)).exists():
            return ENDED
        return GONE if view.status == SILENT and not view.address.is_alive() else SILENT

    def _publish(self) -> None:
        """Make a state of what is known; of two processes with one rank, the one that was found last counts."""
        if self._here is None or (self._asked.keys() > self._views.keys() and not self.state.number):
            return
        by_rank = {one.rank: one for one in self._views.values()}
        sizes = [one.address.ranks for one in by_rank.values()]
        state = JobState(
            number=self.state.number + 1,
            program=next((one.address.program for one in by_rank.values()), self.state.program),
            ranks=[by_rank[rank] for rank in sorted(by_rank)],
            size=max([*sizes, len(by_rank)]),
            elsewhere=tuple(sorted(self._elsewhere.items())),
            left_out=max(len(self._here) - MOST_RANKS, 0),
        )
        with self._changed:
            self.state = state
            self._changed.notify_all()


def _of_one_job(found: list[tuple[LiveAddress, float]]) -> list[LiveAddress]:
    """Without what a job that ran before has left in the folder."""
    running = [began for one, began in found if one.is_alive()]
    first = min(running, default=0.0) - LEFTOVER_S
    return [one for one, began in found if began >= first]
