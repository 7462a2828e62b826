"""The decoder of captures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from warplens.decode.aggregate_tracks import AggregateColumns
from warplens.decode.barrier_edges import TrackPlaces, released_by
from warplens.decode.clock.anchor_fit import UNIT, UNIT_BITS, ClockLines
from warplens.decode.clock.anchor_gaps import SHORT_NS, AnchorGaps, anchor_gaps
from warplens.decode.clock.launch_fit import fit_launches
from warplens.decode.clock.track_anchors import TrackAnchors
from warplens.decode.decoded_part import LIVES, UNKNOWN, DecodedPart, Decoder, find_decoder
from warplens.decode.decoded_rows import Counter, DecodedRows, RowPlan
from warplens.decode.launch_times import LaunchTimes, launch_times
from warplens.decode.losses import collect_losses, describe
from warplens.decode.part_store import PartStore, decode_all
from warplens.decode.steady_columns import STEADY, SteadyColumns
from warplens.decode.track_windows import TrackWindows
from warplens.errors import CaptureError
from warplens.record.capture import BETWEEN, CODE, COUNTER_BITS, FULL, RATE_ERROR, Capture, Device, Launch
from warplens.record.launch_extra import wrong_extra
from warplens.trace.arrays import dictionary_array, numpy_dtype, to_arrow
from warplens.trace.barrier_rows import NO_RECORD
from warplens.trace.columns import Columns, LazyColumns
from warplens.trace.model import Trace
from warplens.trace.schema import AGGREGATE_SCHEMA, COLUMNS, LIFE, ClockFit, LaunchInfo, Meta

Int64 = npt.NDArray[np.int64]
UNKNOWN_REGION = "(unknown region)"
_FEW_TRACKS = 1 << 14
"""The clocks of up to so many are fitted in less time than it takes to start a thread, or soon after. A program that
ends cannot start one any more."""


@dataclass(frozen=True)
class _TrackColumns:
    """Columns of the tracks of the whole capture, in launch order; `devices` and `kernels` are those of each launch."""

    launch: Int64
    devices: Int64
    kernels: Int64
    row_start: Int64


def decode_capture(capture: Capture, *, native: bool, decoded: PartStore | None) -> Trace:
    """Decode every launch of a capture; see `warplens.decode.decode`."""
    decoder = find_decoder(native)
    part, source, fitted = _decode_rows(capture, decoder, decoded or PartStore())
    windows, plan, rows, launches = part.windows, part.plan, part.rows, part.launches
    names = _named(part)
    ran_on = _devices(capture, launches)
    kernels = list(dict.fromkeys(launch.kernel for launch in launches))
    tracks = _tracks(ran_on, launches, windows, plan, kernels)
    places = TrackPlaces(tracks.launch, windows.block, windows.warp, plan.row_start)
    losses = collect_losses(windows, rows, describe(launches, windows, part.details))
    told = _told(capture, launches)
    extras = _extras(told)
    lines = fitted()
    at = lines.of_tracks(source.units)
    zero = _first_record(tracks, rows, lines, at, decoder)
    start_ns, dur_ns = decoder.place(tracks.row_start, at, lines, zero, rows)
    earlier = int(start_ns.min(initial=0))
    if earlier:  # a clock stepped back to before its track's first row
        start_ns, zero = start_ns - earlier, zero + earlier

    times = launch_times(windows, lambda tracks, clock: decoder.times(lines, at[tracks], clock))
    meta = Meta(
        launches=_launch_infos(replace(capture, launches=told), ran_on, times, zero, part.covered, extras),
        devices={str(device.index): asdict(device) for device in dict.fromkeys((capture.device, *ran_on))},
        clock=_clock_summary(lines, _gaps(launches, source, times, lines), _short_clock_error(launches)),
        losses=losses,
        cost=dict(capture.cost),
        locations=_locations(capture.launches),
        kernel_locations=_kernel_locations(capture.launches),
        producer=capture.producer,
        origin_ns=lines.base_ns + zero,
    )
    released = released_by(rows, places, start_ns, dur_ns, launches)
    columns: Columns = _columns(capture.rank, tracks, windows, rows, start_ns, dur_ns, released, names, kernels)
    if any(part.expanded):
        columns = AggregateColumns(columns, launches, part.expanded)
        meta = replace(meta, schema=AGGREGATE_SCHEMA)
    trace = Trace(columns, meta)
    if decoded is not None and part.sources is decoded.sources and not any(part.expanded):
        trace.encoded = decoded.encoded  # no launch was left out, so rows and launches have the numbers they had
    return trace


def _decode_rows(
    capture: Capture, decoder: Decoder, known: PartStore
) -> tuple[DecodedPart, TrackAnchors, Callable[[], ClockLines]]:
    """The rows, and what fits the clocks. Where no anchor is among the records, another thread fits them from the
    headers meanwhile, which takes as long as decoding the records."""
    early: list[Future[ClockLines]] = []
    beside = ThreadPoolExecutor(1)

    def fit(launches: Sequence[Launch], source: TrackAnchors) -> ClockLines:
        ran_on = _devices(capture, launches)
        devices = np.array([device.index for device in ran_on], np.int64)
        return fit_launches(source, devices, np.array(_fastest_mhz(launches, ran_on)))

    def read(launches: Sequence[Launch], source: TrackAnchors) -> None:
        if len(source.windows) > _FEW_TRACKS and not source.plan.anchor_start[-1]:
            early.append(beside.submit(fit, launches, source))

    try:
        part = decode_all(capture.launches, capture.device, decoder, known, read)
    finally:
        beside.shutdown(wait=False)
    source = TrackAnchors(part.windows, part.plan, part.rows)
    return part, source, early[0].result if early else partial(fit, part.launches, source)


def _devices(capture: Capture, launches: Sequence[Launch]) -> list[Device]:
    """The device that each launch ran on."""
    return [launch.device or capture.device for launch in launches]


def _named(part: DecodedPart) -> list[str]:
    """The names of all regions in the order of their codes; regions without a name of their own come last."""
    names, region = list(part.names), part.rows.region
    if part.rows.counters[Counter.UNKNOWN_REGIONS]:
        region[region == UNKNOWN] = len(names)
        names.append(UNKNOWN_REGION)
    lives = region == LIVES
    if lives.any():
        names += [LIFE] if LIFE not in names else []
        region[lives] = names.index(LIFE)
    return names


def _tracks(
    ran_on: Sequence[Device], launches: Sequence[Launch], windows: TrackWindows, plan: RowPlan, kernels: list[str]
) -> _TrackColumns:
    code = {kernel: at for at, kernel in enumerate(kernels)}
    return _TrackColumns(
        launch=windows.launch,
        devices=np.array([device.index for device in ran_on], np.int64),
        kernels=np.array([code[one.kernel] for one in launches], np.int64),
        row_start=plan.row_start,
    )


def _first_record(tracks: _TrackColumns, rows: DecodedRows, lines: ClockLines, at: Int64, decoder: Decoder) -> int:
    """The time of the earliest row in ns since the fit's base, from the first row of each track."""
    earliest = decoder.earliest(lines, at, tracks.row_start, rows)
    return 0 if earliest is None else int(np.floor(earliest + 0.5))


