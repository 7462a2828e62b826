"""Headers read in C give the columns that numpy gives."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from tests.support.small_launches import small_launches
from warplens import native
from warplens.decode import track_windows
from warplens.decode.track_windows import TrackWindows, read_windows
from warplens.record.capture import Launch
from warplens.record.layout import HEADER, HEADER_BYTES, SLOT_BYTES, TRACK_MAGIC, TrackState

needs_compiler = pytest.mark.skipif(native.load() is None, reason="there is no C compiler")


def _launch(random: np.random.Generator, **changes: int) -> Launch:
    """A launch whose tracks hold anything, with plausible headers."""
    capacity, tracks, slack = int(random.integers(0, 5)), int(random.integers(1, 40)), int(random.integers(0, 3))
    stride = HEADER_BYTES + (capacity + slack) * SLOT_BYTES
    raw = random.integers(0, 256, (tracks, stride)).astype(np.uint8)
    raw[random.random(tracks) < 0.3, HEADER_BYTES:] = 0
    header = np.ndarray(tracks, HEADER, raw, strides=(stride,))
    header["magic"], header["state"] = TRACK_MAGIC, TrackState.EXITED
    header["block"], header["warp"] = random.integers(0, 10, tracks), random.integers(0, 4, tracks)
    header["lane"], header["sm"] = random.integers(0, 32, tracks), random.integers(0, 132, tracks)
    header["written"] = random.integers(0, 9, tracks)
    for name in ("clock", "ns"):
        header[f"start_{name}"] = random.integers(0, 1 << 40, tracks)
        header[f"exit_{name}"] = header[f"start_{name}"] + random.integers(0, 1 << 33, tracks).astype(np.uint64)
    header["exit_ns"][::5] = header["start_ns"][::5]
    header["exit_clock"] += np.uint64(1 << 34)
    for name, value in changes.items():
        header[name][-1] = value
    full = "ring" if random.random() < 0.5 else "stop"
    return Launch("k", (10, 1, 1), (128, 1, 1), {}, capacity, raw.reshape(-1), full=full, stride=stride)


def _assert_same(one: TrackWindows, other: TrackWindows) -> None:
    for name in (field.name for field in fields(TrackWindows)):
        mine, its = np.asarray(getattr(one, name)), np.asarray(getattr(other, name))
        assert mine.dtype == its.dtype, name
        np.testing.assert_array_equal(mine, its, err_msg=name)


def _by_numpy(launches: list[Launch], mhz: list[float], monkeypatch: pytest.MonkeyPatch) -> TrackWindows:
    with monkeypatch.context() as patch:
        patch.setattr(track_windows, "load", lambda: None)
        return read_windows(launches, mhz)


@needs_compiler
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("tracks_at_once", [1, 50, 1 << 14])
def test_c_and_numpy_read_the_same(seed: int, tracks_at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(seed)
    launches = [_launch(random) for _ in range(6)]
    mhz = [1980.0, 0.0, 1755.0, 1.0, 1980.0, 1410.0]
    monkeypatch.setattr(track_windows, "_TRACKS_AT_ONCE", tracks_at_once)
    assert track_windows._read_whole(launches, mhz, [slice(0, 6)], map) is not None
    _assert_same(read_windows(launches, mhz), _by_numpy(launches, mhz, monkeypatch))


@needs_compiler
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("magic", 0), ("magic", 7), ("state", TrackState.RUNNING), ("state", 9), ("block", 10), ("warp", 4),
        ("sm", 1 << 15), ("lane", 32), ("exit_clock", 0), ("exit_ns", 0), ("start_clock", 1 << 63),
        ("exit_ns", 1 << 61),
    ],
)  # fmt: skip
def test_a_track_that_is_not_whole_is_left_to_numpy(field: str, value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(1)
    launches = [_launch(random), _launch(random, **{field: value}), _launch(random)]
    mhz = [1980.0] * 3
    assert track_windows._read_whole(launches, mhz, [slice(0, 3)], map) is None
    _assert_same(read_windows(launches, mhz), _by_numpy(launches, mhz, monkeypatch))


@needs_compiler
def test_a_buffer_with_gaps_is_left_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    (launch,) = small_launches(1, blocks=2).launches
    spread = np.repeat(launch.raw, 2)[::2]
    gaps = [replace(launch, raw=spread)]
    assert track_windows._read_whole(gaps, [1980.0], [slice(0, 1)], map) is None
    _assert_same(read_windows(gaps, [1980.0]), read_windows([launch], [1980.0]))
