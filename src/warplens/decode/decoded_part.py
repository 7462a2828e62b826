"""Some launches of a capture, decoded up to the point where the clocks of all launches are needed.

A profile decodes its launches part by part while the program runs. Which launches share a part changes nothing in the
rows: `decode/part_store.py` puts parts together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from warplens.decode.aggregate_tracks import ExpandedLaunch, expand
from warplens.decode.barrier_edges import TrackPlaces, invalid_words, pair_events
from warplens.decode.clock.short_counters import cut, widen
from warplens.decode.clock.track_anchors import TrackAnchors
from warplens.decode.coverage import region_coverage
from warplens.decode.decoded_rows import MAX_DETAILS, Counter, DecodedRows, Detail, RegionTable, RowPlan
from warplens.decode.losses import empty_fixed_slots
from warplens.decode.native_decoder import NativeDecoder
from warplens.decode.numpy_decoder import NumpyDecoder
from warplens.decode.track_windows import TrackWindows, read_windows
from warplens.decode.warp_lives import add_lives, silent_tracks
from warplens.decode.work_spans import add_work
from warplens.errors import WarplensError
from warplens.native import load
from warplens.record.capture import Device, Launch

PER_ROW = ("region", "kind", "depth", "parent", "start", "duration", "open", "value", "has_value")
PER_ANCHOR = ("anchor_clock", "anchor_ns")
Decoder = NativeDecoder | NumpyDecoder
HeadersRead = Callable[[Sequence[Launch], TrackAnchors], None]
"""Is told the launches as they are decoded, and their tracks, of which the anchor records are not there yet."""
_MOST_ROWS = np.iinfo(np.int32).max
UNKNOWN, LIVES = -1, -2
"""In `rows.region`: an id without a name, and the life of a warp without records; other numbers index `names`."""


@dataclass(frozen=True)
class DecodedPart:
    """The rows of some launches in cycles. Rows, tracks and launches count from the part's first."""

    sources: Sequence[Launch]
    """The launches as they came from the device."""
    launches: Sequence[Launch]
    """The launches as they were decoded: those of aggregates are expanded to records."""
    expanded: Sequence[ExpandedLaunch | None]
    names: Sequence[str]
    windows: TrackWindows
    plan: RowPlan
    rows: DecodedRows
    covered: Sequence[dict[str, float]]
    details: Sequence[Detail]

    @property
    def is_clean(self) -> bool:
        """Whether it has nothing that is counted for all of its launches together, so that it may be cut."""
        return not (self.rows.counters.any() or self.windows.unwritten or self.windows.invalid or self.details)

    def cut(self, begin: int, end: int) -> DecodedPart:
        """Some consecutive launches of a clean part."""
        plan, windows = self.plan, self.windows
        tracks = slice(*windows.bounds[[begin, end]].tolist())
        edges = slice(tracks.start, tracks.stop + 1)
        first, last = plan.row_start[[tracks.start, tracks.stop]].tolist()
        first_anchor, last_anchor = plan.anchor_start[[tracks.start, tracks.stop]].tolist()
        columns = {name: getattr(self.rows, name)[first:last] for name in PER_ROW}
        columns |= {name: getattr(self.rows, name)[first_anchor:last_anchor] for name in PER_ANCHOR}
        parent = columns["parent"]
        columns["parent"] = np.where(parent >= 0, parent - first, parent).astype(np.int32)
        names = region_names(self.launches[begin:end])
        columns["region"] = renamed(columns["region"], self.names, {name: at for at, name in enumerate(names)})
        return DecodedPart(
            self.sources[begin:end],
            self.launches[begin:end],
            self.expanded[begin:end],
            names,
            replace(windows.part(tracks), bounds=windows.bounds[begin : end + 1] - tracks.start),
            RowPlan(plan.row_start[edges] - first, plan.anchor_start[edges] - first_anchor, plan.holds[tracks]),
            replace(self.rows, **columns),
            self.covered[begin:end],
            (),
        )


def find_decoder(native: bool = True, threads: int | None = None) -> Decoder:
    """The decoder in C with that many threads, or one per core; without a compiler, the numpy one."""
    library = load() if native else None
    return NativeDecoder(library, threads) if library else NumpyDecoder()