def _gaps(
    launches: Sequence[Launch], source: TrackAnchors, times: Sequence[LaunchTimes], lines: ClockLines
) -> list[AnchorGaps]:
    """The times without an anchor, of launches that last long enough for them to matter.

    On the CPU, one clock gives both the cycles and the ns, so nothing can go astray between two anchors.
    """
    found = []
    for number, (launch, one) in enumerate(zip(launches, times, strict=True)):
        if launch.clock != "cpu" and one.end_ns - one.begin_ns >= SHORT_NS:
            tracks = np.arange(*source.windows.bounds[number : number + 2])
            anchors = source.anchors(tracks)
            line = lines.first[lines.find(anchors.unit)]
            found.append(anchor_gaps(line, anchors.clock, anchors.ns, lines.step_ns, lines.fastest_mhz))
    return found


def _told(capture: Capture, launches: Sequence[Launch]) -> list[Launch]:
    """The launches of a capture, with what decoding found out about short clocks."""
    return [
        made if RATE_ERROR in made.extra else launch for launch, made in zip(capture.launches, launches, strict=True)
    ]


def _fastest_mhz(launches: Sequence[Launch], ran_on: Sequence[Device]) -> list[float]:
    """The maximum clock of each launch's device; 0 for GPUs that run faster than their driver says."""
    return [
        0.0 if COUNTER_BITS in launch.extra else device.clock_mhz
        for launch, device in zip(launches, ran_on, strict=True)
    ]


def _short_clock_error(launches: Sequence[Launch]) -> float:
    """The error of the rate of short clocks in MHz, which the fit does not see: its clocks start at that rate."""
    return max((float(launch.extra.get(RATE_ERROR, 0.0)) for launch in launches), default=0.0)


def _clock_summary(lines: ClockLines, gaps: Sequence[AnchorGaps], least_error: float) -> ClockFit:
    if not len(lines.unit):
        return ClockFit()
    p50, p99 = np.percentile(lines.residual_ns, [50, 99])
    slowest, mean, fastest = lines.mhz()
    launch_of = np.full(len(lines.knot_clock), -1)  # of each line, by its first knot
    launch_of[lines.first] = lines.unit >> UNIT_BITS
    return ClockFit(
        residual_p50_ns=float(p50),
        residual_p99_ns=float(p99),
        residual_max_ns=float(lines.residual_ns.max()),
        mhz_min=slowest,
        mhz_mean=mean,
        mhz_max=fastest,
        anchors=len(lines.residual_ns),
        sms=int(np.count_nonzero(np.bincount(lines.unit % UNIT))),
        clocks=int(np.bincount(launch_of[launch_of >= 0]).max()),
        segments=len(lines.slope),
        step_ns=lines.step_ns,
        method=lines.method,
        mhz_error=max(lines.mhz_error(), least_error),
        gap_ns=max((gap.longest_ns for gap in gaps), default=0.0),
        gap_error_ns=max((gap.error_ns for gap in gaps), default=0.0),
        gap_error_p99_ns=max((gap.error_p99_ns for gap in gaps), default=0.0),
    )


