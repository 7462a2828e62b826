"""Launches whose blocks run in waves: every block has a known SM, start, end and number of records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from warplens.record.capture import Launch
from warplens.record.layout import Kind, track_stride
from warplens.record.track_writer import TrackWriter

CYCLES_PER_NS = 2
FIRST_NS = 10**15


@dataclass(frozen=True)
class Block:
    """One block: times in ns from the launch's start, and how many spans each of its warps records."""

    sm: int
    begin: int
    end: int
    spans: int = 1


def launch_of(blocks: Sequence[Block], *, warps: int = 2, kernel: str = "matmul", **more: object) -> Launch:
    """A launch of these blocks in order of their numbers; each warp lives as long as its block."""
    capacity = 2 * max(block.spans for block in blocks)
    raw = np.empty((len(blocks) * warps, track_stride(capacity)), np.uint8)
    for number, block in enumerate(blocks):
        for warp in range(warps):
            writer = TrackWriter(capacity, block=number, warp=warp, sm=block.sm)
            begin, end = (10**9 + CYCLES_PER_NS * time for time in (block.begin, block.end))
            writer.start(begin, FIRST_NS + block.begin)
            step = (end - begin) // block.spans if block.spans else 0
            for span in range(block.spans):
                writer.record(Kind.BEGIN, 0, begin + span * step)
                writer.record(Kind.END, 0, begin + (span + 1) * step)
            writer.exit(end, FIRST_NS + block.end)
            raw[number * warps + warp] = writer.to_bytes()
    return Launch(kernel, (len(blocks), 1, 1), (32 * warps, 1, 1), {0: "work"}, capacity, raw.reshape(-1), **more)


def waves(blocks: int, *, sms: int = 16, lasts: int = 1000, spans: int = 8, uneven: int = 0) -> list[Block]:
    """Blocks that take turns on the SMs, one at a time on each; the k-th of an SM lasts `uneven` ns longer than the
    one before it."""
    free, turns, made = [0] * sms, [0] * sms, []
    for number in range(blocks):
        sm = number % sms
        end = free[sm] + lasts + uneven * turns[sm]
        made.append(Block(sm, free[sm], end, spans))
        free[sm], turns[sm] = end, turns[sm] + 1
    return made
