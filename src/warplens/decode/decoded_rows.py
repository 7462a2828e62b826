"""The arrays that a decoder fills: one row per span, instant or value, ordered by track and begin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from warplens.record.layout import MAX_REGION

SPAN, INSTANT, VALUE = range(3)
"""Indices into schema.KINDS."""
DAMAGED = 3
"""The kind of rows that both decoders reserve and `without_damaged` removes."""

BARRIER_VALUE = 2
"""In `has_value`: the value is a barrier word (record/barrier_words.py); other values have 1 there."""

SEARCH_LIMIT = 64
"""How many open spans an end searches for its begin. The bound keeps invalid data from taking quadratic time."""

MAX_DETAILS = 32

_DIRECT = 4096
"""Region ids below this are looked up in an array, as in C, which is as long as the largest of them requires."""


class Counter(IntEnum):
    """Problems that the decoders count, in the order of the C enum."""

    ORPHAN_ENDS = 0
    MISMATCHED_ENDS = 1
    EMPTY_SLOTS = 2
    TORN_PAYLOADS = 3
    UNKNOWN_REGIONS = 4
    CLOCK_BACKWARD = 5
    OPEN_SPANS = 6
    CLOCK_AMBIGUOUS = 7
    DAMAGED_RECORDS = 8


@dataclass
class DecodedRows:
    """Preallocated columns of all launches of a capture, in cycles."""

    region: npt.NDArray[np.int32]
    kind: npt.NDArray[np.int8]
    depth: npt.NDArray[np.int16]
    parent: npt.NDArray[np.int32]
    start: npt.NDArray[np.int64]
    duration: npt.NDArray[np.int64]
    open: npt.NDArray[np.uint8]
    value: npt.NDArray[np.float64]
    has_value: npt.NDArray[np.uint8]
    anchor_clock: npt.NDArray[np.int64]
    anchor_ns: npt.NDArray[np.int64]
    counters: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(len(Counter), np.int64))

    @classmethod
    def allocate(cls, rows: int, anchors: int, with_values: bool) -> DecodedRows:
        values = rows if with_values else 0
        return cls(
            region=np.empty(rows, np.int32),
            kind=np.zeros(rows, np.int8),
            depth=np.empty(rows, np.int16),
            parent=np.empty(rows, np.int32),
            start=np.empty(rows, np.int64),
            duration=np.empty(rows, np.int64),
            open=np.zeros(rows, np.uint8),
            value=np.zeros(values, np.float64),
            has_value=np.zeros(values, np.uint8),
            anchor_clock=np.zeros(anchors, np.int64),
            anchor_ns=np.full(anchors, -1, np.int64),
        )

    def drop(self, rows: npt.NDArray[np.int64]) -> None:
        """Count rows that nothing is inside of as damaged, so that `without_damaged` removes them."""
        self.kind[rows], self.parent[rows] = DAMAGED, -1
        self.counters[Counter.DAMAGED_RECORDS] += len(rows)

    def without_damaged(self, plan: RowPlan) -> tuple[DecodedRows, RowPlan]:
        """Remove the rows of damaged records. No span has one of them as its parent."""
        if not self.counters[Counter.DAMAGED_RECORDS]:
            return self, plan
        keep = self.kind != DAMAGED
        before = np.append(0, np.cumsum(keep))
        parent = np.where(self.parent >= 0, before[self.parent], -1).astype(np.int32)
        names = ("region", "kind", "depth", "start", "duration", "open")
        columns = {name: getattr(self, name)[keep] for name in names}
        if len(self.value):
            columns |= {name: getattr(self, name)[keep] for name in ("value", "has_value")}
        rows = replace(self, parent=parent[keep], **columns)
        return rows, replace(plan, row_start=before[plan.row_start].astype(np.int64))

    def with_spans(
        self, plan: RowPlan, at: npt.NDArray[np.int64], track: npt.NDArray[np.int64], spans: Mapping[str, npt.ArrayLike]
    ) -> tuple[DecodedRows, RowPlan]:
        """Insert spans that nothing encloses, each before the row that is number `at` now, in its `track`; both arrays
        ascend. `spans` has their regions, starts and durations."""
        total = len(self.start) + len(at)
        new = at + np.arange(len(at))
        old = np.ones(total, bool)
        old[new] = False
        moved = np.flatnonzero(old)
        columns: dict[str, npt.NDArray[Any]] = {}
        of_spans = {**spans, "kind": SPAN, "depth": 0, "open": 0, "parent": -1}
        if len(self.value):
            of_spans |= {"value": 0, "has_value": 0}
        for name, values in of_spans.items():
            before = getattr(self, name)
            if name == "parent":
                before = np.where(before >= 0, moved[before] if len(moved) else 0, before)
            columns[name] = np.empty(total, getattr(self, name).dtype)
            columns[name][moved], columns[name][new] = before, values
        added = np.append(0, np.cumsum(np.bincount(track, minlength=len(plan.row_start) - 1)))
        return replace(self, **columns), replace(plan, row_start=plan.row_start + added)


@dataclass(frozen=True)
class RowPlan:
    """The first row and anchor of each track, and flags for its contents: bit 0 means that it has payloads."""

    row_start: npt.NDArray[np.int64]
    anchor_start: npt.NDArray[np.int64]
    holds: npt.NDArray[np.uint8]

    @property
    def with_payloads(self) -> bool:
        return bool((self.holds & 1).any())


@dataclass(frozen=True)
class Detail:
    """One malformed record: its problem, track, slot and region, and the region that was innermost instead."""

    what: Counter
    track: int
    slot: int
    region: int
    innermost: int


class RegionTable:
    """Maps region ids to codes with an open-addressed hash table that numpy and C share."""

    def __init__(self, codes: Mapping[int, int], unknown: int) -> None:
        size = 16
        while size < 4 * len(codes):
            size *= 2
        self.mask = size - 1
        self.unknown = unknown
        self.codes = codes
        self.keys = np.full(size, -1, np.int32)
        self.values = np.zeros(size, np.int32)
        small = [region for region in codes if region < _DIRECT]
        self.direct = np.full(max(small, default=-1) + 1, unknown, np.int32)
        for region, code in codes.items():
            if region < len(self.direct):
                self.direct[region] = code
            at = (region * 2654435761 & 0xFFFFFFFF) >> 7 & self.mask
            while self.keys[at] >= 0:
                at = (at + 1) & self.mask
            self.keys[at], self.values[at] = region, code

    def lookup(self, ids: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
        """The codes of `ids`, and which of them are unknown."""
        known = np.array(sorted(self.codes), np.int64)
        order = np.array([self.codes[int(region)] for region in known] + [self.unknown], np.int32)
        at = np.searchsorted(known, ids)
        missing = (at == len(known)) | (np.append(known, MAX_REGION + 1)[at] != ids)
        return np.where(missing, self.unknown, order[at]).astype(np.int32), missing
