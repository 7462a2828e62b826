"""The arrows of timeline formats: from an arrival at a barrier to the end of the wait that it released."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from warplens.export.track_table import TrackTable
from warplens.trace.model import Trace

RELEASED, BARRIER_CATEGORY = "released", "barrier"
"""The name of the slice where an arrow ends, and the category of both slices."""
ARROWS = 3 << 60
"""Added to the number of an arrow to make its id in Perfetto's format, where other arrows have ids too."""
MOST = 100_000
"""The maximum number of arrows in a file; the longest waits come first."""


@dataclass(frozen=True)
class BarrierArrow:
    """One arrow between two tracks (their places in the track table), with its times in ns."""

    number: int
    name: str
    source: int
    leaves: int
    target: int
    arrives: int


def barrier_arrows(trace: Trace, tracks: TrackTable) -> list[BarrierArrow]:
    """The arrows of all waits that had to wait, in the order of their waits."""
    table = trace.edges
    record, waited = table.column("arrival_record").to_numpy(), table.column("waited_ns").to_numpy()
    known = np.flatnonzero((record >= 0) & (waited > 0))
    if len(known) > MOST:
        known = np.sort(known[np.argsort(-waited[known], kind="stable")[:MOST]])
    if not len(known):
        return []
    wait, record = table.column("wait").to_numpy()[known], record[known]
    start, regions = trace.numpy("start_ns"), trace.codes("region")
    end = start[wait] + trace.numpy("dur_ns")[wait]
    columns = (
        (regions[1][code] for code in regions[0][record]),
        tracks.track_of(record).tolist(),
        np.minimum(start[record], end).tolist(),  # clocks of two SMs may disagree by their error
        tracks.track_of(wait).tolist(),
        end.tolist(),
    )
    return [BarrierArrow(number, *parts) for number, parts in enumerate(zip(*columns, strict=True), 1)]
