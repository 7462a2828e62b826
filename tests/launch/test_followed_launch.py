"""A running launch is followed: what its warps record arrives, in order and at the right time, while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from tests.support.hanging_kernel import HangingDriver, hanging_driver
from tests.support.persistent_kernel import ITEM_NS, PersistentKernel
from warplens.decode import decode
from warplens.launch import followed_launch
from warplens.launch.followed_launch import FollowedLaunch
from warplens.profiling.profile import Profile
from warplens.record.capture import SAMPLED, Capture
from warplens.trace.model import Trace

BEGIN = 1_700_000_000_000_000_000
TICK = 400_000_000


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[HangingDriver]:
    with hanging_driver(monkeypatch) as fake:
        yield fake


@contextmanager
def profiled(driver: HangingDriver, **options: Any) -> Iterator[Profile]:
    """A profile whose kernels end with the block, whatever goes wrong in it."""
    with Profile(watch=60, **options) as profile:
        try:
            yield profile
        finally:
            driver.released.set()


def spans_of(trace: Trace, region: str) -> np.ndarray:
    """The begins of a region's spans as ns of the globaltimer."""
    codes, names = trace.codes("region")
    mine = (codes == names.index(region)) & trace.of_kind("span")
    return np.sort(trace.numpy("start_ns")[mine]) + trace.meta.origin_ns


def follow(kernel: PersistentKernel, followed: FollowedLaunch, profile: Profile, now: int, **torn: bool) -> Trace:
    kernel.advance(now, **torn)
    copied = followed.update(lambda: now)
    assert copied is not None
    return decode(Capture([copied], profile.device))


