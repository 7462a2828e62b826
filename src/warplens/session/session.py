"""A session: the options of one profile, what it has collected, and the front ends that take part."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from warplens.driver import libcuda
from warplens.errors import UsageError, WarplensError
from warplens.forks import in_forked_children
from warplens.launch.buffers import Buffers
from warplens.launch.captured_graphs import CapturedCode
from warplens.launch.collected_run import CollectedRun, PendingLaunch
from warplens.launch.lent_launch import LentLaunch
from warplens.launch.overhead_budget import OverheadBudget
from warplens.launch.replays import Replays
from warplens.launch.short_turns import wait_precisely
from warplens.launch.thinning import samples_of
from warplens.launch.timing import TIMED_LAUNCHES, Timings, with_slowdown
from warplens.launch.variant import Choice, Variant, Variants
from warplens.launch.woven import WovenKernel
from warplens.options import COLD, Options
from warplens.record.capture import (
    HOST_NS,
    OVERHEAD_BUDGET,
    VARIANT_LAUNCHES,
    VARIANT_NUMBER,
    Device,
    Dim3,
    Launch,
)
from warplens.session import stack
from warplens.session.collective_log import CollectiveLog
from warplens.session.window import Window
from warplens.weave.weaving import Selection

T = TypeVar("T")


class Session:
    """What a front end may ask of the running profile.

    `whole_program` is for a program that does not know of warplens: a profile that the program starts itself takes over
    until it ends. `counts_all` counts the launches of all kernels, also of those that are not profiled.
    """

    records = True
    """Whether woven kernels of this session write records; False where they are delayed instead."""

    def __init__(self, options: Options, *, whole_program: bool = False, counts_all: bool = False) -> None:
        self.options, self.whole_program, self.counts_all = options, whole_program, counts_all
        self._stops: list[Callable[[], None]] = []
        self._stop_watching_forks: Callable[[], None] = lambda: None
        self._interrupted: Session | None = None
        self.reset()

    def reset(self) -> None:
        """Start with nothing collected: a decorated function enters the same profile many times."""
        self.process = os.getpid()
        """The process whose launches these are; a forked child inherits the session."""
        self.run = CollectedRun()
        if self.options.stalls and self.enabled:
            from warplens.launch.stall_sampling import StallSampling

            self.run.stalls = StallSampling(self.run.note)
        self.timings = Timings()
        window = Window.of(self.options)
        self.variants = Variants(self.options, TIMED_LAUNCHES, None if window.is_always_open else window.open)
        self.buffers = Buffers(self.run, self.options, self.variants)
        self.budget: OverheadBudget | None = None
        if self.options.overhead is not None:
            # A kernel of which only lifetimes are recorded counts as unmarked, which `strict` does not allow.
            self.budget = OverheadBudget(
                self.options.overhead, self.timings, self.note, self.buffers, lives=not self.options.strict
            )
        self.replays = Replays(self.options, self.run, self.variants, self.buffers)
        self.collectives: CollectiveLog | None = None
        """The collectives of a rank of a job; None if they are not recorded."""
        self._gave_way = False
        self.user_mistake: WarplensError | None = None
        """What is wrong with the profile's own options: the program runs on, and hears of it at the end."""
        self.cold_launches = 0
        """Recorded launches that were left out because they were the first of their variant (skip="cold")."""

    @property
    def enabled(self) -> bool:
        """False when WARPLENS=0 switches everything off."""
        return os.environ.get("WARPLENS", "") != "0"

    @property
    def device(self) -> Device:
        """The device of the first launch."""
        return self.run.device

    @property
    def seen(self) -> dict[str, int]:
        """Launches of each kernel, recorded or not; 0 where a kernel that is not profiled was loaded."""
        counts = dict(self.run.seen)
        for kernel, launches in self.variants.counts().items():
            counts[kernel] = counts.get(kernel, 0) + launches
        return counts

    @property
    def notes(self) -> dict[str, list[str]]:
        """What the user was told about each kernel."""
        return self.run.notes

    def variant(
        self, kernel: str, code: Hashable, grid: Hashable, describe: Callable[[], Mapping[str, Any]] = dict
    ) -> Variant:
        """The variant of a launch: `code` stands for the compiled kernel and its launch options."""
        return self.variants.of(kernel, code, grid, describe)

    def start_trial(self, variant: Variant, select: Selection, grid: Dim3) -> None:
        """Let the overhead budget, if there is one, decide about a variant whose front end can weave it again."""
        if self.budget is not None and not variant.tried and variant.trial is None:
            variant.settled, variant.samples = False, samples_of(select, grid)

    def launch(
        self,
        variant: Variant,
        stream: int,
        plain: Callable[[], T],
        woven: Callable[[bool], Callable[[], T] | None],
    ) -> T:
        """Make one launch of a variant.

        `plain` launches the plain kernel. `woven` is called if this launch is to be recorded: it returns a function
        that launches the woven kernel with what `lend` gives, or None where the kernel must run plain. Its argument
        says whether the launch is captured into a CUDA graph, where the kernel must be woven for an indirect buffer.
        Whatever goes wrong on the way to the woven kernel, the plain one runs.
        """
        if not variant.closed and is_capturing(stream):
            return self._capture(variant, plain, woven)
        if not variant.settled and self.budget is not None:
            with _relaxed():
                self.budget.review(variant)
        choice = self.variants.choose(variant)
        if choice is Choice.PLAIN:
            return plain()
        with _relaxed():
            return self._launch(variant, stream, plain, woven, choice)

    def _capture(self, variant: Variant, plain: Callable[[], T], woven: Callable[[bool], Callable[[], T] | None]) -> T:
        """Launch into a graph. The quota is for the replays."""
        if not self.variants.is_open(variant):
            return plain()
        with _relaxed():
            captured = self._prepare(variant, lambda: woven(True))
            return plain() if captured is None else captured()

    def _launch(
        self,
        variant: Variant,
        stream: int,
        plain: Callable[[], T],
        woven: Callable[[bool], Callable[[], T] | None],
        choice: Choice,
    ) -> T:
        recorded = self._prepare(variant, lambda: woven(False)) if choice is Choice.RECORD else None
        if choice is Choice.RECORD and recorded is None:
            return plain()
        # Where every launch is recorded, none could be compared with it.
        limited = self.options.launches is not None or self.budget is not None
        timed = self.timings.begin(variant, stream, recorded=recorded is not None) if limited else None
        result = plain() if recorded is None else recorded()
        if timed is not None:
            timed.launched()
        return result

    def lend(
        self, kernel: WovenKernel, variant: Variant, grid: Dim3, stream: int, code: CapturedCode | None
    ) -> LentLaunch | None:
        """Memory for a launch, or a place for it in the graph that it is captured into; None where there is none.

        `with launch as pointer:` launches the woven kernel. `code` is given for a launch that is captured.
        """
        if kernel.select.flat and math.prod(grid[1:]) > 1:
            return None  # of a kernel with very many grids, some share a variant
        if code is not None:
            return self.replays.captured(kernel, variant, grid, stream, code)
        return self.buffers.lend(kernel, variant, grid, stream, ahead=self._ahead(variant))

    def lend_more(self, kernel: WovenKernel, variant: Variant, grid: Dim3) -> None:
        """Memory for launches that follow, in addition to what is at hand."""
        self.run.fetch()
        self.buffers.lend_more(kernel, variant, grid, self._ahead(variant))

    def _ahead(self, variant: Variant) -> int:
        """How many launches of the variant after this one are sure to be recorded, and not to be timed."""
        if (
            not variant.settled
            or self.options.every > 1
            or (self.options.launches is not None and variant.recorded <= TIMED_LAUNCHES)
        ):
            return 0
        return self.variants.left(variant)

    def _prepare(self, variant: Variant, woven: Callable[[], Callable[[], T] | None]) -> Callable[[], T] | None:
        """The woven launch. In a program that does not know of warplens, no mistake of ours is the program's."""
        try:
            return woven()
        except Exception as error:
            if self.options.strict or (isinstance(error, WarplensError) and not self.whole_program):
                raise
            variant.closed = True
            # A file of --override is the user's own, like every option.
            by_user = isinstance(error, UsageError) or self.options.override is not None
            if by_user and isinstance(error, WarplensError):
                self.user_mistake = self.user_mistake or error
            else:
                self.note(variant.kernel, f"runs unmarked: {str(error) or type(error).__name__}")
            return None

    def wants(self, kernel: str) -> bool:
        """Count a launch whose variant is not known, and return whether to record it. Call it once per launch."""
        return self.variants.choose(self.variant(kernel, None, None)) is Choice.RECORD

    def takes_on_host(self, variant: Variant) -> bool:
        """Count a launch that the host runs itself, and return whether to record it. No cold launch of it is left out
        at the end, so none is recorded beyond the quota."""
        if variant.closed:
            variant.launches += 1
            return False
        limit = self.options.launches
        if self.variants.choose(variant) is not Choice.RECORD:
            return False
        return limit is None or variant.recorded <= limit

    def add(self, pending: PendingLaunch) -> None:
        """Keep a launch that is about to be made."""
        self.run.add(pending)

    def note(self, kernel: str, text: str) -> None:
        """Tell the user once about a kernel; the trace keeps the note."""
        self.run.note(kernel, text)

    def collect(self) -> tuple[list[Launch], list[str]]:
        """Bring every launch to the host. Return the launches, and a sentence for each that failed."""
        with _relaxed():
            self.buffers.end_threads()
            wait_precisely(False)
            launches, problems = self.run.collect()
            if self.run.stalls is not None:
                self.run.stalls.pause(wait=False)
            launches = self._within_budget(launches)
            slowdowns = self.timings.slowdowns()
            for one in self.run.unmarked:
                one.times_ns = self.timings.unmarked_ns(one.kernel)
            self.buffers.release()
        numbers = self.variants.numbers()
        return [
            self._described(with_slowdown(launch, slowdowns.get(id(variant))), variant, numbers)
            for variant, launch in self._warm(launches)
        ], problems

    def launches_so_far(self, copied: Mapping[int, Launch]) -> list[Launch]:
        """The launches that are on the host by now, and those that `copied` has by id, in the order of the program."""
        numbers = self.variants.numbers()
        found = self._on_host(copied)
        return [self._described(launch, getattr(pending, "variant", None), numbers) for pending, launch in found]

    def warm_launches_so_far(self) -> list[Launch]:
        """The launches that are on the host by now, without the cold ones, which `collect` leaves out too."""
        numbers = self.variants.numbers()
        return [self._described(launch, variant, numbers) for variant, launch in self._warm(self._on_host({}))]

    def _on_host(self, copied: Mapping[int, Launch]) -> list[tuple[PendingLaunch, Launch]]:
        found = []
        for pending, announced in self.run.launches_so_far():
            launch = copied.get(id(pending), getattr(pending, "launch", None))
            if isinstance(launch, Launch):
                found.append((pending, launch.noting(extra={HOST_NS: announced})))
        return found

    def _within_budget(self, launches: list[tuple[PendingLaunch, Launch]]) -> list[tuple[PendingLaunch, Launch]]:
        """Drop launches of weavings that the overhead budget gave up, if there are newer ones, and what trials
        recorded beyond the quota."""
        if self.budget is None:
            return launches
        known = [(one, getattr(one, "variant", None), getattr(one, "generation", None)) for one, _ in launches]
        latest: dict[int, int] = {}
        for _, variant, generation in known:
            if variant is not None and generation is not None:
                latest[id(variant)] = max(generation, latest.get(id(variant), 0))
        kept = [
            launch
            for launch, (_, variant, generation) in zip(launches, known, strict=True)
            if generation is None or generation == latest[id(variant)]
        ]
        for variant in {id(one[1]): one[1] for one in known if one[1] is not None}.values():
            self.budget.conclude(variant)
        limit = self.options.launches
        if limit is None:
            return kept
        left = Counter(id(getattr(one, "variant", None)) for one, _ in kept)
        newest = []
        for one, launch in kept:
            variant = getattr(one, "variant", None)
            tested = variant is not None and variant.trial is not None
            if tested and left[id(variant)] > limit + (self.options.skip == COLD):
                left[id(variant)] -= 1
            else:
                newest.append((one, launch))
        return newest

    def _described(self, launch: Launch, variant: Variant | None, numbers: Mapping[int, int]) -> Launch:
        """A launch that says how often its variant ran, which of several variants with one description it is, and what
        the overhead budget left out."""
        if variant is None:
            return launch
        number = numbers.get(id(variant), 1)
        known: dict[str, Any] = {VARIANT_LAUNCHES: variant.launches, **({VARIANT_NUMBER: number} if number > 1 else {})}
        if self.budget is not None and (variant.tried or variant.thinning):
            known[OVERHEAD_BUDGET] = self.budget.document(variant)
        return launch.noting(extra=known)

    def _warm(self, launches: list[tuple[PendingLaunch, Launch]]) -> list[tuple[Variant | None, Launch]]:
        """With skip="cold", leave out the first launch of each variant that has others."""
        by_variant = [(getattr(pending, "variant", None), launch) for pending, launch in launches]
        if self.options.skip != COLD:
            return by_variant
        # A launch whose variant is not known is told from others of its kernel by its grid.
        keys = [(launch.kernel, launch.grid) if known is None else id(known) for known, launch in by_variant]
        others, seen = Counter[Hashable](keys), set[Hashable]()
        kept = []
        for key, one in zip(keys, by_variant, strict=True):
            # Only a GPU loads code and warms its caches in the first launch.
            if key in seen or others[key] == 1 or one[1].clock == "cpu":
                kept.append(one)
            seen.add(key)
        self.cold_launches = len(by_variant) - len(kept)
        return kept

    def join(self, start: stack.StartFrontEnd) -> None:
        """Start a front end, and stop it when the session pauses or ends."""
        stop = start(self)
        if stop is not None:
            self._stops.append(stop)

    def resume(self) -> None:
        """Record the launches that follow."""
        running = stack.check_free()
        if running is not None:
            running.pause()
            if running.run.stalls is not None:
                running.run.stalls.pause()
            running._gave_way = True
            self._interrupted = running
        stack.push(self)
        self._stop_watching_forks = in_forked_children(self._abandon)
        if self.run.stalls is not None:
            self.run.stalls.resume()
        try:
            self._start_front_ends()
        except BaseException:
            self.pause()
            raise

    def _start_front_ends(self) -> None:
        for start in list(stack.front_ends) if self.enabled else ():
            self.join(start)

    def _abandon(self) -> None:
        """Stop for good, in a forked child: its launches are not the parent's, and nobody would collect them."""
        self._interrupted = None
        self.pause()

    def pause(self) -> None:
        """Ignore the launches that follow until `resume`; keep what was collected."""
        stack.remove(self)
        self._stop_watching_forks()
        while self._stops:
            self._stops.pop()()
        interrupted, self._interrupted = self._interrupted, None
        if interrupted is not None:
            if self.run.stalls is not None:
                self.run.stalls.pause()
            interrupted.resume()


def _relaxed() -> AbstractContextManager[None]:
    """A capture that some thread of the program has under way must not forbid our driver calls."""
    try:
        return libcuda.driver().relaxed()
    except WarplensError:
        return nullcontext()


def is_capturing(stream: int) -> bool:
    """Return whether a launch on `stream` goes into a CUDA graph; without a driver none does."""
    try:
        return libcuda.driver().is_capturing(stream)
    except WarplensError:
        return False
