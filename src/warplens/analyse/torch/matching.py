"""Match each recorded launch to its kernel in a torch trace.

If both the host and Kineto recorded when each launch was made, those times decide. Otherwise the launches are shifted
along the kernels until they fit. In both cases the kernels' own times must agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from warplens.errors import WarplensError
from warplens.trace.interval_fit import MAX_DRIFT, ClockLine, IntervalFit, fit_intervals
from warplens.wording import plural

Int64 = npt.NDArray[np.int64]

TOLERANCE_NS = 20_000.0
"""How far a launch may exceed its presumed kernel while the clock offset is only roughly known."""
_AGREES_NS = 2_000.0
"""The same once the offset is known."""
_HOST_SLACK_NS = 3_000
"""How far Kineto's CPU clock may be ahead of the system's."""
_HOST_PATIENCE_NS = 1_000_000_000
_SAME_EPOCH_NS = 10_000_000_000
_FITS_NS = 1_000.0
_LOOK_BACK = 8
_SAMPLE, _DRAWN, _REFERENCES, _SHIFTS, _SCORED, _GROWN = 100, 24, 5, 2_000, 16, 64


@dataclass(frozen=True)
class Execution:
    """A kernel's execution in one of the two traces: `key` identifies the kernel, `host` is its launch time."""

    key: tuple[str, tuple[int, ...]]
    begin: int
    end: int
    host: int | None = None


@dataclass(frozen=True)
class MatchedPairs:
    """The indices of launches and kernels that belong together; `by_host` says whether host times decided."""

    launch: Int64
    kernel: Int64
    by_host: bool


