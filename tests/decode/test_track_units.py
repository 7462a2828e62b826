"""The passes over all tracks in C give what those with numpy give."""

from __future__ import annotations

import numpy as np
import pytest

from warplens import native
from warplens.decode.clock.track_units import TrackUnits

COUNTS = [3, 0, 700, 1, 0, 41]
SHARES = [1.0, 0.5, 0.1, 0.0, 1.0, 0.7]


@pytest.fixture(params=["1", "0"], ids=["C", "numpy"])
def units(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> TrackUnits:
    monkeypatch.setenv("WARPLENS_NATIVE", request.param)
    if request.param == "1" and native.load() is None:
        pytest.skip("needs a C compiler")
    return made()


def made(counts: list[int] = COUNTS) -> TrackUnits:
    bounds = np.append(0, np.cumsum(counts)).astype(np.int64)
    return TrackUnits(bounds, np.random.default_rng(5).integers(0, 9, bounds[-1]))


def test_which_launch_ran_on_which_sm(units: TrackUnits) -> None:
    launch = np.repeat(np.arange(len(COUNTS)), COUNTS)
    assert {(at, sm) for at, sm in np.argwhere(units.there).tolist()} == set(
        zip(launch.tolist(), units.sm.tolist(), strict=True)
    )
    assert units.there.shape == (len(COUNTS), int(units.sm.max()) + 1)


def test_tracks_look_up_their_launch_and_sm(units: TrackUnits) -> None:
    table = np.arange(units.launches * units.sms, dtype=np.int32).reshape(units.launches, units.sms)
    launch = np.repeat(np.arange(len(COUNTS)), COUNTS)
    np.testing.assert_array_equal(units.look_up(table), table[launch, units.sm])


def test_shares_of_tracks_are_spread_over_their_launch(units: TrackUnits) -> None:
    found = units.some(np.array(SHARES))
    assert found.tolist() == sorted(set(found.tolist()))
    kept = np.diff(np.searchsorted(found, units.bounds))
    assert kept[0] == COUNTS[0], "all of them where the share is 1"
    assert kept[3] == 0
    assert abs(kept[2] - 70) <= 3, "a tenth of 700"
    assert np.diff(found[(found >= 3) & (found < 703)]).max() < 25, "no long stretch without one"


def test_both_choose_the_same_tracks(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = made()
    monkeypatch.setenv("WARPLENS_NATIVE", "0")
    np.testing.assert_array_equal(fast.some(np.array(SHARES)), made().some(np.array(SHARES)))


def test_tracks_of_launches(units: TrackUnits) -> None:
    wanted = np.array([True, True, False, True, False, False])
    assert units.of(wanted).tolist() == [0, 1, 2, 703]


@pytest.mark.parametrize("counts", [[], [0, 0]])
def test_nothing_where_there_is_no_track(counts: list[int]) -> None:
    units = made(counts)
    assert len(units) == units.sms == len(units.some(np.ones(len(counts)))) == 0
    assert units.there.shape == (len(counts), 0)