def decode_part(
    sources: Sequence[Launch], device: Device, decoder: Decoder, read: HeadersRead = lambda launches, source: None
) -> DecodedPart:
    """Decode launches; `device` ran those that name none. `read` is called when their headers are read."""
    expanded = [expand(launch) for launch in sources]
    widened = [widen(launch, launch.device or device) for launch in sources]
    launches = [
        (one or wide).launch if one or wide else launch  # type: ignore[union-attr]
        for one, wide, launch in zip(expanded, widened, sources, strict=True)
    ]
    windows = read_windows(launches, [(launch.device or device).clock_mhz for launch in launches])
    windows, undecided, hidden = cut(windows, widened)
    plan = decoder.count(launches, windows)
    check_rows(int(plan.row_start[-1]))
    names, tables = region_tables(launches)
    rows = DecodedRows.allocate(int(plan.row_start[-1]), int(plan.anchor_start[-1]), plan.with_payloads)
    read(launches, TrackAnchors(windows, plan, rows))
    details = decoder.fill(launches, windows, plan, tables, rows)
    rows.counters[Counter.EMPTY_SLOTS] -= empty_fixed_slots(launches, windows)
    rows.drop(invalid_words(rows))
    rows.counters[Counter.DAMAGED_RECORDS] += sum(one.damaged for one in expanded if one)
    rows.counters[Counter.CLOCK_AMBIGUOUS] += len(undecided)
    rows.counters[Counter.DAMAGED_RECORDS] += hidden + sum(one.unreadable for one in widened if one)
    rows.counters[Counter.EMPTY_SLOTS] -= sum(one.emptied for one in widened if one)
    details = [*undecided, *details][:MAX_DETAILS]
    rows, plan = rows.without_damaged(plan)
    plan, rows = add_work(launches, windows, plan, rows, names)
    covered = region_coverage(windows, plan, rows, decoder)
    silent = silent_tracks(launches, windows, plan)
    if silent.any():
        plan, rows = add_lives(windows, plan, rows, silent, LIVES)
    pair_events(rows, TrackPlaces(windows.launch, windows.block, windows.warp, plan.row_start))
    return DecodedPart(sources, launches, expanded, names, windows, plan, rows, covered, details)


def check_rows(rows: int) -> None:
    """Refuse more rows than a column of row numbers can name."""
    if rows > _MOST_ROWS:
        raise WarplensError(f"{rows} spans exceed the limit of {_MOST_ROWS}; profile fewer launches or blocks")


def _distinct_regions(launches: Sequence[Launch]) -> dict[int, Mapping[int, str]]:
    return {id(launch.regions): launch.regions for launch in launches}


def region_names(launches: Sequence[Launch]) -> list[str]:
    """The names of the regions of launches, in the order of the launches."""
    return list(dict.fromkeys(name for regions in _distinct_regions(launches).values() for name in regions.values()))


def renamed(region: npt.NDArray[np.int32], names: Sequence[str], codes: Mapping[str, int]) -> npt.NDArray[np.int32]:
    """Regions that index `names`, as the numbers that `codes` has for those. UNKNOWN and LIVES stay."""
    known = [codes.get(name, UNKNOWN) for name in names]
    if known == list(range(len(known))):
        return region
    # The negative numbers index the table from its end.
    return np.array([*known, LIVES, UNKNOWN], np.int32)[region]


def region_tables(launches: Sequence[Launch]) -> tuple[list[str], list[RegionTable]]:
    """The names of all regions, and for each launch the table of its region ids. Equal launches share a table."""
    distinct = _distinct_regions(launches)
    names = {name: at for at, name in enumerate(region_names(launches))}
    shared: dict[tuple[tuple[int, int], ...], RegionTable] = {}
    tables: dict[int, RegionTable] = {}
    for key, regions in distinct.items():
        codes = {region: names[name] for region, name in regions.items()}
        content = tuple(codes.items())
        if content not in shared:
            shared[content] = RegionTable(codes, UNKNOWN)
        tables[key] = shared[content]
    return list(names), [tables[id(launch.regions)] for launch in launches]