def match(launches: Sequence[Execution], kernels: Sequence[Execution]) -> MatchedPairs:
    """Pair each launch with its kernel; launches without one are left out, and no kernel is used twice."""
    matcher = _Matcher(launches, kernels)
    called = matcher.called()
    if called:
        return MatchedPairs(*matcher.by_host(called), True)
    # A sample of the launches determines the shift; all launches are then near it.
    some = _Matcher(launches[:: -(-len(launches) // _SAMPLE)], kernels)
    return MatchedPairs(*matcher.settle(some.line(*some.by_shifting()), 0.0), False)


@dataclass(frozen=True)
class _Guess:
    """A line that puts one launch in the middle of one kernel, within `slack`."""

    line: ClockLine
    slack: float


class _Matcher:
    def __init__(self, launches: Sequence[Execution], kernels: Sequence[Execution]) -> None:
        self.launches, self.kernels = launches, kernels
        self.begin, self.end = _times(launches)
        self.start, self.stop = _times(kernels)
        self.called_by: Mapping[int, int] = {}
        self.of_key: dict[tuple[str, tuple[int, ...]], Int64] = {}
        for key in {one.key for one in launches}:
            places = [at for at, one in enumerate(kernels) if one.key == key]
            self.of_key[key] = np.array(sorted(places, key=lambda at: kernels[at].begin), np.int64)

    def called(self) -> dict[int, int]:
        """For each launch, the kernel whose call Kineto recorded right after the host announced the launch.

        A front end announces a launch just before making it, so the call comes before the next announcement.
        """
        found: dict[int, int] = {}
        for key, places in self.of_key.items():
            calls = sorted((host, at) for at in places.tolist() if (host := self.kernels[at].host) is not None)
            mine = ((one.host, at) for at, one in enumerate(self.launches) if one.key == key)
            announced = sorted((host, at) for host, at in mine if host is not None)
            if not announced:
                continue
            times = np.array([host for host, _ in calls], np.int64) + _HOST_SLACK_NS
            first = np.searchsorted(times, [host for host, _ in announced])
            for (host, at), call, next_ in zip(announced, first, [*first[1:], len(calls)], strict=True):
                if call < next_ and times[call] - host < _HOST_PATIENCE_NS:
                    found[at] = calls[call][1]
        return found

    def by_host(self, called: Mapping[int, int]) -> tuple[Int64, Int64]:
        """The pairs on the line that most calls agree with: a call is wrong where Kineto lost a kernel."""
        self.called_by = called
        pairs = _columns(list(called.items()))
        low, high = self.bounds(*pairs)
        return self.settle(self.line(*pairs), float(np.percentile(high - low, 25)) / 2)

    def by_shifting(self) -> tuple[Int64, Int64]:
        """The pairs under the clock shift that puts most launches inside a kernel; an error where several shifts do."""
        tried = sorted(((self._score(guess), guess) for guess in self._shifts()), key=lambda one: one[0])
        grown = [self._grow(guess) for _, guess in tried[:_GROWN]]
        most = max((len(launch) for launch, _ in grown), default=0)
        if not most:
            raise WarplensError(
                "no launch matches a kernel of the torch trace: were both recorded in the same run, on the same GPU?"
            )
        good = {tuple(pairs[1].tolist()): pairs for pairs in grown if len(pairs[0]) == most}
        missing = {key: self.fit(*pairs).widened_ns for key, pairs in good.items()}
        best = min(missing, key=lambda key: missing[key])
        ways = sum(widened <= missing[best] + _FITS_NS for widened in missing.values())
        if ways > 1:
            more = "or more " if len(tried) > _GROWN else ""
            raise WarplensError(
                f"{plural(len(self.launches), 'recorded launch')} can be matched to the "
                f"{plural(len(self.kernels), 'kernel')} of that name in the torch trace in {ways} {more}ways, and the "
                "trace has no host launch times; profile with torch=True, or record every launch"
            )
        return good[best]

    def _shifts(self) -> Iterator[_Guess]:
        """Guesses from every candidate kernel, for the launches with the fewest candidates."""
        rare = sorted(range(len(self.launches)), key=lambda at: len(self.of_key[self.launches[at].key]))
        for at in rare[:_REFERENCES]:
            guesses = [self._guess(at, kernel) for kernel in self.of_key[self.launches[at].key].tolist()]
            guesses = [one for one in guesses if one.slack > -TOLERANCE_NS]
            near = [one for one in guesses if abs(one.line.offset_ns) < _SAME_EPOCH_NS]
            yield from (near or guesses)[:_SHIFTS]

    def _guess(self, launch: int, kernel: int) -> _Guess:
        low, high = self.start[kernel] - self.begin[launch], self.stop[kernel] - self.end[launch]
        return _Guess(ClockLine(int(self.begin[launch]), int(low + high) // 2, 0.0), float(high - low) / 2)

    def _nearest(self, line: ClockLine) -> list[int]:
        """The launches, ordered by distance from the line's reference."""
        return [int(at) for at in np.argsort(np.abs(self.begin - line.reference_ns), kind="stable")]

    def _score(self, guess: _Guess) -> tuple[int, float]:
        """A score, lower is better: minus the number of nearby launches inside a kernel, then their total excess."""
        nearest = self._nearest(guess.line)[:_SCORED]
        found = [best for at in nearest if (best := self._best(at, guess.line, TOLERANCE_NS + guess.slack))]
        return -len({kernel for _, kernel in found}), sum(out for out, _ in found)

    def _grow(self, guess: _Guess) -> tuple[Int64, Int64]:
        """Extend the guess from nearby launches to all, refining the drift on the way."""
        line, count = guess.line, 2
        nearest = self._nearest(line)
        while count < len(nearest):
            pairs = self.under(line, TOLERANCE_NS + guess.slack, nearest[:count])
            line = self.line(*pairs) if len(pairs[0]) > 1 else line
            count *= 2
        return self.settle(line, guess.slack)

    def _best(self, at: int, line: ClockLine, tolerance: float) -> tuple[float, int] | None:
        """The kernel that a launch exceeds least; the kernel of its call, if that is near enough."""
        places = self.of_key[self.launches[at].key]
        begin, end = (int(time) for time in line(np.array([self.begin[at], self.end[at]])))
        named = self.called_by.get(at)
        if named is not None:
            out_of_named = max(int(self.start[named]) - begin, end - int(self.stop[named]), 0)
            if out_of_named <= _AGREES_NS:
                return float(out_of_named), named
        last = int(np.searchsorted(self.start[places], begin + tolerance, side="right"))
        near = places[max(last - _LOOK_BACK, 0) : last]
        if not len(near):
            return None
        out = np.maximum(np.maximum(self.start[near] - begin, end - self.stop[near]), 0)
        apart = np.abs(self.start[near] + self.stop[near] - begin - end)
        best = int(np.lexsort((apart, out))[0])
        return (float(out[best]), int(near[best])) if out[best] <= tolerance else None

    def settle(self, line: ClockLine, slack: float) -> tuple[Int64, Int64]:
        """Take all pairs near a line, refit the line, and keep the pairs that then fit well."""
        everyone = range(len(self.launches))
        pairs = self.under(line, TOLERANCE_NS + max(slack, 0), everyone)
        return self.under(self.line(*pairs), _AGREES_NS + max(slack, 0), everyone) if len(pairs[0]) else pairs

    def under(self, line: ClockLine, tolerance: float, launches: Iterable[int]) -> tuple[Int64, Int64]:
        """The pairs under a line; of two launches with the same kernel, the one that exceeds it less is kept."""
        wanted = [(*best, at) for at in launches if (best := self._best(at, line, tolerance))]
        launch_of: dict[int, int] = {}
        for _, kernel, at in sorted(wanted):
            launch_of.setdefault(kernel, at)
        return _columns(sorted((at, kernel) for kernel, at in launch_of.items()))

    def bounds(self, launch: Int64, kernel: Int64) -> tuple[Int64, Int64]:
        """The bounds that each pair puts on the clock offset."""
        return self.start[kernel] - self.begin[launch], self.stop[kernel] - self.end[launch]

    def fit(self, launch: Int64, kernel: Int64) -> IntervalFit:
        return fit_intervals(self.begin[launch], *self.bounds(launch, kernel))

    def line(self, launch: Int64, kernel: Int64) -> ClockLine:
        """The line that most pairs agree with, among lines through two of the pairs with the tightest bounds.

        Wrong pairs agree with none of them, so they cannot distort the result.
        """
        low, high = self.bounds(launch, kernel)
        time, middle, width = self.begin[launch], (low + high) // 2, high - low
        tight = np.flatnonzero((width >= -_FITS_NS) & (width <= 2 * np.percentile(width, 25) + _FITS_NS))
        tight = tight if len(tight) else np.arange(len(width))
        tight = tight[np.argsort(time[tight], kind="stable")]
        some = tight[np.unique(np.linspace(0, len(tight) - 1, min(len(tight), _DRAWN)).astype(np.int64))]
        first, second = (some[side] for side in np.triu_indices(len(some)))
        far = (time[second] - time[first]).astype(np.float64)
        drift = np.divide(middle[second] - middle[first], far, out=np.zeros(len(far)), where=far > 0)
        first, drift = first[np.abs(drift) <= MAX_DRIFT], drift[np.abs(drift) <= MAX_DRIFT]
        height = (middle[first] - middle[0])[:, None] + drift[:, None] * (time - time[first][:, None])
        miss = np.maximum(np.maximum((low - middle[0]) - height, height - (high - middle[0])), 0)
        # Among lines that fit equally well, prefer the smallest drift.
        missed = np.minimum(miss, _AGREES_NS).sum(axis=1) // _FITS_NS
        best = int(np.lexsort((np.abs(drift), missed, -(miss <= _AGREES_NS).sum(axis=1)))[0])
        return ClockLine(int(time[first[best]]), int(middle[first[best]]), float(drift[best]))


def _times(executions: Sequence[Execution]) -> tuple[Int64, Int64]:
    begins, ends = [one.begin for one in executions], [one.end for one in executions]
    return np.array(begins, np.int64), np.array(ends, np.int64)


def _columns(pairs: Sequence[tuple[int, int]]) -> tuple[Int64, Int64]:
    both = np.array(pairs, np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]
