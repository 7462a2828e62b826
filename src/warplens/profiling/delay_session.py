"""A session whose woven kernels delay one region instead of recording, each launch by another number of cycles."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from warplens.errors import WarplensError
from warplens.frontends import registry
from warplens.launch.captured_graphs import CapturedCode
from warplens.launch.launch_timer import LaunchTime, LaunchTimer, TimedLaunch
from warplens.launch.lent_launch import LentLaunch
from warplens.launch.variant import Variant
from warplens.launch.woven import WovenKernel
from warplens.options import DelayOptions
from warplens.ptx.syntax import PtxError
from warplens.record.capture import Dim3
from warplens.session import Session
from warplens.session.session import is_capturing

T = TypeVar("T")
PLAIN = -1
"""In the place of a delay: launch the plain kernel, to see what the probe costs."""
DITHER = 64
"""Cycles by which the delays of one level differ: about two turns of their loop."""
WARM_UP = 2
"""Launches before the first round: they load code and fill caches."""
PATIENCE = 20
"""How many times the launches of an experiment one variant makes while another one waits for its own."""
IN_GRAPH = "its launches in CUDA graphs are not delayed: a graph fixes the parameters of its kernels"
MISSING = "the kernel that would be delayed does not have this region"


def variant_key(kernel: str, described: object) -> str:
    """What a variant goes by in every session, and in the trace: its kernel and what tells it from others."""
    return f"{kernel} {json.dumps(described, sort_keys=True, default=str)}"


@dataclass(frozen=True)
class DelayedLaunch:
    """One launch: its round, its level (PLAIN, 0 or a delay), its delay, and its timing."""

    round: int
    level: int
    delay: int
    timed: TimedLaunch


@dataclass
class DelayArm:
    """The launches of one variant: every round has the plain kernel and each delay once, in a random order."""

    delays: Sequence[int]
    """0 and the levels of delay."""
    rounds: int
    seed: int = 0
    started: int = 0
    warmed: int = 0
    launches: list[DelayedLaunch] = field(default_factory=list)
    reason: str = ""
    """Why it cannot be delayed."""
    _left: list[int] = field(default_factory=list)

    @property
    def full(self) -> bool:
        return bool(self.reason) or (self.started >= self.rounds and not self._left)

    @property
    def needed(self) -> int:
        """Launches of a whole experiment."""
        return WARM_UP + self.rounds * (len(self.delays) + 1)

    def take(self) -> tuple[int | None, int, int]:
        """The round (None while warming up), level and delay of the next launch."""
        if self.warmed < WARM_UP:
            self.warmed += 1
            return None, self.delays[-self.warmed], self.delays[-self.warmed]
        if not self._left:
            self._left = [PLAIN, *self.delays]
            random.Random(f"{self.seed} {self.started}").shuffle(self._left)
            self.started += 1
        level = self._left.pop()
        return self.started - 1, level, level + (self._dither(level) if level > 0 else 0)

    def _dither(self, level: int) -> int:
        """Spread the delays of a level evenly over DITHER cycles: a delay ends with a whole turn of its loop, and one
        length alone could always be a turn too long."""
        offset = random.Random(f"{self.seed} {level}").random()
        return int(DITHER * ((offset + (self.started - 1) / self.rounds) % 1))


class DelaySession(Session):
    """Delays the region `options.delay` in the launches of the given variants (`arms`, by `variant_key`).

    Every launch of the program is made exactly once. `on_launch` is called after each that took part.
    """

    records = False

    def __init__(
        self,
        options: DelayOptions,
        arms: dict[str, DelayArm],
        on_launch: Callable[[], None] = lambda: None,
        *,
        whole_program: bool = False,
    ) -> None:
        super().__init__(options, whole_program=whole_program)
        self.arms, self._on_launch = arms, on_launch
        self._timer: LaunchTimer | None = None
        self._local = threading.local()
        self._lock = threading.RLock()
        self._passed = 0
        """Launches of variants that had all they needed."""
        self._known: dict[int, tuple[Variant, DelayArm | None]] = {}

    def _start_front_ends(self) -> None:
        super()._start_front_ends()
        if self.enabled and (self.options.changes_any_kernel or self.whole_program):
            self._stops.append(registry.watch(lambda library, error: self.note(library, str(error))))

    @property
    def full(self) -> bool:
        """Whether every variant has all its launches, or others have so many more that it may never get them."""
        if all(arm.full for arm in self.arms.values()):
            return True
        return self.whole_program and self._passed > PATIENCE * max(arm.needed for arm in self.arms.values())

    def launch(
        self, variant: Variant, stream: int, plain: Callable[[], T], woven: Callable[[bool], Callable[[], T] | None]
    ) -> T:
        variant.launches += 1
        arm = self._arm(variant)
        if arm is None or not self.variants.is_wanted():
            return plain()
        if not arm.full and is_capturing(stream):
            arm.reason = IN_GRAPH
        with self._lock:
            self._passed += arm.full
            result = plain() if arm.full else self._launch_arm(arm, variant, stream, plain, woven)
            self._on_launch()
        return result

    def _arm(self, variant: Variant) -> DelayArm | None:
        if id(variant) not in self._known:
            key = variant_key(variant.kernel, dict(variant.describe()))
            self._known[id(variant)] = variant, self.arms.get(key)
        return self._known[id(variant)][1]

    def _launch_arm(
        self,
        arm: DelayArm,
        variant: Variant,
        stream: int,
        plain: Callable[[], T],
        woven: Callable[[bool], Callable[[], T] | None],
    ) -> T:
        number, level, delay = arm.take()
        go: Callable[[], T] | None = plain
        if level != PLAIN:
            self._local.delay = delay
            go = self._delayed(arm, variant, woven)
        if go is None:
            return plain()
        timed = self._begin(stream) if number is not None else None
        result = go()
        if timed is not None and number is not None:
            try:
                timed.launched()
                arm.launches.append(DelayedLaunch(number, level, delay, timed))
            except WarplensError as error:  # the launch failed, which is for the program to find
                arm.reason = arm.reason or str(error)
        return result

    def _delayed(
        self, arm: DelayArm, variant: Variant, woven: Callable[[bool], Callable[[], T] | None]
    ) -> Callable[[], T] | None:
        """The delayed launch; None, with the arm's reason, where there is none."""
        try:
            go = woven(False)
        except Exception as error:  # whatever goes wrong here, the program can launch its own kernel
            arm.reason = _why(error)
            return None
        if go is None:
            arm.reason = "; ".join(self.notes.get(variant.kernel, ())) or MISSING
        return go

    def _begin(self, stream: int) -> TimedLaunch | None:
        if self._timer is None:
            self._timer = LaunchTimer()
        return self._timer.begin(stream)

    def lend(
        self, kernel: WovenKernel, variant: Variant, grid: Dim3, stream: int, code: CapturedCode | None
    ) -> LentDelay | None:
        """The delay itself, which the kernel gets in the place of a buffer's address."""
        return None if code is not None else LentDelay(self._local.delay)

    def wants(self, kernel: str) -> bool:
        """No launch writes records."""
        return False

    def times(self) -> dict[int, LaunchTime]:
        """The time of every launch, by the identity of its timing."""
        return self._timer.read() if self._timer is not None else {}


def _why(error: Exception) -> str:
    """What a user is told of an error: of a region that cannot be delayed, the reason without its line of PTX."""
    if isinstance(error, PtxError):
        return error.problem + (f"; {error.remedy}" if error.remedy else "")
    return str(error) or type(error).__name__


@dataclass(frozen=True)
class LentDelay(LentLaunch):
    """A launch that is delayed: `pointer`, which the kernel takes for its buffer, is the delay in cycles. When it was
    made, nothing is left to do: no memory was lent, and the kernel wrote no records."""

    pointer: int
