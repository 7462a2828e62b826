"""Run woven PTX in the interpreter and read the records of each track."""

from __future__ import annotations

from typing import Any

import numpy as np

from warplens import simulate
from warplens.record.layout import HEADER, HEADER_BYTES, Kind, split_word0
from warplens.weave.weaver import Woven
from warplens.weave.weaving import Selection, capacity_of, shift_for


def launch(
    woven: Woven,
    entry: str,
    grid: Any,
    block: Any,
    args: list[Any],
    *,
    slots: int = 256,
    select: Selection | None = None,
    out: int = 0,
    parse: bool = True,
    recorded: bool = True,
) -> tuple[list[tuple[Any, list[Any]]], np.ndarray, simulate.GlobalMemory]:
    """Run `entry`; every track as (header, [(kind, region, tag, payload, clock)]) in the order of its index; with
    `parse` off, its slots as they are. "CELL" among `args` is the address of a cell with the buffer's pointer, or with
    0 where nothing is to be `recorded`."""
    grid, block = _dim3(grid), _dim3(block)
    select = select or Selection()
    warps = -(-int(np.prod(block)) // 32)
    tracks = select.blocks_of(int(np.prod(grid))) * select.tracks_per_block(warps)
    shift = shift_for(slots, woven.full, woven.slack)
    stride = 1 << shift
    memory = simulate.GlobalMemory(64 << 20)
    result = memory.alloc(max(4, out * 4))
    guard = memory.alloc(stride)
    base = memory.alloc((tracks + 2) * stride, align=stride)
    memory.write(base + tracks * stride, np.full(stride, 0xAB, np.uint8))
    text = woven.text
    pointer = base | shift
    cell = memory.alloc(np.array([pointer if recorded else 0], np.uint64))
    names = {"OUT": result, "BUFFER": pointer, "CELL": cell}
    values = [names.get(value, value) if isinstance(value, str) else value for value in args]
    symbols = {"warplens_buffer": pointer} if " warplens_buffer;" in text else {}
    simulate.run(text, entry, grid, block, values, memory=memory, symbols=symbols)
    assert (memory.read(base + tracks * stride, np.uint8, stride) == 0xAB).all(), "wrote past the last track"
    assert not memory.read(guard, np.uint8, stride).any(), "wrote before the first track"
    raw = memory.read(base, np.uint8, tracks * stride).reshape(tracks, stride)
    capacity = capacity_of(shift, woven.full, woven.slack)
    return [_track(row, woven, capacity, parse) for row in raw], memory.read(result, np.int32, out), memory


def _track(row: np.ndarray, woven: Woven, capacity: int, parse: bool) -> tuple[Any, list[Any]]:
    header = row[:HEADER_BYTES].view(HEADER)[0]
    first = len(row) // 2 if woven.full == "ring" else HEADER_BYTES
    slots = row[first : first + capacity * 8].view(np.uint64)
    written = int(header["written"])
    order = range(max(0, written - capacity) if woven.full == "ring" else 0, min(written, written))
    words = [int(slots[i % capacity]) for i in order if woven.full == "ring" or i < capacity]
    if not parse:
        return header, words
    records: list[tuple[Any, ...]] = []
    index = 0
    while index < len(words):
        kind, region, tag = split_word0(words[index] & 0xFFFFFFFF)
        payload = None
        following = split_word0(words[index + 1] & 0xFFFFFFFF)[0] if index + 1 < len(words) else None
        if kind is not Kind.VALUE and following is Kind.VALUE:
            payload, index = words[index], index + 1
            kind, region, tag = split_word0(words[index] & 0xFFFFFFFF)
        records.append((kind, woven.regions[region], tag, payload, words[index] >> 32))
        index += 1
    return header, records


def _dim3(size: Any) -> tuple[int, int, int]:
    size = (size,) if isinstance(size, int) else tuple(size)
    return (*size, 1, 1)[:3]
