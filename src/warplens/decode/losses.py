"""Count lost and malformed records, and describe the first few in sentences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from warplens.decode.decoded_rows import MAX_DETAILS, Counter, DecodedRows, Detail
from warplens.decode.track_windows import TrackWindows
from warplens.record.capture import Launch
from warplens.record.layout import KIND_BITS, SLOT_BYTES, Kind
from warplens.trace.schema import Losses
from warplens.weave.fixed_slots import STORE as FIXED
from warplens.wording import plural


def collect_losses(windows: TrackWindows, rows: DecodedRows, details: Sequence[str]) -> Losses:
    """Sum the losses of all launches. `details` are sentences about the first few malformed records."""
    written, kept = int(windows.written.sum()), int(windows.slots.sum())
    counted = {counter.name.lower(): int(rows.counters[counter]) for counter in Counter}
    return Losses(
        records_written=written,
        records_kept=kept,
        records_lost=written - kept,
        most_written=int(windows.written.max(initial=0)),
        tracks=len(windows),
        tracks_full=int((windows.written > windows.slots).sum()),
        tracks_unwritten=windows.unwritten,
        tracks_without_exit=int((~windows.exited).sum()),
        tracks_invalid=windows.invalid,
        details=tuple(details[:MAX_DETAILS]),
        **counted,
    )


def empty_fixed_slots(launches: Sequence[Launch], windows: TrackWindows) -> int:
    """The empty slots of launches whose marks have fixed slots: a mark that was not passed leaves its slot empty."""
    count = 0
    for launch, first, end in zip(launches, windows.bounds[:-1], windows.bounds[1:], strict=True):
        if launch.extra.get("store") != FIXED:
            continue
        words = np.ascontiguousarray(launch.raw).view("<u8")
        start, slots = windows.offset[first:end] // SLOT_BYTES, windows.slots[first:end]
        for slot in range(int(slots.max(initial=0))):
            kinds = words[start[slots > slot] + slot] & np.uint64((1 << KIND_BITS) - 1)
            count += int((kinds == Kind.EMPTY).sum())
    return count


def describe(launches: Sequence[Launch], windows: TrackWindows, details: Sequence[Detail]) -> list[str]:
    """One sentence for each malformed record, and one for each launch with a ring without an exit, in launch order."""
    of = np.searchsorted(windows.bounds, [detail.track for detail in details], side="right") - 1
    sentences = [
        (number, _sentence(launches[number], windows, detail))
        for number, detail in zip(of.tolist(), details, strict=True)
    ]
    for number in np.unique(windows.launch[~windows.exited]).tolist():
        launch = launches[number]
        if launch.full == "ring":
            text = f"{launch.kernel}: a warp never exited; the order and loss of its ring are inferred from the clock"
            sentences.append((number, text))
    return [text for _, text in sorted(sentences, key=lambda sentence: sentence[0])]


def _sentence(launch: Launch, windows: TrackWindows, detail: Detail) -> str:
    region = _name(launch, detail.region)
    where = (
        f"{launch.kernel} block {windows.block[detail.track]} warp {windows.warp[detail.track]} record {detail.slot}"
    )
    if detail.what is Counter.MISMATCHED_ENDS:
        return f"{where}: end of {region} while {_name(launch, detail.innermost)} is innermost"
    if detail.what is Counter.CLOCK_AMBIGUOUS:
        hidden = plural(detail.innermost, "record")
        return f"{where}: how often the short clock wrapped from here on is unknown; {hidden} not shown; add anchors"
    if detail.what is Counter.DAMAGED_RECORDS:
        return f"{where}: the clock is outside the warp's lifetime; the record is not shown"
    return f"{where}: end of {region} without a begin"


def _name(launch: Launch, region: int) -> str:
    return repr(launch.regions.get(region, f"region {region}"))
