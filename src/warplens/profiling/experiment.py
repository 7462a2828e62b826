"""An experiment with delays: record a few launches, then delay one region after the other.

The stages follow each other in one run of the program, or in several: each stage is a session, and when it has seen
enough launches the next one takes its place. Every launch that the program makes happens once, in one of the stages.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from warplens.analyse.critical_path import critical_path
from warplens.analyse.delay_fit import FEWEST_ROUNDS, DelaySample, fit_delays
from warplens.analyse.kernel_variants import kernel_variants
from warplens.analyse.path_executions import PathExecutions, path_executions
from warplens.analyse.region_sensitivity import RegionSensitivity, Sensitivity, judge, ranked
from warplens.errors import UsageError, WarplensError, did_you_mean
from warplens.launch.launch_timer import LaunchTime
from warplens.launch.variant import Variant
from warplens.options import COLD, DelayOptions
from warplens.profiling.delay_session import PLAIN, DelayArm, DelaySession, variant_key
from warplens.profiling.profile import Profile
from warplens.record.capture import VARIANT
from warplens.trace.model import Trace
from warplens.trace.schema import LIFE
from warplens.weave.delay import MAX_DELAY

T = TypeVar("T")
RECORDED = 3
"""Launches of each variant that are recorded, besides the cold first one."""
ROUNDS = 12
LEVELS = 4
"""Delays besides 0."""
REACH = 0.2
"""The longest delay makes a kernel this much longer if all of it reaches the end."""
LEAST_DELAY = 128
"""The longest delay is at least this long: shorter ones are not much longer than a turn of their loop."""
MOST_REGIONS = 16


@dataclass(frozen=True)
class ExperimentOptions:
    """What to delay: `regions` are names (None: all that were recorded), `delays` cycles (None: chosen by the kernel's
    length), `profile` options of `wl.profile` that choose kernels and marks."""

    regions: tuple[str, ...] | None = None
    delays: tuple[int, ...] | None = None
    rounds: int = ROUNDS
    profile: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.rounds < FEWEST_ROUNDS:
            raise UsageError(f"rounds={self.rounds}: must be at least {FEWEST_ROUNDS}")
        bad = [delay for delay in self.delays or () if not 0 < delay <= MAX_DELAY]
        if bad or self.delays == ():
            raise UsageError(f"delays={list(self.delays or ())}: give cycles, each within 1..{MAX_DELAY}")


class _Recording(Profile):
    """The first stage: a profile that says when it has enough launches."""

    on_launch: Callable[[], None]

    def launch(
        self, variant: Variant, stream: int, plain: Callable[[], T], woven: Callable[[bool], Callable[[], T] | None]
    ) -> T:
        result = super().launch(variant, stream, plain, woven)
        if not variant.closed:
            self.on_launch()
        return result


@dataclass
class _Target:
    """A variant that is delayed: what the recorded launches say about it."""

    key: str
    kernel: str
    label: str
    launches: list[PathExecutions]

    def executions(self, region: str) -> float:
        counts = [one.counts.get(region, 0) for one in self.launches]
        return sum(counts) / len(counts)

    @property
    def cycles(self) -> float:
        return min(one.cycles for one in self.launches)

    @property
    def cycles_per_ns(self) -> float:
        return self.launches[-1].cycles_per_ns or 1.0

    def delays(self, region: str, asked: tuple[int, ...] | None) -> tuple[int, ...]:
        """0 and the delays to try."""
        if asked is not None:
            return (0, *sorted(set(asked)))
        longest = max(LEAST_DELAY, min(MAX_DELAY, round(REACH * self.cycles / max(self.executions(region), 1))))
        return tuple(round(longest * step / LEVELS) for step in range(LEVELS + 1))


class Experiment:
    """Runs the stages. `alone` changes stages only when `advance` is called, between two runs of a function; otherwise
    they change after the launch that completes one, while the program runs."""

    def __init__(self, options: ExperimentOptions, *, alone: bool) -> None:
        self.options, self._alone = options, alone
        self._recording = _Recording(None, whole_program=not alone, launches=RECORDED, skip=COLD, **options.profile)
        self._recording.on_launch = self._launched
        self._session: DelaySession | None = None
        self._todo: list[str] = []
        self._targets: list[_Target] = []
        self._found: list[RegionSensitivity] = []
        self._shares: dict[tuple[str, str], float] = {}
        self.trace: Trace | None = None
        self._records = False
        """Whether the first stage is running."""
        self.launches = 0
        """Launches that took part, in all stages."""
        self.problem: Exception | None = None
        """What went wrong between two stages, inside a launch of the program."""

    @property
    def enabled(self) -> bool:
        """False when WARPLENS=0 switches everything off."""
        return self._recording.enabled

    @property
    def done(self) -> bool:
        return self.problem is not None or (self.trace is not None and self._session is None)

    @property
    def stage(self) -> str:
        """What is going on, in words."""
        return "recording" if self.trace is None else f"delaying {self._delayed!r}"

    @property
    def _delayed(self) -> str:
        assert self._session is not None
        assert isinstance(self._session.options, DelayOptions)
        return self._session.options.delay

    @property
    def full(self) -> bool:
        """Whether the stage has all the launches that it needs."""
        if self.trace is None:
            variants = [one for one in self._recording.variants._known.values() if one.recorded]
            enough = [one.recorded > RECORDED for one in variants]
            return bool(enough) and (all(enough) if self._alone else any(enough))
        return self._session is not None and self._session.full

    def start(self) -> None:
        self._recording.__enter__()
        self._records = True

    def _launched(self) -> None:
        self.launches += 1
        if not self._alone and self.problem is None and self.full:
            try:
                self.advance()
            except Exception as error:
                self.problem = error

    def advance(self) -> None:
        """End the stage and start the next one."""
        if self.trace is None:
            self._end_recording(None)
        elif self._session is not None:
            self._end_delays(self._session)
        if self._todo:
            self._session = self._next(self._todo.pop(0))
            self._session.resume()

    def _end_recording(self, error: BaseException | None) -> None:
        self._records = False
        self._recording.__exit__(None if error is None else type(error), error, None)
        self.trace = self._recording.trace
        if error is None:
            self._plan(self.trace)

    def stop(self, error: BaseException | None = None) -> None:
        """End the stage that is running, with what it has, and leave out those that never ran."""
        if self._records:
            self._end_recording(error)
        elif self._session is not None:
            self._end_delays(self._session)
        for region in self._todo:
            for target in self._targets:
                if target.executions(region):
                    reason = "the program made too few launches to get to this region"
                    self._found.append(replace(self._blank(target, region), reason=reason))
        self._todo = []

    @property
    def needed(self) -> int:
        """How many launches of the kernel an experiment takes."""
        regions = max(1, len({one.region for one in self._found} | set(self._todo)))
        delays = len(self.options.delays) if self.options.delays else LEVELS
        return RECORDED + 1 + regions * DelayArm(range(delays + 1), self.options.rounds).needed

    def answer(self, results: str = "not checked") -> Sensitivity:
        """What was found. Raises what went wrong between two stages."""
        if self.problem is not None:
            raise self.problem
        said = [f"{kernel}: {text}" for kernel, texts in self._recording.notes.items() for text in texts]
        return Sensitivity(ranked(self._found), results, self._recording.device.name, tuple(said))

    def _plan(self, trace: Trace) -> None:
        """Choose the variants and regions to delay from the recorded launches."""
        known = path_executions(trace)
        paths = critical_path(trace)
        self._shares = {(kernel, one.region): one.share for kernel in paths for one in paths[kernel].regions}
        for variant in kernel_variants(trace.meta.launches):
            numbers = {info.launch for info in variant.launches}
            mine = [one for one in known if one.launch in numbers and one.counts]
            first = variant.launches[0]
            described = first.extra.get(VARIANT)
            if mine and first.clock != "cpu" and isinstance(described, dict):
                self._targets.append(
                    _Target(variant_key(variant.kernel, described), variant.kernel, variant.label, mine)
                )
        if not self._targets:
            raise WarplensError("no recorded launch can be delayed: sensitivity needs kernels whose marks are woven")
        found = {name: 0.0 for target in self._targets for one in target.launches for name in one.counts}
        found.pop(LIFE, None)
        for (_, region), share in self._shares.items():
            if region in found:
                found[region] += share
        self._todo = self._chosen(sorted(found, key=lambda name: -found[name]))

    def _chosen(self, found: list[str]) -> list[str]:
        """The regions to delay, by name or by regular expression; all of them if none is named."""
        if self.options.regions is None:
            return found[:MOST_REGIONS]
        out: list[str] = []
        for wanted in self.options.regions:
            matching = [wanted] if wanted in found else [name for name in found if _matches(wanted, name)]
            if not matching:
                raise UsageError(f"no recorded region is called {wanted!r}{did_you_mean(wanted, found)}")
            out += [name for name in matching if name not in out]
        return out

    def _next(self, region: str) -> DelaySession:
        arms = {
            target.key: DelayArm(target.delays(region, self.options.delays), self.options.rounds, seed)
            for seed, target in enumerate(self._targets)
            if target.executions(region)
        }
        options = DelayOptions(**self.options.profile, delay=region)
        return DelaySession(options, arms, self._launched, whole_program=not self._alone)

    def _blank(self, target: _Target, region: str) -> RegionSensitivity:
        return RegionSensitivity(
            target.kernel,
            target.label,
            region,
            executions=target.executions(region),
            path_share=self._shares.get((target.kernel, region)),
        )

    def _end_delays(self, session: DelaySession) -> None:
        """End a stage and fit what it measured."""
        session.pause()
        times = session.times()
        for target in self._targets:
            arm = session.arms.get(target.key)
            if arm is not None:
                self._found.append(self._fitted(target, self._delayed, arm, session, times))
        self._session = None

    def _fitted(
        self, target: _Target, region: str, arm: DelayArm, session: DelaySession, times: dict[int, LaunchTime]
    ) -> RegionSensitivity:
        blank = replace(self._blank(target, region), notes=tuple(session.notes.get(target.kernel, ())))
        if arm.reason:
            return replace(blank, reason=arm.reason)
        read = [(one, times[id(one.timed)]) for one in arm.launches if id(one.timed) in times]
        in_time = [(one, time) for one, time in read if not one.timed.late]
        # A host that is always late leaves nothing else.
        used = in_time if 2 * len(in_time) >= len(read) else read
        rates = sorted(time.cycles_per_ns for _, time in used if time.cycles_per_ns)
        rate = rates[len(rates) // 2] if rates else target.cycles_per_ns
        cycles = [(one, time.ns * (time.cycles_per_ns or rate)) for one, time in used]
        samples = [DelaySample(o.round, o.level, o.delay, spent) for o, spent in cycles if o.level != PLAIN]
        fit = fit_delays(samples)
        blank = replace(blank, launches=len(read))
        if fit is None:
            needed = f"{self.options.rounds * len(arm.delays)} with delays are asked for"
            return replace(blank, reason=f"the program made too few launches: {len(samples)} were timed, {needed}")
        plain = sorted(spent for one, spent in cycles if one.level == PLAIN)
        cost = fit.base_cycles / plain[len(plain) // 2] - 1 if plain and plain[len(plain) // 2] else None
        return replace(judge(blank, fit, rate), probe_cost=cost)


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.fullmatch(pattern, name) is not None
    except re.error as error:
        raise UsageError(f"regions={pattern!r} is not a regular expression: {error}") from None
