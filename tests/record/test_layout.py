"""Every field of the record and the header holds its stated limit, and refuses or changes one past it."""

from __future__ import annotations

import numpy as np
import pytest

from warplens.decode import decode
from warplens.record import layout
from warplens.record.capture import Capture, Device, Launch
from warplens.record.layout import HEADER, HEADER_BYTES, Kind
from warplens.record.track_writer import TrackWriter


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("region", [0, 4096, layout.MAX_REGION])
@pytest.mark.parametrize("tag", [0, layout.MAX_TAG])
def test_word0_round_trips_at_the_limits(kind: Kind, region: int, tag: int) -> None:
    word = layout.word0(kind, region, tag)
    assert word < 1 << 32
    assert layout.split_word0(word) == (kind, region, tag)


def test_word0_refuses_one_past_the_limit() -> None:
    with pytest.raises(ValueError, match="region id 16777216"):
        layout.word0(Kind.BEGIN, layout.MAX_REGION + 1)
    with pytest.raises(ValueError, match="tag 32"):
        layout.word0(Kind.BEGIN, 1, layout.MAX_TAG + 1)


def _decode_one(grid: tuple[int, int, int], **where: int):
    writer = TrackWriter(2, **where)
    writer.start(0, 0)
    writer.record(Kind.INSTANT, 1, 5)
    writer.exit(10, 10)
    launch = Launch("k", grid, (64 * 32, 1, 1), {1: "x"}, 2, writer.to_bytes())
    return decode(Capture([launch], Device(clock_mhz=1000)))


def test_stated_limits_decode() -> None:
    """Blocks to 2^31-1 over a 3-D grid, 64 warps, SM 1023."""
    trace = _decode_one(((1 << 31) - 1, 1, 1), block=(1 << 31) - 2, warp=63, sm=1023)
    row = trace.spans.to_pylist()[0]
    assert (row["block"], row["warp"], row["sm"]) == ((1 << 31) - 2, 63, 1023)


def test_one_past_the_limits_is_refused() -> None:
    with pytest.raises(Exception, match="2147483648 blocks"):
        _decode_one((1 << 16, 1 << 15, 1), block=0)
    assert _decode_one((4, 1, 1), block=4).meta.losses.tracks_invalid == 1
    assert _decode_one((4, 1, 1), warp=64).meta.losses.tracks_invalid == 1


def test_three_dimensional_blocks_are_linearised_x_first() -> None:
    grid = (3, 5, 7)
    seen = [layout.linear_block((x, y, z), grid) for z in range(7) for y in range(5) for x in range(3)]
    assert seen == list(range(105))


def test_a_track_of_2_to_the_24_records_decodes() -> None:
    """Two-slot records included, a track holds 2^25 slots; here all single ones."""
    n = 1 << 24
    raw = np.zeros(layout.track_stride(n), np.uint8)
    header = raw[:HEADER_BYTES].view(HEADER)
    header["magic"], header["state"], header["written"] = layout.TRACK_MAGIC, 1, n
    header["exit_clock"] = header["exit_ns"] = n + 1
    records = raw[HEADER_BYTES : HEADER_BYTES + 8 * n].view(layout.RECORD)
    records["clock"] = np.arange(n)
    records["word0"][0::2] = layout.word0(Kind.BEGIN, 1)
    records["word0"][1::2] = layout.word0(Kind.END, 1)
    launch = Launch("k", (1, 1, 1), (32, 1, 1), {1: "x"}, n, raw)
    trace = decode(Capture([launch], Device(clock_mhz=1000)))
    assert len(trace) == n // 2
    assert trace.meta.losses.clean
    assert (trace.numpy("dur_cycles") == 1).all()
    with pytest.raises(ValueError, match="outside"):
        layout.track_stride(layout.MAX_SLOTS + 1)


def test_header_is_one_cache_line() -> None:
    assert HEADER.itemsize == HEADER_BYTES == 128
    assert layout.track_stride(0) == 128
    assert layout.track_stride(1) == layout.track_stride(16) == 256
