"""What marks cost, worked out from regions of known length; the kernels that have them are the front ends' own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from warplens.trace.model import Trace
from warplens.trace.shift import ALONE_CYCLES, EMPTY_CYCLES, RECORD_CYCLES, REGION_CYCLES

SHORT, LONG, ROUNDS, WARM_UP = 64, 128, 120, 20
"""Dependent fmas in the short and the long regions, how often each runs, and how many of those warm up."""
SLOTS = 10
"""Records of one round."""


@dataclass(frozen=True)
class Calibration:
    """Cycles on one GPU: `region` is what a region measures beyond its work, `record` what each record inside a region
    adds to it, `empty` what a region without work measures, `alone` what a record takes where nothing hides it.

    The work is a chain of instructions that wait for each other. A region ends when its last instruction is issued, not
    when its result is there, so `region` is negative where the marks themselves add less than that. `record` is 0 where
    a record is a clock read that issues while the chain waits, and its store comes after the region.
    """

    device: str
    region: float
    record: float
    empty: float
    alone: float

    @property
    def cost(self) -> dict[str, float]:
        """As a launch keeps it."""
        return {
            REGION_CYCLES: self.region,
            RECORD_CYCLES: self.record,
            EMPTY_CYCLES: self.empty,
            ALONE_CYCLES: self.alone,
        }


def solve(trace: Trace, device: str) -> Calibration:
    """The constants that explain the medians of the calibration's regions."""
    codes, names = trace.codes("region")
    raw = {
        name: float(np.median(trace.numpy("dur_cycles")[codes == names.index(name)][WARM_UP:]))
        for name in ("short", "long", "outer", "empty")
    }
    # An fma takes whole cycles. A cycle more or less in one of the medians would else count 64 times over.
    unit = round((raw["long"] - raw["short"]) / (LONG - SHORT))
    region = raw["short"] - SHORT * unit
    record = max((raw["outer"] - 3 * SHORT * unit - region) / 2, 0.0)
    # Half of what a round of the empty region takes, which is two records and the loop around them.
    begins = trace.numpy("start_cycle")[codes == names.index("empty")]
    alone = float(np.median(np.diff(begins[WARM_UP:]))) / 2
    return Calibration(device, region, record, raw["empty"], alone)
