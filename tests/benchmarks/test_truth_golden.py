"""The findings on the truth set as recorded on an H200 (tests/golden/make_truth.py): each cause is named first."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.truth import leave_one_out, score
from benchmarks.truth.pair import BROKEN
from benchmarks.truth.pairs import PAIRS
from warplens.analyse import finding

GOLDEN = Path(__file__).parents[1] / "golden" / "truth"
MOST_BYTES = 15_000_000


@pytest.fixture(scope="module")
def rows() -> list[score.Row]:
    return score.score(GOLDEN)[0]


def test_every_version_of_every_pair_was_recorded(rows: list[score.Row]) -> None:
    assert {(row.pair.name, row.version) for row in rows} == {(pair.name, v) for pair in PAIRS for v in pair.versions}
    assert all(row.measured is not None and row.measured > 0.1 for row in rows if row.version == BROKEN)
    assert sum(path.stat().st_size for path in GOLDEN.iterdir()) <= MOST_BYTES


def test_the_first_finding_is_right(rows: list[score.Row]) -> None:
    wrong = {(row.pair.name, row.version): f"{row.kind}: {row.what}" for row in rows if not row.right}
    assert not wrong


def test_the_bars_hold(rows: list[score.Row]) -> None:
    reached = score.shares(rows)
    for name in ("broken", "gain"):
        right, count = reached[name]
        assert right >= score.BARS[name] * count, f"{name}: {right} of {count}"


def test_the_intervals_hold_gains_that_their_constants_were_not_chosen_with() -> None:
    """Tuned on half of the pairs, the intervals hold most gains of the other half, and are not wide."""
    known = leave_one_out.stated(GOLDEN)
    assert sum(one.estimate is not None for one in known) > len(known) / 2
    for one in known:
        now = one.interval(finding._FALLS_SHORT, finding._EXCEEDS)
        assert (now.low, now.high) == pytest.approx((one.row.low, one.row.high))
        if one.estimate is not None:
            assert one.interval(0.1, 4.0).low <= now.low
    for tuned_on, left_out in ((known[::2], known[1::2]), (known[1::2], known[::2])):
        less, more = leave_one_out.tuned(tuned_on)
        assert leave_one_out.held(tuned_on, less, more).inside >= leave_one_out.held(tuned_on, 0.5, 1.4).inside
        found = leave_one_out.held(left_out, less, more)
        assert found.inside >= 0.8 * found.of
        assert found.median < 0.45
