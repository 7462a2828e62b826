"""The records of a launch as columns, before begins and ends are paired."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from warplens.decode.track_windows import Bool, Int64


@dataclass(frozen=True)
class TrackRecords:
    """The records of all tracks of a launch, with their payloads attached.

    `wide` records should have a 64-bit clock; `exact` is that clock, or -1.
    """

    track: Int64
    slot: Int64
    kind: Int64
    region: Int64
    tag: Int64
    low: Int64
    payload: npt.NDArray[np.uint64]
    has_payload: Bool
    wide: Bool
    exact: Int64
    empty: int
