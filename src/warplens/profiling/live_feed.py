"""A thread that looks at the launches of a running program twice a second, and keeps its latest state for the views."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import numpy as np

from warplens import native
from warplens.analyse.hang import hangs
from warplens.analyse.running_overview import RunningOverview
from warplens.decode import decode
from warplens.launch.block_sampler import sample_launches
from warplens.launch.collected_run import PendingLaunch
from warplens.launch.followed_launch import FollowedLaunch
from warplens.launch.stream_heads import StreamHeads
from warplens.launch.woven import WovenLaunch
from warplens.profiling.hang_snapshot import clock_offset
from warplens.record.capture import HOST_NS, Capture, Launch
from warplens.session import Session
from warplens.session.host_clock import now_ns as clock_ns
from warplens.threads import BackgroundThread
from warplens.trace.merge import rebase
from warplens.trace.model import Trace
from warplens.view.live_state import LiveKernel, LiveState
from warplens.view.rank_summary import LiveCollective
from warplens.wording import plural

PERIOD_S = 0.4
"""The time from one look to the next."""
REST_SHARE = 2.0
"""After a look that takes long, the thread rests so many times as long, so that the program is not slowed down."""
OLDEST_S, LEAST_REST_S = 0.8, 0.1
"""How old a state may be when the next one is made: the rest is shortened for that, but not below the second number."""
RECENT_BYTES = 1 << 20
"""Bytes of records of finished launches that are shown."""
MOST_RECENT = 200
"""Finished launches that are shown."""
MOST_NOTES = 4
MOST_RUNNING = 8
"""Streams whose running launch is followed."""


def rest_after(took_s: float) -> float:
    """How long to rest after a look, if the next one takes as long."""
    return min(max(PERIOD_S - took_s, REST_SHARE * took_s), max(OLDEST_S - 2 * took_s, LEAST_REST_S))


class LiveFeed:
    """Follows the launches of one session from `start` to `stop`. `state` may be read by any thread."""

    def __init__(self, session: Session, program: str = "", rank: int = 0) -> None:
        self._session, self._program, self._rank = session, program, rank
        self.state = LiveState(program=program)
        self.changed = threading.Condition()
        """Notified whenever there is a new state."""
        self._began = time.monotonic()
        self._heads = StreamHeads()
        self._followed: dict[int, FollowedLaunch] = {}
        self._numbers: dict[int, int] = {}
        self._waiting: list[tuple[WovenLaunch, int]] = []
        self._known = 0
        """So many launches of the session were seen."""
        self._recent: deque[tuple[int, Launch]] = deque(maxlen=MOST_RECENT)
        self._recorded: Counter[str] = Counter()
        self._read = 0
        self._counted: dict[int, int] = {}
        """By number of a launch, until when the overview has it."""
        self._overview = RunningOverview()
        self._seen: dict[str, int] = {}
        """The launches of each kernel at the last look."""
        self._last_launch: tuple[str, float] | None = None
        """The kernel that was launched last, and when on the monotonic clock."""
        self._origin: int | None = None
        """The globaltimer at the first record."""
        self._offset = 0
        self._closed = threading.Event()
        self._thread = BackgroundThread(self._run, "warplens-live")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop looking; the last state says that the program has ended."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()
        self._publish(replace(self.state, ended=True, number=self.state.number + 1, made=time.monotonic()))

    def wait(self, after: int, seconds: float) -> LiveState:
        """The first state with a number above `after`, or the latest one once so many seconds have passed."""
        with self.changed:
            self.changed.wait_for(lambda: self.state.number > after or self.state.ended, seconds)
        return self.state

    def _run(self) -> None:
        native.load()  # it may have to be compiled, which should not delay the first look
        rest = 0.0
        while not self._closed.wait(rest):
            start = time.monotonic()
            try:
                self.look()
            except Exception as problem:  # an error in this thread would go unseen
                note = f"the records could not be read: {str(problem) or type(problem).__name__}"
                self._publish(replace(self.state, number=self.state.number + 1, notes=(note,)))
            took = time.monotonic() - start
            rest = rest_after(took)

    def look(self, host_ns: Callable[[], int] = time.time_ns) -> LiveState:
        """Copy what is new, and make the state of now."""
        made = time.monotonic()
        seen = self._session.seen
        launches = self._session.run.launches_so_far()
        last_launch = self._latest_launch(seen, launches, made, host_ns())
        heads = self._heads.update(launches, made)[:MOST_RUNNING]
        fresh = self._newly_finished(launches)
        running = self._running(heads, lambda: host_ns() + self._offset)
        now_ns = host_ns() + self._offset
        shown = [*self._recent, *running]
        trace = self._trace(shown)
        self._keep_open(heads, trace)
        self._offset = clock_offset([launch for _, launch in shown])
        self._extend_overview(trace, [*fresh, *(number for number, _ in running)], now_ns)
        state = LiveState(
            number=self.state.number + 1,
            made=made,
            elapsed_s=made - self._began,
            program=self._program,
            kernels=self._kernels(heads, seen),
            trace=trace,
            hangs=hangs(trace),
            records=self._read + sum(one.records for one in self._followed.values()),
            full_tracks=sum(one.full_tracks for one in self._followed.values()),
            overview=self._overview.warps(),
            overview_begin_ns=self._overview.begin_ns or 0,
            bin_ns=self._overview.bin_ns,
            last_launch=last_launch,
            collectives=self._collectives(host_ns() + self._offset),
            cost_s=time.monotonic() - made,
            notes=self._notes(),
        )
        self._publish(state)
        return state

    def _publish(self, state: LiveState) -> None:
        with self.changed:
            self.state = state
            self.changed.notify_all()

    def _newly_finished(self, launches: list[tuple[PendingLaunch, int]]) -> list[int]:
        """Keep the records of launches that came home since the last look; return their numbers."""
        for at, (pending, announced) in enumerate(launches[self._known :], self._known):
            self._numbers[id(pending)] = at
            if isinstance(pending, WovenLaunch):
                self._waiting.append((pending, announced))
        self._known = len(launches)
        landed = [(one, announced) for one, announced in self._waiting if one.landed]
        self._waiting = [(one, announced) for one, announced in self._waiting if not one.landed]
        done = [(self._numbers.pop(id(one)), one.launch, announced) for one, announced in landed]
        known = [(number, launch, announced) for number, launch, announced in done if launch is not None]
        self._recorded.update(launch.kernel for _, launch, _ in known)
        newest = known[-MOST_RECENT:]
        kept = sample_launches([launch for _, launch, _ in newest], RECENT_BYTES)
        for (number, _, announced), launch in zip(newest, kept, strict=True):
            self._recent.append((number, launch.noting(extra={HOST_NS: announced})))
        while sum(len(launch.raw) for _, launch in self._recent) > RECENT_BYTES and len(self._recent) > 1:
            self._recent.popleft()
        return [number for number, _, _ in newest]

    def _running(
        self, heads: list[tuple[WovenLaunch, float]], device_ns: Callable[[], int]
    ) -> list[tuple[int, Launch]]:
        """The launches that run now, with their latest records."""
        announced = {id(one): ns for one, ns in self._waiting}
        for gone in set(self._followed) - {id(one) for one, _ in heads}:
            self._read += self._followed.pop(gone).records
        found = []
        for one, _ in heads:
            if id(one) not in self._followed:
                self._followed[id(one)] = FollowedLaunch(one)
            launch = self._followed[id(one)].update(device_ns)
            if launch is not None and id(one) in announced:
                host = {HOST_NS: announced[id(one)]}
                found.append((self._numbers[id(one)], launch.noting(extra=host)))
        return found

    def _keep_open(self, heads: list[tuple[WovenLaunch, float]], trace: Trace) -> None:
        """Tell the running launches what is open in them."""
        is_open = np.flatnonzero(trace.numpy("open") & trace.of_kind("span"))
        launch, block, warp, clock = (
            trace.numpy(name)[is_open].tolist() for name in ("launch", "block", "warp", "start_cycle")
        )
        codes, names = trace.codes("region")
        region = [names[code] for code in codes[is_open].tolist()]
        for one, _ in heads:
            numbers = {name: number for number, name in one.kernel.regions.items()}
            begins: dict[tuple[int, int], list[tuple[int, int]]] = {}
            for at, number in enumerate(launch):
                if number == self._numbers.get(id(one)) and region[at] in numbers:
                    begins.setdefault((block[at], warp[at]), []).append((numbers[region[at]], clock[at]))
            self._followed[id(one)].keep_open(begins)

    def _trace(self, shown: list[tuple[int, Launch]]) -> Trace:
        """The spans of launches, which keep their numbers and times from one look to the next."""
        trace = decode(Capture([launch for _, launch in shown], device=self._session.device, rank=self._rank))
        if self._origin is None and len(trace):
            self._origin = trace.meta.origin_ns
        return rebase(trace, self._origin or trace.meta.origin_ns, [number for number, _ in shown])

    def _extend_overview(self, trace: Trace, fresh: list[int], now_ns: int) -> None:
        nothing = np.iinfo(np.int64).max
        infos = trace.meta.launches
        since = np.array([self._counted.get(info.launch, 0) if info.launch in fresh else nothing for info in infos])
        self._overview.add(trace, since, now_ns)
        followed = {self._numbers.get(key, -1) for key in self._followed}
        counted = {info.launch for info in infos if info.launch in followed}
        kept = {number: ns for number, ns in self._counted.items() if number in followed}
        self._counted = {**kept, **dict.fromkeys(counted, now_ns)}

    def _latest_launch(
        self, seen: dict[str, int], launches: list[tuple[PendingLaunch, int]], made: float, host_ns: int
    ) -> tuple[str, float] | None:
        """The kernel that was launched last and how long ago; of launches that are only counted, as looks tell."""
        new = [name for name, count in seen.items() if count > self._seen.get(name, 0)]
        self._seen = seen
        if new:
            self._last_launch = new[-1], made
        if len(launches) > self._known:
            pending, announced = launches[-1]
            if isinstance(pending, WovenLaunch):
                self._last_launch = pending.kernel.name, made - max(host_ns - announced, 0) / 1e9
        return None if self._last_launch is None else (self._last_launch[0], made - self._last_launch[1])

    def _collectives(self, device_ns: int) -> list[LiveCollective]:
        log = self._session.collectives
        found = []
        for one in log.positions() if log is not None else ():
            now = device_ns if one.on_device else clock_ns()
            ago_s = max(now - one.entered_ns, 0) / 1e9
            found.append(LiveCollective(one.group, one.number, one.operation, one.waits_for, ago_s, one.inside))
        return found

    def _kernels(self, heads: list[tuple[WovenLaunch, float]], seen: dict[str, int]) -> list[LiveKernel]:
        runs: dict[str, float] = {}
        for one, waited in heads:
            runs[one.kernel.name] = max(waited, runs.get(one.kernel.name, 0.0))
        names = dict.fromkeys([*runs, *self._recorded, *seen])
        going = Counter(one.kernel.name for one, _ in heads)
        return [
            LiveKernel(name, seen.get(name, 0), self._recorded[name] + going[name], runs.get(name)) for name in names
        ]

    def _notes(self) -> tuple[str, ...]:
        said: list[str] = []
        with suppress(RuntimeError):  # the program may add a note at this moment
            said = [f"{kernel}: {text}" for kernel, notes in self._session.notes.items() for text in notes]
        most = self._session.options.launches
        if most is not None and any(count >= most for count in self._recorded.values()):
            said.append(
                f"{plural(most, 'launch')} of each variant {'is' if most == 1 else 'are'} recorded, and later ones are "
                "only counted; launches=None (--launches all) records all"
            )
        return tuple(said[-MOST_NOTES:])
