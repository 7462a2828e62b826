"""Decode a capture into a trace: find each track's slots, pair the records, and place them in time by a clock fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from warplens.decode.clock.anchor_fit import ClockLines, fit_anchors
from warplens.decode.coverage import region_coverage
from warplens.decode.decoded_rows import Counter, DecodedRows, Detail, RegionTable, RowPlan
from warplens.decode.losses import collect_losses, describe
from warplens.decode.native_decoder import NativeDecoder
from warplens.decode.numpy_decoder import NumpyDecoder
from warplens.decode.track_windows import TrackWindows, read_windows
from warplens.decode.warp_lives import add_lives, silent_tracks
from warplens.errors import WarplensError
from warplens.native import load
from warplens.record.capture import Capture
from warplens.trace.arrays import dictionary_array, numpy_dtype, to_arrow
from warplens.trace.columns import LazyColumns
from warplens.trace.model import Trace
from warplens.trace.schema import COLUMNS, KINDS, LIFE, ClockFit, LaunchInfo, Meta
from warplens.weave.fixed_slots import STORE as FIXED

Int64 = npt.NDArray[np.int64]
_UNIT = 1 << 17
"""Units of the clock fit are numbered launch * _UNIT + SM."""


@dataclass(frozen=True)
class _TrackColumns:
    """Per-track columns of the whole capture, in launch order."""

    launch: Int64
    device: Int64
    kernel: Int64
    block: Int64
    warp: Int64
    lane: Int64
    sm: Int64
    row_start: Int64


def decode(capture: Capture, *, native: bool = True) -> Trace:
    """Decode every launch of a capture. Losses are counted in the trace's meta and never raise."""
    library = load() if native else None
    decoder = NativeDecoder(library) if library else NumpyDecoder()
    mhz = capture.device.clock_mhz
    ran_on = [launch.device or capture.device for launch in capture.launches]
    views = [read_windows(launch, on.clock_mhz) for launch, on in zip(capture.launches, ran_on, strict=True)]
    plans: list[RowPlan] = []
    row = anchor = 0
    for launch, view in zip(capture.launches, views, strict=True):
        plans.append(decoder.count(launch, view, row, anchor))
        row, anchor = int(plans[-1].row_start[-1]), int(plans[-1].anchor_start[-1])
    if row > np.iinfo(np.int32).max:
        raise WarplensError(
            f"{row} spans exceed the limit of {np.iinfo(np.int32).max}; profile fewer launches or blocks"
        )

    names = list(dict.fromkeys(chain.from_iterable(launch.regions.values() for launch in capture.launches)))
    code = {name: i for i, name in enumerate(names)}
    rows = DecodedRows.allocate(row, anchor, any(plan.with_payloads for plan in plans))
    details: list[list[Detail]] = []
    for launch, view, plan in zip(capture.launches, views, plans, strict=True):
        table = RegionTable({region: code[name] for region, name in launch.regions.items()}, len(names))
        empty = rows.counters[Counter.EMPTY_SLOTS]
        details.append(decoder.fill(launch, view, plan, table, rows))
        if launch.extra.get("store") == FIXED:  # a slot whose mark was not passed stays empty
            rows.counters[Counter.EMPTY_SLOTS] = empty
    if rows.counters[Counter.UNKNOWN_REGIONS]:
        names.append("(unknown region)")
    covered = region_coverage(views, plans, rows, decoder)
    silent = silent_tracks(capture.launches, views, plans)
    if silent.any():
        names += [LIFE] if LIFE not in names else []
        plans, rows = add_lives(views, plans, rows, silent, names.index(LIFE))

    kernels = list(dict.fromkeys(launch.kernel for launch in capture.launches))
    tracks = _tracks(capture, views, plans, kernels)
    lines = _fit(views, plans, rows, mhz)
    unit = tracks.launch * _UNIT + tracks.sm
    zero = _first_record(tracks, unit, rows, lines)
    at = lines.find(unit)
    knots = (lines.knot_clock, lines.knot_ns - zero, lines.slope)
    start_ns, dur_ns = decoder.place(tracks.row_start, lines.first[at], lines.count[at], knots, rows)
    earlier = int(start_ns.min(initial=0))
    if earlier:  # a clock stepped back to before its track's first row
        start_ns, zero = start_ns - earlier, zero + earlier

    meta = Meta(
        launches=_launch_infos(capture, views, lines, zero, covered),
        devices={str(device.index): asdict(device) for device in (capture.device, *ran_on)},
        clock=_clock_summary(lines),
        losses=collect_losses(views, rows, [describe(*e) for e in zip(capture.launches, views, details, strict=True)]),
        cost=dict(capture.cost),
        locations=_locations(capture),
        producer=capture.producer,
        origin_ns=lines.base_ns + zero,
    )
    return Trace(_columns(capture.rank, tracks, rows, start_ns, dur_ns, names, kernels), meta)


