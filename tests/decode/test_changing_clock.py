"""A clock that changes more often than the fit has knots: where anchors agree, the line goes through them."""

from __future__ import annotations

import numpy as np
import pytest

from warplens.decode.clock.anchor_fit import fit_anchors

STEP = 32


def anchored(changes: int, seconds: float, every: float, sms: int, late: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Errors in ns of all anchors that were read in time, and of those read `late` ns too late (one in a hundred)."""
    rng = np.random.default_rng(changes)
    end = seconds * 1e9
    moments = np.r_[0, np.sort(rng.uniform(0, end, changes)), end]
    rates = np.where(np.arange(changes + 1) % 2, 1.9, 1.2)
    cycles = np.r_[0, np.cumsum(np.diff(moments) * rates)]
    count = int(seconds / every) + 1
    time = np.minimum(np.arange(count) * every * 1e9 + rng.uniform(0, 300, (sms, count)), end)
    ahead = np.repeat(rng.integers(0, 1 << 30, sms // 8), 8)[:, None]  # eight SMs share a clock
    clock = (np.interp(time, moments, cycles) + ahead).astype(np.int64)
    delayed = rng.random((sms, count)) < (0.01 if late else 0.0)
    delayed[:, [0, -1]] = False
    ns = 10**15 + (np.floor((time + late * delayed) / STEP) * STEP).astype(np.int64)
    unit = np.repeat(np.arange(sms), count)
    lines = fit_anchors(unit, np.zeros_like(unit), clock.ravel(), ns.ravel(), 1980.0)
    error = lines(unit, clock.ravel()) - time.ravel()
    error = np.abs(error - np.median(error))
    return error[~delayed.ravel()], error[delayed.ravel()]


@pytest.mark.parametrize(
    ("changes", "seconds", "every"),
    [(2, 3.0, 0.001), (7, 3.0, 0.001), (20, 3.0, 0.001), (60, 3.0, 0.001), (7, 60.0, 0.05)],
)
def test_anchors_stay_within_the_timer_step(changes: int, seconds: float, every: float) -> None:
    error, _ = anchored(changes, seconds, every, sms=16)
    assert np.quantile(error, 0.99) <= STEP
    assert error.max() <= 4 * STEP


def test_anchors_that_were_read_late_do_not_bend_the_line() -> None:
    error, late = anchored(20, 3.0, 0.001, sms=16, late=5000.0)
    assert np.quantile(error, 0.99) <= STEP
    assert np.quantile(late, 0.9) <= 2 * STEP
