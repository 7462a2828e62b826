"""Brings the records of launches to the host: launches whose memory lies side by side come with one copy."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from warplens.errors import WarplensError
from warplens.launch.arena import Range
from warplens.launch.engine import Engine
from warplens.launch.side_copy import RowCopy, Rows
from warplens.launch.thinning import EVERY_BLOCK
from warplens.launch.woven import WovenLaunch
from warplens.record.aggregate_rows import AGGREGATE
from warplens.record.capture import AUTOMATIC, BETWEEN, CODE, SAMPLED, Dim3, Launch
from warplens.record.layout import HEADER, HEADER_BYTES, SLOT_BYTES, track_stride
from warplens.weave.weaving import Selection, capacity_of


def land(launches: Sequence[WovenLaunch]) -> None:
    """Wait for launches of one engine, copy what they wrote to the host, and give their memory back."""
    engine = launches[0].engine
    with engine.lib.inside(engine.context):
        try:
            start = time.perf_counter()
            for last in {launch.stream: launch for launch in launches}.values():
                engine.lib.wait(last.event)  # those before it on the same stream are over then
            waited = time.perf_counter()
            _bring_home(engine, launches, (waited - start) / len(launches), waited)
        except WarplensError as problem:
            _fail(launches, problem)
        except Exception as error:  # in the collector's thread nobody would hear of it
            _fail(launches, WarplensError(f"the records of {launches[0].kernel.name} cannot be read: {error!r}"))


def _fail(launches: Sequence[WovenLaunch], problem: WarplensError) -> None:
    for launch in launches:
        if not launch.landed:
            launch.problem = problem


class _Neighbours:
    """Launches of one kernel whose memory lies side by side, in ascending order."""

    def __init__(self, first: WovenLaunch) -> None:
        self.launches = [first]
        self.kernel, self.shift, self.tracks, self.address = first.kernel, first.shift, first.tracks, first.address
        self.stride = 1 << first.shift
        self.capacity = capacity_of(first.shift, first.kernel.full, first.kernel.slack)
        self.rows = np.zeros((0, HEADER_BYTES), np.uint8)
        self.written, self.slots = np.zeros(0, np.int64), np.zeros(0, np.int64)

    def add(self, launch: WovenLaunch) -> bool:
        """Take one more launch; False where it does not belong here."""
        last = self.launches[-1]
        alike = launch.kernel is self.kernel and launch.shift == self.shift and launch.tracks == self.tracks
        if not alike or launch.address != last.address + last.size:
            return False
        self.launches.append(launch)
        return True

    @property
    def size(self) -> int:
        return len(self.launches) * self.launches[0].size

    def guess(self) -> RowCopy:
        """Headers, and as many slots as launches of the variant have written so far: as a rule that is everything."""
        slots = 0 if self.kernel.full == "ring" else self.launches[0].variant.most_written or 0
        width = min(track_stride(min(slots, self.capacity)), self.stride)
        return RowCopy(self.address, self.stride, width, len(self.launches) * self.tracks)

    def headers(self) -> npt.NDArray[np.void]:
        """The header of each track, a row for each launch."""
        rows = np.ndarray(len(self.rows), HEADER, self.rows, strides=(self.rows.shape[1],))
        shaped: npt.NDArray[np.void] = rows.reshape(len(self.launches), self.tracks)
        return shaped

    def read(self, rows: Rows) -> None:
        """Learn from the headers what each launch wrote."""
        self.rows = rows
        headers = self.headers()
        exited = (headers["state"] != 0).all(axis=1)
        # A warp that never exited did not say how much it wrote, so all of its slots come along.
        self.written = np.where(exited, headers["written"].max(axis=1, initial=0).astype(np.int64), self.capacity)
        self.slots = np.minimum(self.written, self.capacity)

    def lacking(self) -> Iterator[tuple[int, RowCopy]]:
        """The launches of which more is needed, each with the copy of its slots."""
        known = 0 if self.kernel.full == "ring" else (self.rows.shape[1] - HEADER_BYTES) // SLOT_BYTES
        first = self.stride // 2 if self.kernel.full == "ring" else HEADER_BYTES
        for at in np.flatnonzero(self.slots > known):
            address = self.launches[at].address + first
            yield int(at), RowCopy(address, self.stride, int(self.slots[at]) * SLOT_BYTES, self.tracks)

    def finish(self, more: dict[int, Rows], waited: float, start: float) -> None:
        """Give the memory back, and keep what was copied as the capture needs it."""
        engine, kernel = self.launches[0].engine, self.kernel
        # Spare slots behind the last record may have been written too.
        written = HEADER_BYTES + (int(self.slots.max()) + kernel.slack) * SLOT_BYTES
        used = self.stride if kernel.full == "ring" else min(self.stride, written)
        engine.give(Range(self.address, self.size), self.stride, used)
        headers = self.headers()
        spent = {**kernel.cost, "wait_ns": waited * 1e9}
        flush: list[float] | None = None
        if kernel.shared_slots and self.tracks:
            flush = np.asarray(headers["flush"].mean(axis=1)).tolist()
        begun: list[int] = np.asarray(np.count_nonzero(headers["magic"], axis=1)).tolist()
        spent["finalize_ns"] = (time.perf_counter() - start) * 1e9
        alike: dict[tuple[int, int], Launch] = {}
        for at, launch in enumerate(self.launches):
            engine.give_event(launch.event)
            if launch.place and not begun[at]:
                # Somebody changed the graph behind our back: it was captured anew, or its nodes were replaced.
                launch.problem = WarplensError(f"kernel {kernel.name}: a replay of its graph left no records")
                continue
            rows = self.rows[at * self.tracks : (at + 1) * self.tracks]
            if at in more:
                rows = join_slots(rows, more[at])
            written, variant = int(self.written[at]), launch.variant
            current = launch.generation in (None, variant.generation)
            if current:
                variant.most_written = max(variant.most_written or 0, written)
            key = written, id(variant)
            known = alike.get(key)
            if known is None:  # most launches differ in their records only
                known = alike[key] = describe_launch(launch, rows, int(self.slots[at]), written, spent)
            launch.launch = known.noting(
                raw=rows.reshape(-1), cost=None if flush is None else {"flush_cycles": flush[at]}, extra=launch.place
            )
            if current and not variant.settled:
                variant.newest = launch.launch


def describe_launch(
    launch: WovenLaunch, rows: Rows, slots: int, written: int, cost: Mapping[str, float], full: str | None = None
) -> Launch:
    """The launch as a capture keeps it: `rows` are its tracks with `slots` slots each. `full` says how they lie there,
    where that is not as on the device."""
    kernel = launch.kernel
    return Launch(
        kernel.name,
        launch.grid,
        kernel.block or (32 * kernel.warps, 1, 1),
        kernel.regions,
        slots,
        rows.reshape(-1),
        full=full or kernel.full,
        stride=rows.shape[1],
        locations=kernel.locations,
        cost=cost,
        extra={
            "store": kernel.store,
            "track_bytes": 1 << launch.shift,
            "capacity": capacity_of(launch.shift, kernel.full, kernel.slack),
            "most_written": written,
            "shared_bytes": kernel.shared_bytes,
            **({AUTOMATIC: True} if kernel.auto else {}),
            **kernel.resources,
            **({CODE: kernel.code} if kernel.code else {}),
            **({BETWEEN: kernel.between} if kernel.between else {}),
            **({AGGREGATE: kernel.aggregate.describe()} if kernel.aggregate else {}),
            **_sample(kernel.select, launch.grid),
            "variant": dict(launch.variant.describe()),
        },
        device=launch.device,
    )


def _sample(select: Selection, grid: Dim3) -> dict[str, Any]:
    """Which share of its blocks a launch has that the overhead budget samples."""
    if select.blocks is None or select.blocks[1] != EVERY_BLOCK:
        return {}
    blocks = grid[0] * grid[1] * grid[2]
    return {SAMPLED: {"blocks": select.blocks_of(blocks), "of": blocks, "lost": 0}}


def _neighbours(launches: Sequence[WovenLaunch]) -> list[_Neighbours]:
    found: list[_Neighbours] = []
    for launch in launches:
        if not found or not found[-1].add(launch):
            found.append(_Neighbours(launch))
    return found


def _bring_home(engine: Engine, launches: Sequence[WovenLaunch], waited: float, start: float) -> None:
    groups = _neighbours(launches)
    for group, rows in zip(groups, engine.copy.all_rows([group.guess() for group in groups]), strict=True):
        group.read(rows)
    lacking = [(group, at, copy) for group in groups for at, copy in group.lacking()]
    more: dict[int, dict[int, Rows]] = {}
    for (group, at, _), rows in zip(lacking, engine.copy.all_rows([copy for *_, copy in lacking]), strict=True):
        more.setdefault(id(group), {})[at] = rows
    for group in groups:
        group.finish(more.get(id(group), {}), waited, start)


def join_slots(rows: Rows, slots: Rows) -> Rows:
    """Tracks made of headers, which `rows` begin with, and slots."""
    whole = np.zeros((len(rows), track_stride(slots.shape[1] // SLOT_BYTES)), np.uint8)
    whole[:, :HEADER_BYTES] = rows[:, :HEADER_BYTES]
    whole[:, HEADER_BYTES : HEADER_BYTES + slots.shape[1]] = slots
    return whole