def _tracks(capture: Capture, views: list[TrackWindows], plans: list[RowPlan], kernels: list[str]) -> _TrackColumns:
    sizes = [len(view) for view in views]

    def stack(parts: list[Int64]) -> Int64:
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    return _TrackColumns(
        launch=np.repeat(np.arange(len(views)), sizes),
        device=np.repeat(np.array([(one.device or capture.device).index for one in capture.launches], np.int64), sizes),
        kernel=np.repeat(np.array([kernels.index(launch.kernel) for launch in capture.launches], np.int64), sizes),
        block=stack([view.block for view in views]),
        warp=stack([view.warp for view in views]),
        lane=stack([view.lane for view in views]),
        sm=stack([view.sm for view in views]),
        row_start=np.append(stack([plan.row_start[:-1] for plan in plans]), plans[-1].row_start[-1] if plans else 0),
    )


def _fit(views: list[TrackWindows], plans: list[RowPlan], rows: DecodedRows, nominal_mhz: float) -> ClockLines:
    """Fit the clocks to all anchors: each track's start, exit, and anchor records within its lifetime."""
    unit: list[Int64] = []
    clocks: list[Int64] = []
    times: list[Int64] = []
    for number, (view, plan) in enumerate(zip(views, plans, strict=True)):
        track = np.repeat(np.arange(len(view)), np.diff(plan.anchor_start))
        inner = slice(int(plan.anchor_start[0]), int(plan.anchor_start[-1]))
        ns = rows.anchor_ns[inner]
        good = (ns >= view.start_ns[track]) & (~view.exited[track] | (ns <= view.exit_ns[track]))
        units = number * _UNIT + view.sm
        unit += [units, units[view.exited], units[track[good]]]
        clocks += [view.start_clock, view.exit_clock[view.exited], rows.anchor_clock[inner][good]]
        times += [view.start_ns, view.exit_ns[view.exited], ns[good]]
    if not unit:
        return fit_anchors(*(np.empty(0, np.int64),) * 4)
    units_all = np.concatenate(unit)
    return fit_anchors(units_all, units_all // _UNIT, np.concatenate(clocks), np.concatenate(times), nominal_mhz)


def _first_record(tracks: _TrackColumns, unit: Int64, rows: DecodedRows, lines: ClockLines) -> int:
    """The time of the earliest row in ns since the fit's base, from the first row of each track."""
    used = np.flatnonzero(np.diff(tracks.row_start))
    if not len(used):
        return 0
    return int(np.floor(lines(unit[used], rows.start[tracks.row_start[used]]).min() + 0.5))


def _clock_summary(lines: ClockLines) -> ClockFit:
    if not len(lines.unit):
        return ClockFit()
    p50, p99 = np.percentile(lines.residual_ns, [50, 99])
    slowest, mean, fastest = lines.mhz()
    return ClockFit(
        residual_p50_ns=float(p50),
        residual_p99_ns=float(p99),
        residual_max_ns=float(lines.residual_ns.max()),
        mhz_min=slowest,
        mhz_mean=mean,
        mhz_max=fastest,
        anchors=len(lines.residual_ns),
        sms=len(np.unique(lines.unit % _UNIT)),
        clocks=max(len(np.unique(lines.first[lines.unit // _UNIT == launch])) for launch in set(lines.unit // _UNIT)),
        segments=len(lines.slope),
        step_ns=lines.step_ns,
        method=lines.method,
    )


def _launch_infos(
    capture: Capture, views: list[TrackWindows], lines: ClockLines, zero: int, covered: list[dict[str, float]]
) -> tuple[LaunchInfo, ...]:
    infos = []
    for number, (launch, view) in enumerate(zip(capture.launches, views, strict=True)):
        units = number * _UNIT + view.sm
        begin, end = lines(units, view.start_clock), lines(units, view.exit_clock)
        infos.append(
            LaunchInfo(
                launch=number,
                kernel=launch.kernel,
                rank=capture.rank,
                device=(launch.device or capture.device).index,
                grid=launch.grid,
                block=launch.block,
                clock=launch.clock,
                begin_ns=int(begin.min()) - zero if len(view) else 0,
                end_ns=int(end.max()) - zero if len(view) else 0,
                tracks=len(view),
                busy_cycles=int((view.exit_clock - view.start_clock).sum()),
                busy_ns=int((end - begin).sum()),
                covered=covered[number],
                cost=dict(launch.cost),
                extra=dict(launch.extra),
            )
        )
    return tuple(infos)


def _locations(capture: Capture) -> dict[str, str]:
    """Source locations by region name."""
    return {
        launch.regions[region]: text
        for launch in capture.launches
        for region, text in launch.locations.items()
        if region in launch.regions
    }


def _columns(
    rank: int,
    tracks: _TrackColumns,
    rows: DecodedRows,
    start_ns: Int64,
    dur_ns: Int64,
    names: list[str],
    kernels: list[str],
) -> LazyColumns:
    """Columns that are built from the decoder's arrays on first use; per-track ones are repeated for each row then.

    They do not reference the capture, so that its raw bytes can be freed.
    """
    n = len(rows.start)
    counts = np.diff(tracks.row_start)

    def spread(name: str, values: Int64) -> pa.Array:
        return to_arrow(np.repeat(values.astype(numpy_dtype(COLUMNS[name])), counts))

    def named(name: str, codes: npt.NDArray[np.integer], words: list[str] | tuple[str, ...]) -> pa.Array:
        return dictionary_array(codes.astype(numpy_dtype(COLUMNS[name]), copy=False), words)

    def at_rows(values: Int64) -> Callable[[Int64], Int64]:
        return lambda wanted: values[np.searchsorted(tracks.row_start, wanted, side="right") - 1]

    along = {"launch": tracks.launch, "device": tracks.device, "kernel": tracks.kernel, "sm": tracks.sm}
    along |= {"block": tracks.block, "warp": tracks.warp, "lane": tracks.lane, "track": np.arange(len(counts))}
    along["rank"] = np.full(len(counts), rank)
    takers = {name: at_rows(values) for name, values in along.items()}

    def value() -> pa.Array:
        if not len(rows.value):
            return pa.nulls(n, pa.float64())
        return to_arrow(rows.value, missing=rows.has_value == 0)

    return LazyColumns(
        n,
        {
            **{name: partial(spread, name, values) for name, values in along.items()},
            "kernel": lambda: named("kernel", np.repeat(tracks.kernel, counts), kernels),
            "region": lambda: named("region", rows.region, names),
            "kind": lambda: named("kind", rows.kind, KINDS),
            "depth": lambda: to_arrow(rows.depth),
            "parent": lambda: to_arrow(rows.parent),
            "start_ns": lambda: to_arrow(start_ns),
            "dur_ns": lambda: to_arrow(dur_ns),
            "start_cycle": lambda: to_arrow(rows.start),
            "dur_cycles": lambda: to_arrow(rows.duration),
            "value": value,
            "open": lambda: to_arrow(rows.open.view(bool)),
        },
        takers,
    )
