"""A thread of each rank of a job: it notes the rank's clocks, and writes the rank's part of the trace while it runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from warplens import native
from warplens.errors import WarplensError
from warplens.profiling.hang_snapshot import trace_of
from warplens.record.rank_notes import WALL, ClockSample, RankNotes
from warplens.session import Session
from warplens.session.host_clock import host_clock, now_ns, sample_wall
from warplens.threads import BackgroundThread
from warplens.trace.model import Trace

SAMPLE_S = 0.25
"""The time between two readings of the clocks."""
FIRST_PART_S = 2.0
"""The earliest a part is written, and the least time between two."""
WRITING_SHARE = 0.05
"""The share of a processor that writing parts may take."""
_MOST_SAMPLES = 2048


class RankWatch:
    """Runs from `start` to `stop`. `save` writes a part, which replaces the one before; None writes none."""

    def __init__(self, session: Session, rank: int, save: Callable[[Trace], object] | None) -> None:
        self._session, self._rank, self._save = session, rank, save
        self._host = host_clock()
        self._samples: dict[str, list[ClockSample]] = {WALL: [sample_wall()]}
        self._closed = threading.Event()
        self._thread = BackgroundThread(self._run, "warplens-rank-watch")
        self._written: tuple[int, int] = 0, 0
        """The launches and collectives in the part that was written last."""
        self._next_part = time.monotonic() + FIRST_PART_S

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread; a part that is being written is finished first."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()

    def notes(self, *, ended: bool = False) -> RankNotes:
        """What was noted so far, or until the rank `ended`."""
        calls = self._session.collectives
        samples = {name: tuple(some) for name, some in dict(self._samples).items()}  # the thread may add a device now
        return RankNotes(self._host, samples, tuple(calls.noted()) if calls is not None else (), ended)

    def _run(self) -> None:
        try:
            self._watch()
            self.sample()
        except Exception as error:  # an error in this thread would go unseen
            self._session.note("ranks", f"clocks are no longer noted, and parts no longer written: {error!r}")

    def _watch(self) -> None:
        native.load()  # it may have to be compiled, which is not to delay the first part
        while not self._closed.wait(SAMPLE_S):
            self.sample()
            if self._save is not None and time.monotonic() >= self._next_part:
                began = time.thread_time()
                self.write_part()
                spent = time.thread_time() - began
                self._next_part = time.monotonic() + max(FIRST_PART_S, spent / WRITING_SHARE)

    def sample(self) -> None:
        """Read the clocks once."""
        self._add(WALL, sample_wall())
        for engine in self._session.buffers.engines():
            try:
                with engine.lib.relaxed(), engine.lib.inside(engine.context):
                    found = engine.stamps.sample(now_ns)
            except WarplensError:
                continue  # a kernel failed, which is for the program to find
            if found is not None:
                self._add(str(engine.device.index), found)

    def _add(self, name: str, sample: ClockSample) -> None:
        samples = [*self._samples.get(name, ()), sample]
        if len(samples) > _MOST_SAMPLES:
            # Of two neighbours, the one that was read quicker says more.
            pairs = zip(samples[::2], samples[1::2], strict=False)
            samples = [min(pair, key=lambda one: one.after_ns - one.before_ns) for pair in pairs]
        self._samples[name] = samples

    def write_part(self) -> None:
        """Write what is on the host by now, if that is more than in the part before."""
        try:
            for engine in self._session.buffers.engines():
                engine.collector.land_finished()
            launches = self._session.warm_launches_so_far()
            calls = self._session.collectives
            known = len(launches), len(calls) if calls is not None else 0
            if not launches or known == self._written:
                return
            trace = trace_of(self._session, launches, self._rank, self._session.options.trace_bytes)
            trace.meta = replace(trace.meta, rank_notes={str(self._rank): self.notes().to_json()})
            if self._save is not None and len(trace):
                self._save(trace)
            self._written = known
        except (WarplensError, OSError, RuntimeError):
            # The program changes what is read here, or the disk is full: the next part, or the last one, says so.
            return