def _launch_infos(
    capture: Capture,
    ran_on: Sequence[Device],
    times: Sequence[LaunchTimes],
    zero: int,
    covered: Sequence[dict[str, float]],
    extras: Sequence[dict[str, Any]],
) -> tuple[LaunchInfo, ...]:
    return tuple(
        LaunchInfo(
            launch=number,
            kernel=launch.kernel,
            rank=capture.rank,
            device=device.index,
            grid=launch.grid,
            block=launch.block,
            clock=launch.clock,
            begin_ns=time.begin_ns - zero if time.tracks else 0,
            end_ns=time.end_ns - zero if time.tracks else 0,
            tracks=time.tracks,
            busy_cycles=time.busy_cycles,
            busy_ns=time.busy_ns,
            covered=share,
            cost=dict(launch.cost),
            extra=extra,
        )
        for number, (launch, device, time, share, extra) in enumerate(
            zip(capture.launches, ran_on, times, covered, extras, strict=True)
        )
    )


def _extras(launches: Sequence[Launch]) -> list[dict[str, Any]]:
    """What each launch says of itself. What it says of its regions is kept once for launches of the same kernel."""
    out = []
    told: dict[tuple[str, str], Any] = {}
    for launch in launches:
        if wrong := wrong_extra(launch.extra):
            name, expected = wrong
            problem = f"is {launch.extra[name]!r:.40}, expected {expected}"
            raise CaptureError(f"kernel {launch.kernel!r}", f"extra.{name}", problem, "capture again")
        extra = {**launch.extra, **({FULL: launch.full} if launch.full != "stop" else {})}
        if BETWEEN in extra:
            extra[BETWEEN] = sorted({launch.regions[own] for _, _, own in extra[BETWEEN]})
        for key in (CODE, BETWEEN):
            if key in extra:
                if told.get((launch.kernel, key)) == extra[key]:
                    del extra[key]
                else:
                    told[launch.kernel, key] = extra[key]
        out.append(extra)
    return out


def _locations(launches: Iterable[Launch]) -> dict[str, str]:
    """Source locations by region name."""
    return {
        launch.regions[region]: text
        for launch in launches
        for region, text in launch.locations.items()
        if region in launch.regions
    }


def _kernel_locations(launches: Sequence[Launch]) -> dict[str, dict[str, str]]:
    """The same for each kernel, where there are several: regions of different kernels may share a name."""
    by_kernel: dict[str, dict[tuple[int, int], Launch]] = {}
    for launch in launches:
        # Launches of one kernel mostly share their tables, which are then read once.
        by_kernel.setdefault(launch.kernel, {})[id(launch.regions), id(launch.locations)] = launch
    return {kernel: _locations(some.values()) for kernel, some in by_kernel.items()} if len(by_kernel) > 1 else {}


def _columns(
    rank: int,
    tracks: _TrackColumns,
    windows: TrackWindows,
    rows: DecodedRows,
    start_ns: Int64,
    dur_ns: Int64,
    released: tuple[Int64, npt.NDArray[np.int32]],
    names: list[str],
    kernels: list[str],
) -> LazyColumns:
    """Columns that are built from the decoder's arrays on first use; per-track ones are repeated for each row then.

    They do not reference the capture, so that its raw bytes can be freed.
    """
    n, edges = len(rows.start), tracks.row_start[windows.bounds]
    steady = SteadyColumns(rank, tracks.devices, windows, tracks.row_start, rows)

    of_launches = {"device": tracks.devices, "kernel": tracks.kernels}
    along: dict[str, Callable[[], Int64]] = {
        **{name: partial(of.__getitem__, tracks.launch) for name, of in of_launches.items()},
        **{name: partial(getattr, windows, name) for name in ("launch", "sm", "block", "warp", "lane")},
        "track": lambda: np.arange(len(windows)),
        "rank": lambda: np.full(len(windows), rank),
    }

    def named(name: str, codes: npt.NDArray[np.integer], words: list[str]) -> pa.Array:
        return dictionary_array(codes.astype(numpy_dtype(COLUMNS[name]), copy=False), words)

    def released_column() -> pa.Array:
        column = np.full(n, NO_RECORD, np.int32)
        column[released[0]] = released[1]
        return to_arrow(column)

    return LazyColumns(
        n,
        {
            **{name: partial(steady.column, name) for name in STEADY},
            "kernel": lambda: named("kernel", np.repeat(tracks.kernels, np.diff(edges)), kernels),
            "region": lambda: named("region", rows.region, names),
            "start_ns": lambda: to_arrow(start_ns),
            "dur_ns": lambda: to_arrow(dur_ns),
            "released_by": released_column,
        },
        {name: partial(steady.column, name) for name in STEADY},
        tracks.row_start,
        along,
    )
