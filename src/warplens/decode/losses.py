"""Count lost and malformed records, and describe the first few in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice

from warplens.decode.decoded_rows import MAX_DETAILS, Counter, DecodedRows, Detail
from warplens.decode.track_windows import TrackWindows
from warplens.record.capture import Launch
from warplens.trace.schema import Losses


def collect_losses(views: Sequence[TrackWindows], rows: DecodedRows, details: Sequence[list[str]]) -> Losses:
    """Sum the losses of all launches. `details` are sentences about the first few malformed records."""
    written = sum(int(view.written.sum()) for view in views)
    kept = sum(int(view.slots.sum()) for view in views)
    counted = {counter.name.lower(): int(rows.counters[counter]) for counter in Counter}
    return Losses(
        records_written=written,
        records_kept=kept,
        records_lost=written - kept,
        most_written=max((int(view.written.max(initial=0)) for view in views), default=0),
        tracks=sum(len(view) for view in views),
        tracks_full=sum(int((view.written > view.slots).sum()) for view in views),
        tracks_unwritten=sum(view.unwritten for view in views),
        tracks_without_exit=sum(int((~view.exited).sum()) for view in views),
        tracks_invalid=sum(view.invalid for view in views),
        details=tuple(islice(chain.from_iterable(details), MAX_DETAILS)),
        **counted,
    )


def describe(launch: Launch, view: TrackWindows, details: Sequence[Detail]) -> list[str]:
    """One sentence for each malformed end, and one if a ring has no exit."""
    sentences = [_sentence(launch, view, detail) for detail in details]
    if launch.full == "ring" and not view.exited.all():
        sentences.append(
            f"{launch.kernel}: a warp never exited; the order and loss of its ring are inferred from the clock"
        )
    return sentences


def _sentence(launch: Launch, view: TrackWindows, detail: Detail) -> str:
    region = _name(launch, detail.region)
    where = f"{launch.kernel} block {view.block[detail.track]} warp {view.warp[detail.track]} record {detail.slot}"
    if detail.what is Counter.MISMATCHED_ENDS:
        return f"{where}: end of {region} while {_name(launch, detail.innermost)} is innermost"
    return f"{where}: end of {region} without a begin"


def _name(launch: Launch, region: int) -> str:
    return repr(launch.regions.get(region, f"region {region}"))
