"""Variants: launches of one kernel with the same specialisation and grid. Each has a quota of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from warplens.launch.thinning import ALL_MARKS, Thinning
from warplens.options import COLD, Options
from warplens.record.capture import Launch

if TYPE_CHECKING:
    from warplens.launch.ready import ReadyLaunches

GRIDS_APART = 64
"""Grids of one compiled kernel that are variants of their own; later ones share one variant."""
_NO_LIMIT = 1 << 62


class Choice(Enum):
    """What to do with a launch."""

    RECORD = "record"
    TIME = "time"
    """Launch the plain kernel, and measure how long it takes."""
    PLAIN = "plain"


@dataclass
class Variant:
    """What is known of a variant while a session runs."""

    kernel: str
    describe: Callable[[], Mapping[str, Any]]
    """What tells it from other variants of the kernel, in names and values."""
    launches: int = 0
    recorded: int = 0
    timed: int = 0
    """Plain launches that were chosen to be timed."""
    closed: bool = False
    """Nothing more is to be recorded or timed: launch the plain kernel and ask nothing."""
    most_written: int | None = None
    """Slots that the busiest track of a launch wrote, once one has come home."""
    room: tuple[object, int, int] | None = None
    """What the newest launch got: what that was worked out from, its tracks, and log2 of their bytes."""
    samples: tuple[Thinning, ...] = ()
    """What is left out if the overhead budget samples the blocks, the most blocks first; empty if it cannot."""
    thinning: Thinning = ALL_MARKS
    """What the overhead budget left out."""
    generation: int = 0
    """How often it was woven anew."""
    settled: bool = True
    """Whether its weaving is decided."""
    trial: int | None = None
    """Launches of each kind to time before the next decision; None before the first review."""
    trial_recorded: int = 0
    """Recorded launches of this weaving."""
    tried: list[tuple[Thinning, float]] = field(default_factory=list)
    """The weavings that were measured, each with its slowdown."""
    estimate: float | None = None
    """The slowdown that was estimated from the first launch, if that decided about the weaving."""
    newest: Launch | None = None
    """The last launch of this weaving that came home, while the budget is not settled."""
    ready: ReadyLaunches | None = None
    """Launches whose memory is at hand."""
    identity: tuple[str, Hashable, Hashable] = ("", None, None)
    """What `Variants.of` found it by."""


@dataclass
class Variants:
    """The variants of one session, and the choice for each launch."""

    options: Options
    timed: int
    """Plain launches to time of each variant, once some were recorded."""
    wanted: Callable[[], bool] | None = None
    """Whether launches are recorded at all now: inside the steps and ranges that were asked for; None for always."""
    _known: dict[tuple[str, Hashable, Hashable], Variant] = field(default_factory=dict)
    _grids: dict[tuple[str, Hashable], int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        limit = self.options.launches
        # The cold launch is recorded in case no other follows, and left out if one does.
        self._limit = _NO_LIMIT if limit is None else limit + (self.options.skip == COLD)

    def of(self, kernel: str, code: Hashable, grid: Hashable, describe: Callable[[], Mapping[str, Any]]) -> Variant:
        """The variant of a launch: `code` stands for the compiled kernel and its launch options."""
        with self._lock:
            found = self._known.get((kernel, code, grid))
            if found is None:
                apart = self._grids.get((kernel, code), 0)
                key = (kernel, code, grid if apart < GRIDS_APART else None)
                self._grids[kernel, code] = apart + 1
                found = self._known.setdefault(key, Variant(kernel, describe, identity=key))
                self._known[kernel, code, grid] = found
                found.closed = found.closed or not self.options.wants_kernel(kernel)
            return found

    def same(self, other: Variant) -> Variant:
        """The variant that a variant of any session is in this one."""
        return self._known.get(other.identity) or self.of(*other.identity, other.describe)

    def choose(self, variant: Variant) -> Choice:
        """Count a launch, and say what to do with it. Call it once per launch."""
        if variant.closed:
            return Choice.PLAIN
        with self._lock:
            number, variant.launches = variant.launches, variant.launches + 1
            if not self.is_wanted():
                return Choice.PLAIN
            if not variant.settled and variant.trial is not None:
                return self._choose_in_trial(variant, number, variant.trial)
            if self._is_full(variant):
                if variant.timed < self.timed:
                    variant.timed += 1
                    return Choice.TIME
                variant.closed = True
                return Choice.PLAIN
            return Choice.RECORD if self._take(variant, number) else Choice.PLAIN

    def is_wanted(self) -> bool:
        """Return whether a launch that this thread makes now may be recorded."""
        return self.wanted is None or self.wanted()

    def _choose_in_trial(self, variant: Variant, number: int, trial: int) -> Choice:
        """Record some launches and then time as many plain ones; until the decision, the others run plain."""
        if variant.trial_recorded < trial:
            taken = self._take(variant, number)
            variant.trial_recorded += taken
            return Choice.RECORD if taken else Choice.PLAIN
        if variant.timed < trial:
            variant.timed += 1
            return Choice.TIME
        return Choice.PLAIN

    def records_next(self, variant: Variant) -> bool:
        """Count a launch as recorded if it is wanted, in a session that takes every launch of the variant until its
        quota is used up. Where it is not, nothing is counted: `choose` says what to do with it."""
        if self.wanted is not None and not self.wanted():
            return False
        with self._lock:
            if variant.closed or not variant.settled or variant.recorded >= self._limit:
                return False
            variant.launches += 1
            variant.recorded += 1
            return True

    def count_made(self, variant: Variant) -> None:
        """Count a launch that was recorded without asking; at most `left` launches may be."""
        with self._lock:
            variant.launches += 1
            variant.recorded += 1

    def left(self, variant: Variant) -> int:
        """How many launches may be recorded yet; a large number where there is no quota."""
        return max(0, self._limit - variant.recorded)

    def wants_replay(self, variant: Variant) -> bool:
        """Count a launch by a graph's replay, and say whether to record it. Single kernels of a graph are not timed."""
        if variant.closed:
            variant.launches += 1
            return False
        with self._lock:
            number, variant.launches = variant.launches, variant.launches + 1
            return self.is_wanted() and not self._is_full(variant) and self._take(variant, number)

    def is_open(self, variant: Variant) -> bool:
        """Return whether a later launch may be recorded."""
        return not variant.closed and not self._is_full(variant)

    def _take(self, variant: Variant, number: int) -> bool:
        """Return whether it is the turn of this launch, and count it as recorded then."""
        number -= 0 if self.options.skip == COLD else int(self.options.skip)
        taken = number >= 0 and number % self.options.every == 0
        variant.recorded += taken
        return taken

    def counts(self) -> dict[str, int]:
        """Launches of each kernel."""
        counts: dict[str, int] = {}
        for variant in {id(one): one for one in list(self._known.values())}.values():
            counts[variant.kernel] = counts.get(variant.kernel, 0) + variant.launches
        return counts

    def numbers(self) -> dict[int, int]:
        """By id of a recorded variant: its number among the recorded variants of its kernel with its description."""
        numbers: dict[int, int] = {}
        alike: dict[str, int] = {}
        for variant in list(self._known.values()):
            if variant.recorded and id(variant) not in numbers:
                text = f"{variant.kernel} {sorted(variant.describe().items())!r}"
                numbers[id(variant)] = alike[text] = alike.get(text, 0) + 1
        return numbers

    def _is_full(self, variant: Variant) -> bool:
        return variant.recorded >= self._limit
