"""Merge several traces, such as ranks or separately profiled launches, on one time axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from warplens.errors import WarplensError
from warplens.sass.pc_samples import PcSampling
from warplens.trace.arrays import run_starts, to_arrow
from warplens.trace.model import Trace, empty_table
from warplens.trace.rank_placement import RankPlacement, place_ranks
from warplens.trace.schema import ClockFit, LaunchInfo, Losses, Meta, joined_conditions


@dataclass(frozen=True)
class TimeAxis:
    """The one time axis of several traces: where its zero is on the first rank's clock, and how launches move."""

    origin_ns: int
    placement: RankPlacement

    @staticmethod
    def of(metas: Sequence[Meta]) -> TimeAxis:
        """Ranks that noted their clocks are placed by these (`place_ranks`), others by their devices' globaltimers."""
        placement = place_ranks(metas)
        begins = [
            info.begin_ns + meta.origin_ns + placement.moves.get((info.rank, info.launch), 0)
            for meta in metas
            for info in meta.launches
        ]
        return TimeAxis(min(begins) if placement.moves and begins else min(meta.origin_ns for meta in metas), placement)

    def shifts(self, meta: Meta) -> dict[tuple[int, int], int]:
        """By rank and number, how much later each launch of a trace is on this axis than on the trace's own."""
        usual = meta.origin_ns - self.origin_ns
        keys = ((info.rank, info.launch) for info in meta.launches)
        return {key: usual + self.placement.moves.get(key, 0) for key in keys}


def merge(traces: Sequence[Trace], axis: TimeAxis | None = None) -> Trace:
    """Concatenate the rows on one time axis, that of these traces or a given one, and renumber parents and tracks."""
    if not traces:
        return Trace(empty_table())
    if len(traces) == 1 and axis is None:
        return traces[0]
    if len({trace.aggregated for trace in traces}) > 1:
        raise WarplensError("a trace in mode='aggregate' cannot be merged with one of records: name one of them")
    axis = axis or TimeAxis.of([trace.meta for trace in traces])
    tables = []
    rows = tracks = 0
    for trace in traces:
        parent, arrival = trace.numpy("parent"), trace.numpy("released_by")
        own, track = np.unique(trace.numpy("track"), return_inverse=True)
        tables.append(
            _with(
                trace.spans,
                parent=np.where(parent >= 0, parent + rows, -1).astype(np.int32),
                released_by=np.where(arrival >= 0, arrival + rows, arrival).astype(np.int32),
                track=(track + tracks).astype(np.int32),
                start_ns=placed(trace, axis),
            )
        )
        rows += len(trace)
        tracks += len(own)
    merged = merge_meta([trace.meta for trace in traces], axis)
    return Trace(pa.concat_tables(tables).unify_dictionaries().combine_chunks(), merged)


def placed(trace: Trace, axis: TimeAxis) -> npt.NDArray[np.int64]:
    """The begin of each row on the common time axis."""
    shifts = axis.shifts(trace.meta)
    heads = run_starts(trace.numpy("rank").astype(np.int64) << 32 | trace.numpy("launch"))
    rank, launch = trace.numpy("rank")[heads].tolist(), trace.numpy("launch")[heads].tolist()
    usual = trace.meta.origin_ns - axis.origin_ns
    by = np.array([shifts.get(key, usual) for key in zip(rank, launch, strict=True)], np.int64)
    return np.asarray(trace.numpy("start_ns") + np.repeat(by, np.diff(np.append(heads, len(trace)))))


def _with(table: pa.Table, **columns: np.ndarray) -> pa.Table:
    for name, values in columns.items():
        table = table.set_column(table.schema.get_field_index(name), name, to_arrow(values))
    return table


def rebase(trace: Trace, origin_ns: int, launches: Sequence[int]) -> Trace:
    """The same trace with times that count from `origin_ns` of the globaltimer, and with other numbers for its launches
    in the order of `meta.launches`."""
    shift = trace.meta.origin_ns - origin_ns
    numbers = np.zeros(max((info.launch for info in trace.meta.launches), default=0) + 1, np.int32)
    numbers[[info.launch for info in trace.meta.launches]] = launches
    table = _with(
        trace.spans, start_ns=trace.numpy("start_ns") + shift, launch=numbers[trace.numpy("launch").astype(np.int64)]
    )
    infos = [
        replace(_shifted(info, shift), launch=number)
        for info, number in zip(trace.meta.launches, launches, strict=True)
    ]
    return Trace(table, replace(trace.meta, launches=tuple(infos), origin_ns=origin_ns))