@pytest.mark.parametrize("full", ["stop", "ring"])
def test_spans_of_a_persistent_kernel_grow_and_lie_where_they_happened(driver: HangingDriver, full: str) -> None:
    """For longer than the 32 bits of a record's clock last, at a clock rate that nobody told."""
    with profiled(driver, full=full, records_per_warp=8192) as profile:
        kernel = PersistentKernel(driver, full=full).start(BEGIN)
        followed = FollowedLaunch(kernel.launch)
        counts = []
        for tick in range(1, 26):
            now = BEGIN + tick * TICK
            trace = follow(kernel, followed, profile, now)
            counts.append(len(trace))
            begins = spans_of(trace, "compute")
            assert np.diff(counts).min(initial=1) > 0, "it grows with every update"
            assert 0 <= now - begins.max() < 2 * ITEM_NS, "the newest span is where it happened"
            expected = BEGIN + (np.arange(len(begins) // kernel.blocks // kernel.warps) + 0.3) * ITEM_NS
            found = begins.reshape(-1, kernel.blocks * kernel.warps).mean(axis=1)
            assert np.abs(found - expected).max() < 2 * ITEM_NS
        assert trace.meta.losses.orphan_ends == trace.meta.losses.mismatched_ends == 0


def test_a_region_that_is_open_lasts_until_now(driver: HangingDriver) -> None:
    with profiled(driver) as profile:
        kernel = PersistentKernel(driver).start(BEGIN)
        trace = follow(kernel, FollowedLaunch(kernel.launch), profile, BEGIN + TICK)
        loop = trace.codes("region")[0] == trace.codes("region")[1].index("persistent loop")
        assert trace.numpy("open")[loop].all()
        assert np.abs(trace.numpy("dur_ns")[loop] - TICK).max() < 0.05 * TICK


def test_a_ring_that_was_overwritten_between_two_updates_shows_its_newest_records_only(driver: HangingDriver) -> None:
    with profiled(driver, full="ring", records_per_warp=128) as profile:
        kernel = PersistentKernel(driver, full="ring").start(BEGIN)
        followed = FollowedLaunch(kernel.launch)
        assert kernel.capacity == 128
        for tick in range(1, 12):
            now = BEGIN + tick * TICK  # 40 items of 6 slots each: almost two rings
            trace = follow(kernel, followed, profile, now)
            begins = spans_of(trace, "compute")
            assert now - begins.max() < 2 * ITEM_NS
            assert now - begins.min() < 128 / 6 * ITEM_NS + 2 * ITEM_NS
            lengths = trace.numpy("dur_ns")[trace.of_kind("span") & ~trace.numpy("open")]
            assert lengths.max() < ITEM_NS, "no span reaches over what was lost"


def test_wrapping_around_without_loss_loses_nothing(driver: HangingDriver) -> None:
    with profiled(driver, full="ring", records_per_warp=512) as profile:
        kernel = PersistentKernel(driver, full="ring").start(BEGIN)
        followed = FollowedLaunch(kernel.launch)
        for tick in range(1, 12):
            trace = follow(kernel, followed, profile, BEGIN + tick * TICK)
        tracks = kernel.blocks * kernel.warps
        assert len(spans_of(trace, "compute")) == 11 * TICK // ITEM_NS * tracks, "more than the ring holds"
        values = np.sort(trace.numpy("value")[~np.isnan(trace.numpy("value"))].reshape(-1))
        assert (values == np.repeat(np.arange(len(values) // tracks), tracks)).all()


@pytest.mark.parametrize("full", ["stop", "ring"])
def test_a_payload_without_its_record_waits_for_it(driver: HangingDriver, full: str) -> None:
    with profiled(driver, full=full, records_per_warp=1024) as profile:
        kernel = PersistentKernel(driver, full=full).start(BEGIN)
        followed = FollowedLaunch(kernel.launch)
        kernel.advance(BEGIN + TICK)
        whole = follow(kernel, FollowedLaunch(kernel.launch), profile, BEGIN + TICK)
        torn = follow(kernel, followed, profile, BEGIN + TICK, torn=True)
        assert len(torn) == len(whole)
        assert torn.meta.losses.unknown_regions == 0
        again = follow(kernel, followed, profile, BEGIN + 2 * TICK)
        assert len(spans_of(again, "compute")) == 2 * TICK // ITEM_NS * kernel.blocks * kernel.warps


def test_a_full_track_ends_with_its_last_record(driver: HangingDriver) -> None:
    with profiled(driver, records_per_warp=64) as profile:
        kernel = PersistentKernel(driver).start(BEGIN)
        followed = FollowedLaunch(kernel.launch)
        trace = follow(kernel, followed, profile, BEGIN + 5 * TICK)
        assert followed.full_tracks == kernel.blocks * kernel.warps
        ends = trace.numpy("start_ns") + trace.numpy("dur_ns") + trace.meta.origin_ns
        assert ends.max() < BEGIN + kernel.capacity / 6 * ITEM_NS + TICK, "nobody knows what its warps do now"


def test_of_many_blocks_some_are_followed_and_the_trace_says_so(
    driver: HangingDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed_launch, "HISTORY_SLOTS", 16 * followed_launch.LEAST_SLOTS)
    with profiled(driver, records_per_warp=256) as profile:
        kernel = PersistentKernel(driver, blocks=12).start(BEGIN)
        followed = FollowedLaunch(kernel.launch)
        trace = follow(kernel, followed, profile, BEGIN + TICK)
        assert np.unique(trace.numpy("block")).tolist() == [0, 3, 6, 9]
        assert trace.meta.launches[0].extra[SAMPLED] == {"blocks": 4, "of": 12, "lost": 0}


def test_memory_does_not_grow_with_the_run(driver: HangingDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_launch, "HISTORY_SLOTS", 8 * 64)
    monkeypatch.setattr(followed_launch, "LEAST_SLOTS", 64)
    with profiled(driver, records_per_warp=8192) as profile:
        kernel = PersistentKernel(driver).start(BEGIN)
        followed = FollowedLaunch(kernel.launch)
        for tick in range(1, 12):
            now = BEGIN + tick * TICK
            trace = follow(kernel, followed, profile, now)
            assert len(trace) <= 8 * 64
            assert now - spans_of(trace, "compute").max() < 2 * ITEM_NS, "the latest are kept, in the right place"
        assert followed.records > 8 * 64


def test_a_launch_that_has_ended_is_not_read(driver: HangingDriver) -> None:
    with profiled(driver):
        kernel = PersistentKernel(driver).start(BEGIN)
        followed = FollowedLaunch(kernel.launch)
        kernel.finish(BEGIN + TICK)
        assert followed.update(lambda: BEGIN + TICK) is None, "its memory may be used again"
