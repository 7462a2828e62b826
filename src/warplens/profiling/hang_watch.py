"""A thread that notices kernels which do not end, says where their warps are, and writes the trace meanwhile.

The main thread cannot do that: it is blocked in a C call, such as a synchronisation, and Python's signal handlers
wait for it. Such calls let other threads run.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from signal import Signals

from warplens import native
from warplens.analyse.hang import Hang, hang_lines, hangs
from warplens.errors import WarplensError
from warplens.launch.stream_heads import StreamHeads
from warplens.launch.woven import WovenLaunch
from warplens.profiling.hang_snapshot import hanging_launches, trace_of
from warplens.profiling.signal_pipe import SignalPipe, die_by
from warplens.record.capture import Launch
from warplens.session import Session
from warplens.text import say
from warplens.threads import BackgroundThread
from warplens.trace.model import Trace

LONGEST_POLL_S = 1.0
SIGNAL_GRACE_S = 0.4
"""After a signal, a kernel that ends within this time is not reported."""
END_AFTER_S = 5.0
"""A program whose kernel still runs so long after a signal is ended."""
KILLED = 1
"""Exit code of a program that is ended because its kernel hangs."""
CONTINUE, KILL = "continue", "kill"
_PIECE_S = 0.05

Launches = list[tuple[WovenLaunch, float]]


class HangWatch:
    """Watches the launches of one session, from `start` to `stop`.

    A launch that was the first of its stream for `options.watch` seconds counts as hanging. `path` is the trace to
    write, and `save` writes it. `in_job` says that there are other ranks. `before_end` is called with the exit code
    before the program is ended, then `leave`, which removes the files of a running program; `end` ends it.
    """

    def __init__(
        self,
        session: Session,
        path: Path | None,
        rank: int,
        *,
        save: Callable[[Trace, Path], object] = lambda trace, path: trace.save(path, force=True),
        in_job: bool = False,
        leave: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        end: Callable[[int], object] = os._exit,
    ) -> None:
        self._session, self._path, self._rank, self._clock, self._end = session, path, rank, clock, end
        self._save, self._in_job, self._leave = save, in_job, leave
        self._writing = threading.Lock()
        self._quiet: tuple[int, float] = (0, self._clock())
        """How many launches there were, and since when."""
        self._seconds, self._on_hang = session.options.watch, session.options.on_hang
        self._heads = StreamHeads()
        self._told: set[WovenLaunch] = set()
        self._asked_to_end = False
        self._closed = False
        self._signals = SignalPipe()
        self._thread = BackgroundThread(self._run, "warplens-hang-watch")
        self.before_end: Callable[[int, tuple[Hang, ...]], None] = lambda code, found: None
        self.before_death: Callable[[], None] | None = None
        """Called when a signal is about to end the program at once, as it does where no handler is installed. Without
        it, the program ends as sys.exit does."""
        self.found: tuple[Hang, ...] = ()
        """The launches that were told of."""

    def start(self) -> None:
        """Call it in the main thread, so that signals are heard of."""
        self._signals.install()
        if self.before_death is not None:
            self._signals.put_off_death()
        elif not self._session.whole_program:
            self._signals.end_on_sigterm()
        self._thread.start()

    def join_job(self, rank: int) -> None:
        """This process has become a rank of a job."""
        with self._writing:
            self._rank, self._in_job = rank, True

    def profile_ends(self) -> None:
        """The profile is about to wait for its launches, in which the program's signal handlers are gone."""
        self._signals.end_on_sigterm()
        with self._writing:
            self._in_job = False  # it writes the whole trace soon

    def stop(self) -> None:
        self._closed = True
        self._signals.remove()
        self._signals.wake()
        if self._thread.is_alive():
            self._thread.join()
        self._signals.close()

    def _run(self) -> None:
        native.load()  # it may have to be compiled, which should not delay the first report
        poll = None if self._seconds is None else min(self._seconds / 4, LONGEST_POLL_S)
        while not self._closed:
            heard = self._signals.wait(poll)
            if self._closed:
                return
            if heard:
                self._on_signal(heard[0])
                if self.before_death is not None and self._signals.is_put_off(heard[0]):
                    with suppress(Exception):
                        self.before_death()
                    die_by(heard[0])
            elif self._seconds is not None:
                self.check()

    def check(self) -> None:
        """Tell of launches that have been waited for long enough, each once."""
        assert self._seconds is not None
        unfinished = self._unfinished()
        if not unfinished:
            self._check_idle()
        hung = [(one, waited) for one, waited in unfinished if waited >= self._seconds]
        if all(one in self._told for one, _ in hung):
            return
        if self._tell(hung, "watch") and self._on_hang == KILL:
            self._finish(KILLED)

    def _check_idle(self) -> None:
        """A rank without a running launch may wait for one that hangs: after a while, let its trace say how far it
        got."""
        count, since = self._quiet
        launches = len(self._session.run.launches_so_far())
        if launches != count:
            self._quiet = launches, self._clock()
        elif launches and self._seconds is not None and self._clock() - since >= self._seconds:
            # A launch that has ended may still be on its way here: then the next look finds it.
            self._quiet = launches, math.inf if self._write_progress() else since

    def _write_progress(self) -> bool:
        """Write the trace of the launches so far, for who compares the ranks of a job; return False if no launch is
        there yet."""
        with self._writing, suppress(Exception):
            if not self._in_job or self._path is None:
                return True
            launches = self._session.launches_so_far({})
            if not launches:
                return False
            self._save(trace_of(self._session, launches, self._rank, self._session.options.trace_bytes), self._path)
        return True

    def _unfinished(self) -> Launches:
        return self._heads.update(self._session.run.launches_so_far(), self._clock())

    def _on_signal(self, number: int) -> None:
        """The program was asked to end: where a kernel keeps it from doing so, say which, and end it."""
        before = {one for one, _ in self._unfinished()}
        until = self._clock() + SIGNAL_GRACE_S
        while before and self._clock() < until and not self._closed:
            time.sleep(_PIECE_S)
            before &= {one for one, _ in self._unfinished()}
        hung = [(one, waited) for one, waited in self._unfinished() if one in before]
        if not hung and not self._closed and self.before_death is None:
            self._write_progress()
        if not hung or self._closed:
            return
        code = 128 + number
        if self._asked_to_end:
            self._finish(code)
            return
        if not self._tell(hung, Signals(number).name):
            return
        self._asked_to_end = True
        if self._on_hang == CONTINUE:
            _say("the program goes on until its kernel ends; another signal ends it")
            return
        _say(f"the program is ended in {END_AFTER_S:.0f} s unless the kernel ends; another signal ends it now")
        until = self._clock() + END_AFTER_S
        while self._clock() < until and not self._signals.wait(_PIECE_S):
            if self._closed or not before & {one for one, _ in self._unfinished()}:
                return
        self._finish(code)

    def _tell(self, hung: Launches, cause: str) -> bool:
        """Say where the warps are and write the trace; return whether there was anything to tell."""
        try:
            launches = hanging_launches(self._session, hung, cause, time.time_ns())
            if not launches:
                return False
            trace = trace_of(self._session, launches, self._rank)
            found = hangs(trace)
            self._told.update(one for one, _ in hung)
            self.found = (*self.found, *found)
            for hang in found:
                _say("\n".join(hang_lines(hang)))
            if self._seconds is None:
                _say("the last one or two records of a warp may be missing; --watch stores each of them at once")
            self._write(trace, launches)
        except Exception as problem:  # an error in this thread would go unseen
            self._told.update(one for one, _ in hung)
            names = ", ".join(sorted({one.kernel.name for one, _ in hung}))
            _say(f"{names} did not end, and its records cannot be read: {problem!s}")
        return True

    def _write(self, trace: Trace, launches: list[Launch]) -> None:
        if self._path is None:
            return
        most = self._session.options.trace_bytes
        kept = trace_of(self._session, launches, self._rank, most) if most is not None else trace
        try:
            self._save(kept, self._path)
        except (WarplensError, OSError) as problem:
            _say(f"the trace was not written: {problem}")
        else:
            _say(f"wrote {self._path}")

    def _finish(self, code: int) -> None:
        """End the program, with the kernel still running."""
        with suppress(Exception):
            self.before_end(code, self.found)
        with suppress(Exception):
            self._leave()
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        self._end(code)


def _say(text: str) -> None:
    for line in text.splitlines():
        say(line)