def merge_meta(metas: Sequence[Meta], axis: TimeAxis) -> Meta:
    """The documents of several traces as the one document of their merged trace."""
    return Meta(
        launches=tuple(
            _shifted(info, shifts[info.rank, info.launch])
            for meta, shifts in ((meta, axis.shifts(meta)) for meta in metas)
            for info in meta.launches
        ),
        devices=_merge_devices(metas),
        clock=_merge_clock([meta.clock for meta in metas]),
        losses=_merge_losses([meta.losses for meta in metas]),
        cost={key: value for meta in metas for key, value in meta.cost.items()},
        locations={key: value for meta in metas for key, value in meta.locations.items()},
        kernel_locations=_merge_locations(metas),
        source_hashes={key: value for meta in metas for key, value in meta.source_hashes.items()},
        notes=_merge_notes([meta.notes for meta in metas]),
        verification={key: value for meta in metas for key, value in meta.verification.items()},
        pc_samples=_merge_samples(metas),
        rank_clocks=_merge_ranks(metas, axis),
        selected=joined_conditions(meta.selected for meta in metas),
        producer=metas[0].producer,
        origin_ns=axis.origin_ns,
        schema=metas[0].schema,
    )


def _merge_devices(metas: Sequence[Meta]) -> dict[str, Mapping[str, Any]]:
    """The devices by number; where ranks have different ones of a number, by rank and number."""
    found: dict[str, Mapping[str, Any]] = {}
    for meta in metas:
        for key, device in meta.devices.items():
            if found.setdefault(key, device) != device:
                found |= {f"{rank}:{key}": device for rank in {info.rank for info in meta.launches}}
    return found


def _merge_samples(metas: Sequence[Meta]) -> dict[str, Any]:
    sampled = [PcSampling.from_json(meta.pc_samples) for meta in metas if meta.pc_samples]
    return PcSampling.merged(sampled).to_json() if sampled else {}


def _merge_ranks(metas: Sequence[Meta], axis: TimeAxis) -> Mapping[str, Any]:
    """The clocks of the ranks; parts of a trace that was placed before bring theirs along."""
    if not axis.placement.moves:
        return next((meta.rank_clocks for meta in metas if meta.rank_clocks), {})
    clocks = axis.placement.clocks
    calls = [call._replace(begin_ns=call.begin_ns - axis.origin_ns) for call in clocks.calls]
    return replace(clocks, calls=calls).to_json()


def _merge_locations(metas: Sequence[Meta]) -> dict[str, dict[str, str]]:
    """The locations of each kernel; traces of one kernel alone have only the common ones."""
    out: dict[str, dict[str, str]] = {}
    for meta in metas:
        for kernel in dict.fromkeys(info.kernel for info in meta.launches):
            out.setdefault(kernel, {}).update(meta.locations_of(kernel))
    return out if len(out) > 1 else {}


def _merge_notes(notes: Sequence[Mapping[str, Sequence[str]]]) -> dict[str, tuple[str, ...]]:
    kernels = dict.fromkeys(kernel for each in notes for kernel in each)
    return {name: tuple(dict.fromkeys(text for each in notes for text in each.get(name, ()))) for name in kernels}


def _shifted(info: LaunchInfo, shift: int) -> LaunchInfo:
    return replace(info, begin_ns=info.begin_ns + shift, end_ns=info.end_ns + shift)


def _merge_losses(losses: Sequence[Losses]) -> Losses:
    counts = [name for name in asdict(losses[0]) if name not in ("details", "most_written")]
    return Losses(
        **{name: sum(getattr(each, name) for each in losses) for name in counts},
        most_written=max(each.most_written for each in losses),
        details=tuple(text for each in losses for text in each.details),
    )


def _merge_clock(clocks: Sequence[ClockFit]) -> ClockFit:
    """The largest error and the full range of clock rates, which hold for every part."""
    worst = max(clocks, key=lambda clock: clock.residual_p99_ns)
    seen = [clock for clock in clocks if clock.anchors] or list(clocks)
    anchors = sum(clock.anchors for clock in clocks)
    return replace(
        worst,
        residual_max_ns=max(clock.residual_max_ns for clock in clocks),
        mhz_min=min(clock.mhz_min for clock in seen),
        mhz_mean=sum(clock.mhz_mean * clock.anchors for clock in seen) / anchors if anchors else worst.mhz_mean,
        mhz_max=max(clock.mhz_max for clock in seen),
        mhz_error=max(clock.mhz_error for clock in seen),
        anchors=anchors,
        segments=sum(clock.segments for clock in clocks),
        gap_ns=max(clock.gap_ns for clock in clocks),
        gap_error_ns=max(clock.gap_error_ns for clock in clocks),
        gap_error_p99_ns=max(clock.gap_error_p99_ns for clock in clocks),
    )
