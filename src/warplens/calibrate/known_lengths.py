"""What marks cost, worked out from regions of known length; the kernels that have them are the front ends' own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from warplens.record.cost_keys import (
    ALONE_CYCLES,
    BEHIND_CYCLES,
    BEHIND_VALUE_CYCLES,
    EMPTY_CYCLES,
    RECORD_CYCLES,
    REGION_CYCLES,
)
from warplens.trace.model import Trace

SHORT, LONG, ROUNDS, WARM_UP = 64, 128, 120, 20
"""Dependent fmas in the short and the long regions, how often each runs, and how many of those warm up."""
PACKED = 8
"""Records of one round of the region "packed". It has nothing but three more in it, two in each other and one beside,
so that begins and ends lie right behind begins and right behind ends."""
SLOTS = 10 + PACKED + 4 + 2
"""Slots that one round of all regions takes."""


@dataclass(frozen=True)
class Calibration:
    """Cycles on one GPU: `region` is what a region measures beyond two clock reads in the place of its marks, `record`
    what each record inside a region adds to it, `empty` what a region without work measures, `alone` what a record
    takes where nothing hides it, `behind` the most that lies between two records with nothing between them, `noted` the
    same behind a value.

    The work is a chain of instructions that wait for each other. A region ends when its last instruction is issued, not
    when its result is there: the latency of that is no part of the region and no cost of its marks. `region` is 0 where
    a mark is a clock read and its store comes after the region, and `record` where such a read issues while the chain
    waits.
    """

    device: str
    region: float
    record: float
    empty: float
    alone: float
    behind: float
    noted: float

    @property
    def cost(self) -> dict[str, float]:
        """As a launch keeps it."""
        return {
            REGION_CYCLES: self.region,
            RECORD_CYCLES: self.record,
            EMPTY_CYCLES: self.empty,
            ALONE_CYCLES: self.alone,
            BEHIND_CYCLES: self.behind,
            BEHIND_VALUE_CYCLES: self.noted,
        }


def solve(trace: Trace, device: str) -> Calibration:
    """The constants that explain the medians of the calibration's regions."""
    codes, names = trace.codes("region")
    spans, begin = trace.of_kind("span"), trace.numpy("start_cycle")
    end = begin + trace.numpy("dur_cycles")
    of = {name: codes == names.index(name) for name in ("short", "long", "outer", "empty", "packed", "noted", "bare")}
    raw = {name: float(np.median((end - begin)[of[name]][WARM_UP:])) for name in ("short", "long", "outer", "empty")}
    # An fma takes whole cycles. A cycle more or less in one of the medians would else count 64 times over.
    unit = round((raw["long"] - raw["short"]) / (LONG - SHORT))
    region = max(raw["short"] - float(np.median(trace.numpy("value")[of["bare"]][WARM_UP:])), 0.0)
    record = max((raw["outer"] - raw["short"] - 2 * SHORT * unit) / 2, 0.0)
    # Half of what a round of the empty region takes, which is two records and the loop around them.
    alone = float(np.median(np.diff(begin[of["empty"]][WARM_UP:]))) / 2
    moments = np.sort(np.concatenate((begin[of["packed"]], end[of["packed"]]))).reshape(-1, PACKED)
    behind = float(np.median(np.diff(moments[WARM_UP:]), axis=0).max())
    noted = float(np.median((end[of["noted"] & spans] - begin[of["noted"] & ~spans])[WARM_UP:]))
    return Calibration(device, region, record, raw["empty"], alone, behind, noted)
