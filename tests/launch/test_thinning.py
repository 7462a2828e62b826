"""What the overhead budget leaves out, from the records of one launch and the slowdowns so far."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from warplens.launch.thinning import (
    SAMPLE_BLOCKS,
    RegionDensity,
    Thinning,
    densities,
    lives_alone,
    next_thinning,
    regions_to_omit,
    samples_of,
)
from warplens.record.capture import Launch
from warplens.record.layout import Kind
from warplens.record.track_writer import TrackWriter
from warplens.weave.weaving import Selection, Weaving


def launch(wide: bool) -> Launch:
    """Two warps: an outer region of 1,000 cycles around ten inner ones of 20, and a value whose payload looks like a
    record of the outer region."""
    tracks = []
    for warp in range(2):
        writer = TrackWriter(64, warp=warp, wide=wide)
        writer.start(2**32 - 300, 0)
        writer.record(Kind.BEGIN, 1, 2**32 - 200)
        for number in range(10):
            writer.record(Kind.BEGIN, 2, 2**32 - 150 + 50 * number)
            writer.record(Kind.END, 2, 2**32 - 130 + 50 * number)
        writer.value(3, 2**32 + 700, Kind.BEGIN | 1 << 3)
        writer.record(Kind.END, 1, 2**32 + 800)
        writer.exit(2**32 + 900, 1000)
        tracks.append(writer.to_bytes())
    return Launch("k", (1, 1, 1), (64, 1, 1), {1: "outer", 2: "inner", 3: "size"}, 64, np.concatenate(tracks))


@pytest.mark.parametrize("wide", [False, True])
def test_records_and_cycles_are_counted_per_region(wide: bool) -> None:
    known = densities(launch(wide))
    assert known == {
        "outer": RegionDensity(4, 2000),
        "inner": RegionDensity(40, 400),
        "size": RegionDensity(2, 0),
    }


def test_the_densest_regions_go_first_and_one_stays() -> None:
    known = {"a": RegionDensity(100, 100), "b": RegionDensity(100, 1000), "c": RegionDensity(10, 10_000)}
    assert regions_to_omit(known, 1.06, 0.05) == {"a"}
    assert regions_to_omit(known, 1.2, 0.05) == {"a", "b"}
    assert regions_to_omit(known, 9.0, 0.05) == {"a", "b"}
    assert regions_to_omit({"c": known["c"]}, 9.0, 0.05) == frozenset()


def test_regions_in_loops_go_before_short_ones_that_are_executed_once() -> None:
    """A load that waits for its value is long, and costs what the loop could overlap without its marks."""
    known = {"load": RegionDensity(64, 64_000), "reduce": RegionDensity(2, 100), "store": RegionDensity(2, 10)}
    assert regions_to_omit(known, 1.6, 0.05) == {"load"}
    assert regions_to_omit(known | {"size": RegionDensity(1, 0)}, 1.6, 0.05) == {"load", "size"}


def test_the_last_weaving_has_no_marks_in_loops() -> None:
    known = {"load": RegionDensity(64, 6400), "mma": RegionDensity(66, 9000), "store": RegionDensity(2, 10)}
    now = [(Thinning(17), 1.06)]
    samples = (Thinning(17),)
    assert next_thinning(now, known, 0.05, samples) == Thinning(17, frozenset({"load"}))
    assert next_thinning(now, known, 0.05, samples, last=True) == Thinning(17, frozenset({"load", "mma"}))


@pytest.mark.parametrize(
    ("grid", "samples"),
    [
        ((SAMPLE_BLOCKS - 1, 1, 1), ()),
        ((SAMPLE_BLOCKS, 1, 1), (Thinning(17, flat=True),)),
        ((30 * 31 - 1, 1, 1), (Thinning(17, flat=True),)),
        ((30 * 31, 1, 1), (Thinning(17, flat=True), Thinning(31, flat=True))),
        ((SAMPLE_BLOCKS // 2, 2, 1), (Thinning(17),)),
        ((SAMPLE_BLOCKS, 2, 2), (Thinning(31), Thinning(61))),
        ((1, 1, 16 * SAMPLE_BLOCKS - 1), (Thinning(31), Thinning(61))),
        ((1, 1, 16 * SAMPLE_BLOCKS), (Thinning(61), Thinning(127))),
    ],
)
def test_only_launches_of_many_blocks_are_sampled(grid: tuple[int, int, int], samples: tuple[Thinning, ...]) -> None:
    assert samples_of(Selection(), grid) == samples
    assert not samples_of(Selection(warps=(0,)), grid), "the user chose already"


def test_blocks_are_left_out_before_regions_and_come_back_if_that_did_not_help() -> None:
    known = {"a": RegionDensity(100, 100), "b": RegionDensity(10, 1000)}
    whole, sampled = Thinning(), Thinning(17)
    samples = (sampled,)
    assert next_thinning([(whole, 1.3)], known, 0.05, samples) == sampled
    assert next_thinning([(whole, 1.3)], known, 0.05, ()) == Thinning(omitted=frozenset("a"))
    assert next_thinning([(whole, 1.3), (sampled, 1.1)], known, 0.05, samples) == Thinning(17, frozenset("a"))
    assert next_thinning([(whole, 1.1), (sampled, 1.3)], known, 0.05, samples) == Thinning(1, frozenset("a"))
    assert next_thinning([(whole, 1.3)], {"b": known["b"]}, 0.05, ()) is None


def test_a_sample_of_half_the_blocks_comes_before_fewer_regions() -> None:
    known = {"a": RegionDensity(100, 100), "b": RegionDensity(10, 1000)}
    dense, sparse = samples = Thinning(31), Thinning(61)
    tried = [(Thinning(), 1.3), (dense, 1.06)]
    assert next_thinning(tried, known, 0.05, samples) == sparse
    assert next_thinning(tried[1:], known, 0.05, samples) == sparse, "the estimate decided about the first weaving"
    assert next_thinning([*tried, (sparse, 1.05)], known, 0.05, samples) == Thinning(61, frozenset("a"))
    assert next_thinning([*tried, (sparse, 1.07)], known, 0.05, samples) == Thinning(31, frozenset("a"))
    assert next_thinning([(Thinning(), 1.1), (dense, 1.3)], known, 0.05, samples) == Thinning(omitted=frozenset("a"))


def test_lifetimes_alone_are_recorded_in_the_fewest_blocks_that_help() -> None:
    dense, sparse = samples = Thinning(31, flat=True), Thinning(61, flat=True)
    assert lives_alone([(Thinning(), 1.3), (dense, 1.1)], samples) == replace(sparse, lives=True)
    assert lives_alone([(Thinning(), 1.1), (dense, 1.3)], samples) == Thinning(lives=True)
    gone = frozenset("a")
    assert lives_alone([(Thinning(), 1.3), (Thinning(1, gone), 1.2)], ()) == Thinning(1, gone, lives=True)


def test_a_thinning_is_woven() -> None:
    how = Thinning(17, frozenset({"b", "a"})).of(Weaving())
    assert how.select.blocks is not None
    assert how.select.blocks[2] == 17
    assert how.plain_copy
    assert how.omit == ("a", "b")
    assert not how.select.flat
    assert Thinning(17, flat=True).of(Weaving()).select.flat
    assert Thinning().of(Weaving()) == Weaving()
    assert Thinning(lives=True).of(Weaving()) == Weaving(lives=True)
    assert str(Thinning(17, lives=True)) == "one block in 17 is recorded, only the lifetimes of its warps are recorded"
