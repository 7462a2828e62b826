"""Decoding launches part by part gives the trace of decoding all at once."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.small_launches import small_launches
from tests.support.track_programs import MHZ, programs, write
from warplens.decode import decode, part_store
from warplens.decode.decoded_part import decode_part, find_decoder
from warplens.decode.part_store import PartStore
from warplens.decode.track_windows import read_windows
from warplens.record.capture import AUTOMATIC, Capture, Device, Launch
from warplens.trace.model import Trace

DEVICE = Device("simulated", sm_count=4, clock_mhz=MHZ)
NAMES = (
    {1: "load", 2: "mma", 7: "wait", 4096: "store", 1 << 23: "epilogue"},
    {2: "load", 1: "store", 7: "other"},
    {},
)


@st.composite
def launches(draw: st.DrawFn) -> Launch:
    """A launch of a few warps. Some have records of unknown regions, damaged bytes or no records at all."""
    program = draw(programs())
    tracks = [
        write(
            replace(program, start=program.start + 7 * warp), warp=warp, sm=warp % 2, exits=draw(st.integers(0, 9)) > 0
        )
        for warp in range(draw(st.integers(1, 3)))
    ]
    raw = np.concatenate(tracks)
    for place in draw(st.lists(st.integers(0, len(raw) - 1), max_size=2)) if draw(st.booleans()) else ():
        raw[place] ^= 0x5A
    extra = {AUTOMATIC: True} if draw(st.booleans()) else {}
    regions, kernel = draw(st.sampled_from(NAMES)), draw(st.sampled_from(("a", "b")))
    shape = (4, 1, 1), (96, 1, 1)
    return Launch(kernel, *shape, regions, program.capacity, raw, full=program.full, extra=extra)


def stored(some: list[Launch], cuts: list[int], device: Device = DEVICE) -> PartStore:
    store, edges = PartStore(), sorted({0, *(cut % (len(some) + 1) for cut in cuts)})
    for begin, end in pairwise(edges):
        store.add(decode_part(some[begin:end], device, find_decoder(threads=1)))
    return store


def check_same(one: Trace, other: Trace) -> None:
    assert one.spans.equals(other.spans)
    assert one.regions == other.regions
    assert one.kernels == other.kernels
    assert one.meta == other.meta


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(launches(), min_size=1, max_size=8), st.lists(st.integers(0, 8), max_size=4), st.data())
def test_parts_of_any_size_give_the_trace_of_all_at_once(
    some: list[Launch], cuts: list[int], data: st.DataObject
) -> None:
    """Also where launches were left out, or replaced by others, after they were decoded."""
    store = stored(some, cuts)
    kept = [launch for launch in some if data.draw(st.integers(0, 4))]
    kept = [launch.noting(raw=launch.raw.copy()) if data.draw(st.integers(0, 9)) == 0 else launch for launch in kept]
    capture = Capture(kept, device=DEVICE)
    check_same(decode(capture, decoded=store), decode(capture))


def test_regions_of_launches_that_were_left_out_have_no_name() -> None:
    one, other = small_launches(2, blocks=1).launches
    other = replace(other, regions={1: "other", 2: "region_0"})
    store = stored([one, other], [2], DEVICE)
    trace = decode(Capture([other], device=DEVICE), decoded=store)
    assert trace.regions == ["other", "region_0"]
    check_same(trace, decode(Capture([other], device=DEVICE)))


@pytest.mark.parametrize("dropped", [(), (0,), (0, 31, 32, 70)])
def test_many_launches_are_placed_by_the_same_clock_fit(dropped: tuple[int, ...]) -> None:
    """More launches than are fitted one by one, decoded in parts of 16, the last not at all."""
    whole = small_launches(90, blocks=8)
    some = [launch.noting(extra={"true_ns": None}) for launch in whole.launches]
    store = stored(some[:80], list(range(0, 81, 16)), whole.device)
    capture = Capture([one for number, one in enumerate(some) if number not in dropped], device=whole.device)
    check_same(decode(capture, decoded=store), decode(capture))


@pytest.mark.parametrize(("known", "again"), [(4, 0), (3, 1), (1, 4)])
def test_launches_that_were_decoded_are_not_decoded_again(
    known: int, again: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless they are few: copying the others beside them would take longer."""
    whole = small_launches(4, blocks=2)
    store = stored(list(whole.launches), [1, known], whole.device)
    counted: list[int] = []
    monkeypatch.setattr(
        part_store, "decode_part", lambda some, *rest: counted.append(len(some)) or decode_part(some, *rest)
    )
    assert len(decode(whole, decoded=store)) == 4 * 2 * 4 * 2
    assert sum(counted) == again


@settings(max_examples=25, deadline=None)
@given(st.lists(launches(), min_size=1, max_size=5))
def test_headers_are_the_same_without_a_compiler(some: list[Launch]) -> None:
    native = read_windows(some, [MHZ] * len(some))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WARPLENS_NATIVE", "0")
        plain = read_windows(some, [MHZ] * len(some))
    for name, column in vars(native).items():
        assert np.array_equal(column, getattr(plain, name)), name
