"""How long plain and recorded launches of a variant took on the device: by the driver's events around them.

Nothing waits for the device. A launch on an idle stream would be timed together with the host's way to it, so the
stream is kept busy for that long first. The quickest launch counts: whatever else comes between the events makes a
launch look longer, never shorter.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from warplens.driver import libcuda
from warplens.driver.libcuda import Driver
from warplens.errors import WarplensError
from warplens.launch.variant import Variant
from warplens.record.capture import Launch
from warplens.record.cost_keys import SLOWDOWN_MEASURED, TIMED_PLAIN, TIMED_RECORDED

TIMED_LAUNCHES = 10
"""Launches of each kind that are timed."""
FEWEST = 3
"""Times of each kind that make a slowdown; the first launch of each kind loads code and does not count."""
TRIAL_WAITS = 5
"""How many times as long the stream is kept busy before a launch of which the overhead budget needs the time."""
BUSY_NS = 60_000
"""Longer than the host takes from the first event to the launch."""


@dataclass
class _Times:
    recorded: list[Timed] = field(default_factory=list)
    plain: list[Timed] = field(default_factory=list)


class Timed:
    """One launch that is timed: made right before the launch, `launched` is called right after it."""

    def __init__(self, timings: Timings, lib: Driver, stream: int) -> None:
        self._timings, self._lib, self._stream = timings, lib, stream
        self.first, self.second = lib.event(stream), 0
        self._elapsed: float | None = None

    @property
    def elapsed_ns(self) -> float:
        """How long the launch took, once it is over."""
        if self._elapsed is None:
            self._elapsed = self._lib.elapsed_ns(self.first, self.second)
        return self._elapsed

    @property
    def is_over(self) -> bool:
        return not self.second or self._elapsed is not None or self._lib.reached(self.second)

    def discard(self) -> None:
        """Give the events of a time back that nobody asks for any more."""
        if self.second and self._elapsed is None:
            self._lib.destroy_event(self.first)
            self._lib.destroy_event(self.second)

    def launched(self) -> None:
        try:
            # Once the device has passed the first event, the time holds a part of the host's way.
            if self._lib.reached(self.first):
                self._lib.destroy_event(self.first)
                self.first = 0
            else:
                self.second = self._lib.event(self._stream)
        except WarplensError:
            self._timings.switch_off()  # the launch failed, which is for the program to find


class Timings:
    """The times of one session. Without a driver there are none, and nothing else changes."""

    def __init__(self) -> None:
        self._variants: dict[int, tuple[Variant, _Times]] = {}
        self._unmarked: dict[str, list[Timed]] = {}
        """By name, launches of kernels that cannot be marked."""
        self._nothing: list[Timed] = []
        self._wait: dict[int, int | None] = {}
        """The kernel that keeps the GPU busy, by context."""
        self._off = False

    def begin(self, variant: Variant, stream: int, *, recorded: bool) -> Timed | None:
        """Call right before a launch; None where it is not to be timed."""
        # A trial must learn something from few launches, so the device is kept busy for longer than any host takes.
        waits = 1 if variant.settled else TRIAL_WAITS
        _, times = self._variants.setdefault(id(variant), (variant, _Times()))
        return self._begin(times.recorded if recorded else times.plain, stream, waits)

    def begin_unmarked(self, kernel: str, stream: int) -> Timed | None:
        """As `begin`, for a kernel that cannot be marked and has no variants."""
        return self._begin(self._unmarked.setdefault(kernel, []), stream)

    def _begin(self, known: list[Timed], stream: int, waits: int = 1) -> Timed | None:
        if self._off or len(known) >= TIMED_LAUNCHES:
            return None
        try:
            lib = libcuda.driver()
            if not self._nothing:
                self._keep_busy(lib, stream)
                self._nothing.append(Timed(self, lib, stream))
                self._nothing[0].launched()
            if waits > 1 or lib.is_idle(stream):
                self._keep_busy(lib, stream, waits)
            known.append(Timed(self, lib, stream))
            return known[-1]
        except WarplensError:
            self.switch_off()
            return None

    def switch_off(self) -> None:
        self._off = True

    def slowdowns(self) -> dict[int, dict[str, float]]:
        """By id of the variant: the ratio of the quickest recorded launch to the quickest plain one, and how many of
        each there were. Call it when the device has finished all launches."""
        try:
            nothing = min((one.elapsed_ns for one in self._nothing if one.second), default=0.0)
            return {
                key: found
                for key, (_, times) in self._variants.items()
                if (found := _slowdown(times, nothing)) is not None
            }
        except WarplensError:
            return {}  # a kernel failed, which others tell

    def unmarked_ns(self, kernel: str) -> list[float]:
        """How long the timed launches of a kernel took that cannot be marked. Call it when they are over."""
        try:
            nothing = min((one.elapsed_ns for one in self._nothing if one.second), default=0.0)
            return [max(one.elapsed_ns - nothing, 0.0) for one in self._unmarked.get(kernel, ()) if one.second]
        except WarplensError:
            return []  # a kernel failed, which others tell

    def are_over(self, variant: Variant) -> bool:
        """Return whether the device has finished all launches of a variant that are timed."""
        times = self._variants[id(variant)][1] if id(variant) in self._variants else _Times()
        try:
            return all(one.is_over for one in (*self._nothing, *times.recorded, *times.plain))
        except WarplensError:
            return False

    def slowdown_of(self, variant: Variant) -> float | None:
        """The slowdown of one variant so far; None where there are too few times. Call it when all are over."""
        if self._off or id(variant) not in self._variants:
            return None
        try:
            nothing = min((one.elapsed_ns for one in self._nothing if one.second), default=0.0)
            found = _slowdown(self._variants[id(variant)][1], nothing)
        except WarplensError:
            return None
        return None if found is None else found[SLOWDOWN_MEASURED]

    def restart(self, variant: Variant) -> None:
        """Forget the recorded launches of a variant, which is woven anew."""
        _, times = self._variants.setdefault(id(variant), (variant, _Times()))
        for one in times.recorded:
            one.discard()
        times.recorded.clear()

    def _keep_busy(self, lib: Driver, stream: int, times: int = 1) -> None:
        context = lib.context()
        if context not in self._wait:
            self._wait[context] = lib.function(lib.load(_WAIT.encode() + b"\0"), "warplens_wait")
        wait = self._wait[context]
        for _ in range(times if wait is not None else 0):
            assert wait is not None
            lib.launch(wait, (1, 1, 1), (1, 1, 1), [], 0, stream)


def with_slowdown(launch: Launch, slowdown: dict[str, float] | None) -> Launch:
    """A launch that carries the measured slowdown of its variant."""
    return launch if slowdown is None else launch.noting(cost=slowdown)


def _slowdown(times: _Times, nothing: float) -> dict[str, float] | None:
    recorded, plain = ([one.elapsed_ns for one in some if one.second] for some in (times.recorded, times.plain))
    if min(len(recorded), len(plain)) < FEWEST:
        return None
    quickest = [min(some[1:]) - nothing for some in (recorded, plain)]
    # Launches that hardly take longer than two events with nothing between them cannot be told apart.
    if min(quickest) <= nothing:
        return None
    return {
        SLOWDOWN_MEASURED: quickest[0] / quickest[1],
        TIMED_RECORDED: float(len(recorded)),
        TIMED_PLAIN: float(len(plain)),
    }


_WAIT = f"""\
.version 7.0
.target sm_70
.address_size 64
.visible .entry warplens_wait() {{
	.reg .pred %p<2>; .reg .b64 %rd<4>;
	mov.u64 %rd1, %globaltimer;
$L_wait:
	mov.u64 %rd2, %globaltimer;
	sub.u64 %rd3, %rd2, %rd1;
	setp.lt.u64 %p1, %rd3, {BUSY_NS};
	@%p1 bra $L_wait;
	ret;
}}
"""
