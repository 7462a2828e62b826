"""The CUDA buffer: sizes, placement, names and the generated constants."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warplens.errors import WarplensError
from warplens.record import c_header
from warplens.record.launch_buffer import BUFFER, BUFFER_BYTES, DIRECT_SPARE, WINDOW, plan, ring_slots, trimmed
from warplens.record.layout import HEADER_BYTES, MAX_SLOTS, SLOT_BYTES
from warplens.record.name_table import NAME_MAGIC, region_id, scan


def test_the_generated_header_is_up_to_date() -> None:
    assert c_header.PATH.read_text() == c_header.text(), "run `python -m warplens.record.c_header`"


@given(
    grid=st.integers(1, 2000), block=st.integers(1, 1024), records=st.integers(0, 3000),
    address=st.integers(0, 1 << 48).map(lambda a: a // 256 * 256), near=st.integers(0, 64 << 20),
)  # fmt: skip
def test_no_track_crosses_a_window_or_leaves_the_allocation(
    grid: int, block: int, records: int, address: int, near: int
) -> None:
    sizes = plan((grid, 1, 1), (block, 1, 1), records=records)
    for base in (address, (address // WINDOW + 1) * WINDOW - near // 256 * 256):
        start = sizes.place(base)
        assert base <= start
        assert start + sizes.size <= base + sizes.allocation
        assert start % SLOT_BYTES == 0
        first = start + BUFFER_BYTES + np.arange(sizes.tracks, dtype=np.uint64) * np.uint64(sizes.stride)
        last = first + np.uint64(sizes.stride - 1)
        assert np.array_equal(first >> np.uint64(32), last >> np.uint64(32))
    assert sizes.stride >= HEADER_BYTES + (sizes.capacity + DIRECT_SPARE) * SLOT_BYTES, "no room for spare slots"


def test_a_buffer_past_4_gib_is_refused_with_the_most_that_fits() -> None:
    with pytest.raises(WarplensError, match=r"at most records_per_warp=(\d+)") as error:
        plan((100_000, 1, 1), (256, 1, 1), records=10_000)
    most = int(str(error.value).rsplit("=", 1)[1])
    plan((100_000, 1, 1), (256, 1, 1), records=most)
    with pytest.raises(WarplensError):
        plan((100_000, 1, 1), (256, 1, 1), records=most + 16)
    assert plan((1, 1, 1), (32, 1, 1), records=MAX_SLOTS).capacity == MAX_SLOTS
    with pytest.raises(WarplensError, match=str(MAX_SLOTS)):
        plan((1, 1, 1), (32, 1, 1), records=MAX_SLOTS + 1)


def test_the_default_fits_memory_and_never_starves_a_warp() -> None:
    assert plan((132, 1, 1), (128, 1, 1)).size <= 65 << 20
    assert plan((1, 1, 1), (32, 1, 1)).capacity == 65536
    assert plan((16384, 1, 1), (256, 1, 1)).capacity == 256


def test_ring_sizes_are_powers_of_two_and_survive_trimming() -> None:
    sizes = plan((1, 1, 1), (32, 1, 1), records=100, full="ring")
    assert sizes.capacity == 128 == ring_slots(sizes.capacity)
    assert ring_slots(100) == 64
    assert ring_slots(0) == 0
    assert trimmed(sizes, 128, 40, "ring").capacity == 64
    assert trimmed(sizes, 128, 40, "stop").capacity == 40
    assert trimmed(sizes, 128, 4000, "ring").capacity == 128


def test_the_launch_header_is_what_the_device_reads() -> None:
    sizes = plan((3, 2, 1), (64, 1, 1), records=10, every_thread=True)
    head = np.frombuffer(sizes.header(), BUFFER)[0]
    assert (head["capacity"], head["tracks"], head["per_block"]) == (10, 384, 64)
    assert struct.unpack_from("<4I", sizes.header(), 16) == (10, sizes.stride, 384, 64), "one 16-byte load"


def _object(name: str, ident: int | None = None) -> bytes:
    text, file = name.encode() + b"\0", b"k.cu\0"
    return (
        struct.pack("<QIIHH", NAME_MAGIC, region_id(name) if ident is None else ident, 7, len(text), len(file))
        + text
        + file
    )


@given(
    names=st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=40), max_size=8)
)
def test_names_are_found_among_other_bytes(names: list[str]) -> None:
    data = b"junk" + b"\xff\0padding".join(_object(name) for name in names) + struct.pack("<Q", NAME_MAGIC) + b"cut"
    if len({region_id(name) for name in names}) == len(set(names)):
        found = scan(data)
        assert dict(found.regions) == {region_id(name): name for name in names}
        assert set(found.locations.values()) <= {"k.cu:7"}


def test_an_object_whose_id_does_not_match_its_name_is_ignored_and_a_collision_refused() -> None:
    assert not scan(_object("load", 12345)).regions
    seen: dict[int, str] = {}
    first = second = ""
    for number in range(1 << 16):
        name = f"region {number}"
        if seen.setdefault(region_id(name), name) != name:
            first, second = seen[region_id(name)], name
            break
    assert first, "24 bits collide within 65536 names"
    with pytest.raises(WarplensError, match=f"{first!r} and {second!r}"):
        scan(_object(first) + _object(second))
