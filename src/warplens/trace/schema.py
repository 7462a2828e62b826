"""The columns of `Trace.spans`, and the JSON document stored with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

SCHEMA_VERSION = 2
"""The newest version that is read."""
TRACE_SCHEMA, AGGREGATE_SCHEMA = 1, 2
"""The versions that are written: a trace of records has no need of the newer one, so older readers read it."""
KINDS = ("span", "instant", "value")
LIFE = "(warp)"
"""The reserved region of a warp that left no record: one span from its start to its exit."""

COLUMNS: dict[str, pa.DataType] = {
    "rank": pa.int32(),
    "device": pa.int16(),
    "launch": pa.int32(),
    "kernel": pa.dictionary(pa.int32(), pa.string()),
    "sm": pa.int16(),
    "block": pa.int32(),
    "warp": pa.int16(),
    "region": pa.dictionary(pa.int32(), pa.string()),
    "kind": pa.dictionary(pa.int8(), pa.string()),
    "depth": pa.int16(),
    "parent": pa.int32(),
    "start_ns": pa.int64(),
    "dur_ns": pa.int64(),
    "start_cycle": pa.int64(),
    "dur_cycles": pa.int64(),
    "value": pa.float64(),
    "track": pa.int32(),
    "lane": pa.int16(),
    "open": pa.bool_(),
    "released_by": pa.int32(),
}
"""`parent` is the row of the enclosing span in this table, -1 for none; `track` numbers the tracks from 0; `open`
flags a span whose end was never recorded; `released_by` is the row of the arrival that released a wait, or one of the
negative numbers of trace/barrier_rows.py. Rows are ordered by track, then by begin, so a parent precedes its
children."""
ABSENT = {"released_by": -1}
"""Columns that files may lack, as those of older versions do, and the value that stands in every row then."""


AGGREGATE_COLUMNS: dict[str, pa.DataType] = {
    "count": pa.int64(),
    "min_cycles": pa.int64(),
    "max_cycles": pa.int64(),
    "buckets": pa.list_(pa.int16()),
    "bucket_counts": pa.list_(pa.int64()),
}
"""Further columns of a trace in `mode="aggregate"`. There a span stands for `count` executions of its region by one
warp inside the same regions, `dur_cycles` and `dur_ns` are their sum, and `start_ns` and `start_cycle` only lay them
out one after the other. `buckets` are the numbers of the histogram's buckets that are not empty, as
record/aggregate_rows.py defines them, and `bucket_counts` the executions in each."""


@dataclass(frozen=True)
class LaunchInfo:
    """Metadata of one launch. Times are in ns from the first record of the trace.

    `begin_ns` and `end_ns` are the first warp's start and the last warp's exit. `busy_cycles` is the sum of the tracks'
    lifetimes, which shares refer to. `covered` is the share of a track's lifetime inside regions: `least`, `p5` (the
    5th percentile) and `median` over the tracks that lost no record.
    """

    launch: int
    kernel: str
    rank: int = 0
    device: int = 0
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (1, 1, 1)
    clock: str = "gpu"
    begin_ns: int = 0
    end_ns: int = 0
    tracks: int = 0
    busy_cycles: int = 0
    busy_ns: int = 0
    covered: Mapping[str, float] = field(default_factory=dict)
    cost: Mapping[str, float] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ClockFit:
    """The fit of cycles to nanoseconds. `error_p99_ns` and `error_max_ns` bound the error of times in ns: the residual
    of the anchors, and what the clock may have done between them."""

    residual_p50_ns: float = 0.0
    residual_p99_ns: float = 0.0
    residual_max_ns: float = 0.0
    mhz_min: float = 0.0
    mhz_mean: float = 0.0
    mhz_max: float = 0.0
    anchors: int = 0
    sms: int = 0
    clocks: int = 0
    """The number of clock domains; the SMs of a GPC share one."""
    segments: int = 0
    step_ns: float = 0.0
    method: str = "none"
    mhz_error: float = 0.0
    """The error of `mhz_min` and `mhz_max`, as about 95 % of measurements are closer; 0 if unknown."""
    gap_ns: float = 0.0
    """The longest time of a clock without an anchor in a launch."""
    gap_error_ns: float = 0.0
    """How far moments in such a time may be misplaced if the clock changed in it; 0 if it is short."""
    gap_error_p99_ns: float = 0.0
    """The same for all but 1 % of the time of each launch."""

    @property
    def error_p99_ns(self) -> float:
        return self.residual_p99_ns + self.gap_error_p99_ns

    @property
    def error_max_ns(self) -> float:
        return self.residual_max_ns + self.gap_error_ns


@dataclass(frozen=True)
class Losses:
    """Everything that was lost or malformed; all zero for a complete trace.

    `most_written` is the number of records of the busiest track: the `records_per_warp` that loses nothing.
    """

    records_written: int = 0
    records_kept: int = 0
    records_lost: int = 0
    most_written: int = 0
    tracks: int = 0
    tracks_full: int = 0
    tracks_unwritten: int = 0
    tracks_without_exit: int = 0
    tracks_invalid: int = 0
    open_spans: int = 0
    orphan_ends: int = 0
    mismatched_ends: int = 0
    empty_slots: int = 0
    torn_payloads: int = 0
    unknown_regions: int = 0
    clock_backward: int = 0
    clock_ambiguous: int = 0
    damaged_records: int = 0
    details: Sequence[str] = ()

    @property
    def clean(self) -> bool:
        """Whether nothing was lost or malformed."""
        harmless = {"records_written", "records_kept", "most_written", "tracks", "details"}
        return not any(value for name, value in asdict(self).items() if name not in harmless)


@dataclass(frozen=True)
class Meta:
    """The trace's JSON document. `origin_ns` is the device's globaltimer at time zero of the trace.

    `notes` holds the profile's remarks on each kernel, such as why it ran unmarked. `sensitivity` is what an experiment
    with delays found (analyse/region_sensitivity.py), empty where there was none. `locations` has the source location
    of each region, and `kernel_locations` the same for each kernel, as regions of several kernels may share a name.
    `source_hashes` are hashes of the source files at the time of recording. `verification` says where the regions are
    in the machine code, by the name that a launch's `extra` gives its machine code. `pc_samples` is what was sampled of
    it while the profile ran (sass/pc_samples.py), empty without `stalls=True`. `rank_notes` is what each rank
    noted of its clocks and collectives (record/rank_notes.py), `rank_clocks` what became of that when the ranks were
    put on one time axis (trace/rank_clocks.py). `selected` names the conditions by which rows were left out of launches
    that are still there, such as "region, time"; it is empty where launches are whole.
    """

    launches: Sequence[LaunchInfo] = ()
    devices: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    clock: ClockFit = ClockFit()
    losses: Losses = Losses()
    cost: Mapping[str, float] = field(default_factory=dict)
    locations: Mapping[str, str] = field(default_factory=dict)
    kernel_locations: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    source_hashes: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    verification: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    sensitivity: Mapping[str, Any] = field(default_factory=dict)
    pc_samples: Mapping[str, Any] = field(default_factory=dict)
    rank_notes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    rank_clocks: Mapping[str, Any] = field(default_factory=dict)
    selected: str = ""
    producer: str = "warplens"
    origin_ns: int = 0
    schema: int = TRACE_SCHEMA

    @property
    def aggregated(self) -> bool:
        """Whether spans stand for many executions: the trace has AGGREGATE_COLUMNS."""
        return self.schema >= AGGREGATE_SCHEMA

    def device(self, rank: int, number: int) -> Mapping[str, Any]:
        """The device of a rank by its number; ranks of a job may have different ones of the same number."""
        return self.devices.get(f"{rank}:{number}", self.devices.get(str(number), {}))

    @property
    def distinct_devices(self) -> list[Mapping[str, Any]]:
        """The devices, those that are alike once."""
        found: list[Mapping[str, Any]] = []
        for device in self.devices.values():
            if device not in found:
                found.append(device)
        return found

    def locations_of(self, kernel: str) -> Mapping[str, str]:
        """The source location of each region of a kernel."""
        return self.kernel_locations.get(kernel, self.locations)

    def to_json(self) -> dict[str, Any]:
        """The document as plain values. Mappings are not copied: a trace may have thousands of launches."""
        parts = {"launches": [dict(vars(info)) for info in self.launches]}
        return {**vars(self), **parts, "clock": dict(vars(self.clock)), "losses": dict(vars(self.losses))}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Meta:
        """The inverse of `to_json`; unknown keys of newer writers are ignored."""
        known = _known(cls, document)
        known["launches"] = tuple(_launch_info(entry) for entry in known.get("launches", ()))
        known["clock"] = ClockFit(**_known(ClockFit, known.get("clock", {})))
        losses = _known(Losses, known.get("losses", {}))
        known["losses"] = Losses(**losses | {"details": tuple(losses.get("details", ()))})
        return cls(**known)


def kind_indices(codes: npt.NDArray[Any], names: Sequence[str]) -> npt.NDArray[Any]:
    """Codes of kinds as indices of KINDS, whatever the order of their names in the file."""
    known = tuple(names) == KINDS[: len(names)]
    return codes if known else np.array([KINDS.index(one) for one in names], np.int8)[codes]


def joined_conditions(parts: Iterable[str]) -> str:
    """Several values of `Meta.selected` as one, each condition once."""
    return ", ".join(sorted({name for part in parts for name in part.split(", ") if name}))


def _launch_info(entry: Mapping[str, Any]) -> LaunchInfo:
    known = _known(LaunchInfo, entry)
    return LaunchInfo(**known | {name: tuple(known[name]) for name in ("grid", "block") if name in known})


def _known(cls: type, document: Mapping[str, Any]) -> dict[str, Any]:
    return {name: document[name] for name in cls.__dataclass_fields__ if name in document}  # type: ignore[attr-defined]
