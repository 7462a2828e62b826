"""How many bytes of a trace file one slot of a track takes: the estimate behind `--trace-size`.

Synthetic launches of 264 blocks of 4 warps on 132 SMs, with regions of random (gamma-distributed) length.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from warplens.decode import decode
from warplens.launch.block_sampler import BYTES_PER_SLOT, block_headers
from warplens.record.capture import Capture, Device, Launch
from warplens.record.layout import Kind, track_stride
from warplens.record.track_writer import TrackWriter

SMS, BLOCKS, WARPS = 132, 264, 4


@dataclass(frozen=True)
class Shape:
    """What the warps record: regions of a mean length in cycles, with or without values and instants."""

    name: str
    mean: int
    iterations: int = 32
    values: bool = False
    instants: bool = False


SHAPES = (
    Shape("spans of 400 cycles", 400),
    Shape("spans of 5,000 cycles", 5_000),
    Shape("spans of 100,000 cycles", 100_000),
    Shape("spans of 3,000,000 cycles", 3_000_000),
    Shape("spans of 5,000 cycles with values", 5_000, values=True),
    Shape("instants, 5,000 cycles apart", 5_000, instants=True),
)


def tracks(shape: Shape) -> Iterator[TrackWriter]:
    rng = np.random.default_rng(0)
    for block in range(BLOCKS):
        for warp in range(WARPS):
            writer = TrackWriter(8 * shape.iterations, block=block, warp=warp, sm=block % SMS)
            clock = 10**11 + block % SMS * 77_777 + block // SMS * shape.iterations * shape.mean * 4
            clock += int(rng.integers(0, 5000))
            writer.start(clock, 10**15 + int(clock / 1.755))
            for region in [0, 1, 2] * shape.iterations:
                clock += int(rng.gamma(2, shape.mean / 10))
                writer.record(Kind.INSTANT if shape.instants else Kind.BEGIN, region, clock)
                clock += int(rng.gamma(2, shape.mean / 2))
                if shape.values and region == 0:
                    writer.value(region, clock, float(rng.normal()))
                writer.record(Kind.INSTANT if shape.instants else Kind.END, region, clock)
            writer.exit(clock, 10**15 + int(clock / 1.755))
            yield writer


def main() -> None:
    print(f"estimate: {BYTES_PER_SLOT} bytes per slot")
    for shape in SHAPES:
        capacity = 8 * shape.iterations
        raw = np.stack([writer.to_bytes() for writer in tracks(shape)])
        assert raw.shape[1] == track_stride(capacity)
        names = {0: "load", 1: "mma", 2: "wait"}
        launch = Launch("matmul", (BLOCKS, 1, 1), (32 * WARPS, 1, 1), names, capacity, raw.reshape(-1))
        trace = decode(Capture([launch], device=Device(sm_count=SMS)))
        with tempfile.TemporaryDirectory() as folder:
            size = trace.save(Path(folder) / "t.warplens", force=True).stat().st_size
        slots = int(block_headers(launch).slots.sum())
        print(f"{shape.name}: {size / slots:.2f} bytes per slot, {size / len(trace):.2f} per row")


if __name__ == "__main__":
    main()
