"""Keep the slowdown by marks inside a budget: measure a variant, and weave it again with less if it is above.

A trial records a few launches of a variant and then times as many plain ones. Nothing waits for the device: while the
times are not known yet, launches run plain. Launches that were recorded with a weaving which was given up are dropped,
so a trace holds one weaving per variant.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from warplens.launch.block_sampler import headers_of
from warplens.launch.buffers import Buffers
from warplens.launch.record_load import estimate_slowdown
from warplens.launch.thinning import Thinning, densities, lives_alone, next_thinning
from warplens.launch.timing import TIMED_LAUNCHES, Timings
from warplens.launch.variant import Variant
from warplens.record.aggregate_rows import AGGREGATE
from warplens.record.capture import AUTOMATIC
from warplens.wording import percent

TRIAL_LAUNCHES = 5
"""Launches of each kind that are timed before the first decision; the first of each kind loads code."""
FAR_ABOVE = 4
"""How many times the budget the estimate of a launch must be to act on it: its median error is 9 %."""
MARGIN = 0.9
"""The share of the budget that a trial may use: the times of other launches differ a little from those of a trial."""
MAX_WEAVINGS = 5
"""Weavings of a variant with marks that are tried, the first included. One without marks may follow."""


class OverheadBudget:
    """Decides for the variants of one session. `share` is the slowdown that is allowed: 0.05 is 5 %. With `lives`, a
    kernel with automatic marks may be left with the lifetimes of its warps alone."""

    def __init__(
        self,
        share: float,
        timings: Timings,
        note: Callable[[str, str], None],
        buffers: Buffers,
        *,
        lives: bool = True,
    ) -> None:
        self.share, self._timings, self._note, self._buffers = share, timings, note, buffers
        self._lives = lives
        self._lock = threading.Lock()

    def review(self, variant: Variant) -> None:
        """Call before a launch of a variant that is not settled."""
        with self._lock:
            if not variant.settled:
                self._review(variant)

    def _review(self, variant: Variant) -> None:
        if variant.trial is None:
            variant.trial = TRIAL_LAUNCHES
        if variant.trial_recorded < variant.trial or variant.timed < variant.trial:
            # A program may make few launches: where the first one is far too dense, the estimate decides.
            self._sample_if_above(variant, 1 + FAR_ABOVE * self.share)
            return
        if not self._timings.are_over(variant):
            return
        slowdown = self._timings.slowdown_of(variant)
        if slowdown is None and variant.trial < TIMED_LAUNCHES:
            variant.trial += 1  # some times held a part of the host's way and do not count
        elif slowdown is None:
            self._sample_if_above(variant, 1 + self.share)  # all that is known is the estimate
            variant.settled = True
            if variant.thinning:
                self._note(variant.kernel, self.describe(variant))
        else:
            self._decide(variant, slowdown)

    def _sample_if_above(self, variant: Variant, limit: float) -> None:
        """Record some blocks only, if that is possible and the estimated slowdown of the newest launch is above a
        limit."""
        if not variant.samples or variant.thinning or not variant.trial_recorded:
            return
        if variant.newest is None:
            self._buffers.land_finished()
        if variant.newest is None or AGGREGATE in variant.newest.extra:
            return
        estimate = estimate_slowdown(headers_of(variant.newest))
        if estimate is not None and estimate > limit:
            variant.estimate = estimate
            self._weave_again(variant, variant.samples[0])

    def _decide(self, variant: Variant, slowdown: float) -> None:
        limit = 1 + MARGIN * self.share
        if slowdown > limit and variant.newest is None:
            self._buffers.land_finished()  # the records of a launch say what to leave out
            if variant.newest is None:
                return
        variant.tried.append((variant.thinning, slowdown))
        following = self._following(variant) if slowdown > limit else None
        if following is not None:
            self._weave_again(variant, following)
            return
        best, _ = min(variant.tried, key=lambda one: one[1])
        if slowdown > limit and best != variant.thinning:
            self._weave_again(variant, best)
        variant.settled = True
        if variant.thinning or slowdown > 1 + self.share:
            self._note(variant.kernel, self.describe(variant))

    def _following(self, variant: Variant) -> Thinning | None:
        """The weaving to try next; None if no cheaper one is left, or one that was tried is within the budget."""
        assert variant.newest is not None
        if variant.thinning.lives:
            return None
        if len(variant.tried) < MAX_WEAVINGS:
            known = densities(variant.newest)
            last = len(variant.tried) == MAX_WEAVINGS - 1
            following = next_thinning(variant.tried, known, self.share, variant.samples, last=last)
            if following is not None:
                return following
        within = any(slowdown <= 1 + self.share for _, slowdown in variant.tried)
        # Authors chose their own marks, so those are never all left out; nor is there less than no marks at all.
        automatic = variant.newest.extra.get(AUTOMATIC) and variant.newest.regions
        if within or not self._lives or not automatic:
            return None
        return lives_alone(variant.tried, variant.samples)

    def _weave_again(self, variant: Variant, thinning: Thinning) -> None:
        variant.thinning = thinning
        variant.generation += 1
        variant.recorded = variant.trial_recorded = 0
        variant.most_written = variant.room = variant.newest = None
        self._buffers.give_back()  # launches of the old weaving that have memory and were not made
        self._timings.restart(variant)

    def conclude(self, variant: Variant) -> None:
        """Call when the session ends: say what is left out of a variant that is not settled yet."""
        with self._lock:
            if not variant.settled and variant.thinning:
                self._note(variant.kernel, self.describe(variant))

    def describe(self, variant: Variant) -> str:
        """Say what was left out, why, and what the slowdown is now."""
        first = f"{variant.tried[0][1]:.2f}x" if variant.tried and variant.estimate is None else ""
        first = first or f"an estimated {variant.estimate or 0:.2f}x"
        now = next((slowdown for thinning, slowdown in variant.tried[::-1] if thinning == variant.thinning), None)
        above = f"marks slowed it down {first}, and {percent(self.share)} are allowed (overhead={self.share:g})"
        if not variant.thinning:
            return f"{above}: nothing that was left out made it faster"
        if now is None:
            return f"{above}: {variant.thinning}; too few launches could be measured with and without marks"
        still = "" if now <= 1 + self.share else ", still above the budget"
        if still and any(one.lives for one, _ in variant.tried):
            still += ", which no weaving of this kernel meets"
        return f"{above}: {variant.thinning}; {now:.2f}x now{still}"

    def document(self, variant: Variant) -> dict[str, Any]:
        """What a launch of the variant keeps about its budget."""
        return {
            "allowed": self.share,
            "step": variant.thinning.step,
            "estimate": variant.estimate,
            "omitted": sorted(variant.thinning.omitted),
            "lives": variant.thinning.lives,
            "tried": [
                {"step": one.step, "omitted": sorted(one.omitted), "lives": one.lives, "slowdown": slowdown}
                for one, slowdown in variant.tried
            ],
        }
