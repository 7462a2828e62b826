"""The records of a launch as lines of text, read with the layout alone: what the CUDA tests compare with."""

from __future__ import annotations

from typing import Any

import numpy as np

from warplens.record.capture import Launch
from warplens.record.layout import HEADER, RECORD, SLOT_BYTES, Kind, ValueType, split_word0

SLOTS_PER_STEP = 11


def step(i: int) -> list[str]:
    """What kernel `nested` records in iteration `i`."""
    inner = ["begin inner", "end inner"]
    manual = ["begin manual", "instant tick", f"value index {i}", f"value half {0.5 * i}", "end manual"]
    return ["begin step", *inner, *manual, "end step"]


def tracks(launch: Launch) -> list[tuple[Any, list[str]]]:
    """Each track's header and its records, oldest first."""
    result = []
    for row in launch.raw.reshape(launch.tracks, launch.stride):
        head = row[: HEADER.itemsize].view(HEADER)[0]
        written, kept = int(head["written"]), min(int(head["written"]), launch.capacity)
        slots = np.array(row[HEADER.itemsize : HEADER.itemsize + launch.capacity * SLOT_BYTES]).view(RECORD)
        if launch.full == "ring" and written > launch.capacity > 0:
            slots = np.roll(slots, -(written % launch.capacity))
        result.append((head, _lines(launch, slots[:kept])))
    return result


def _lines(launch: Launch, slots: Any) -> list[str]:
    lines, at = [], len(slots) - 1
    while at >= 0:
        kind, region, tag = split_word0(int(slots[at]["word0"]))
        text = f"{kind.name.lower()} {launch.regions.get(region, region)}"
        if kind in (Kind.VALUE, Kind.ANCHOR):
            at -= 1
            if at < 0:
                break
            payload = slots[at : at + 1].view(np.float64 if tag == ValueType.F64 else np.int64)[0]
            text += f" {payload}" if kind == Kind.VALUE else ""
        elif tag:
            text += f" #{tag}"
        lines.append(text)
        at -= 1
    return lines[::-1]
