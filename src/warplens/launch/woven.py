"""One launch of a woven kernel, from its memory on the device to the capture."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from warplens.errors import WarplensError
from warplens.launch.arena import Range
from warplens.launch.engine import Engine
from warplens.launch.side_copy import RowCopy, Rows
from warplens.launch.variant import Variant
from warplens.record.aggregate_rows import AGGREGATE, AggregateLayout
from warplens.record.capture import AUTOMATIC, SAMPLED, Device, Dim3, Launch
from warplens.record.layout import HEADER, HEADER_BYTES, SLOT_BYTES, track_stride
from warplens.weave.weaver import Woven
from warplens.weave.weaving import Selection, capacity_of


@dataclass(frozen=True, kw_only=True)
class WovenKernel:
    """What a launch must know of the kernel's weaving."""

    name: str
    warps: int
    regions: Mapping[int, str]
    locations: Mapping[int, str]
    slack: int
    full: str
    store: str
    select: Selection
    ctas: int = 1
    shared_slots: int = 0
    shared_bytes: int = 0
    """Of shared memory, what records wait in."""
    resources: Mapping[str, int] = field(default_factory=dict)
    """What ptxas says the kernel takes, and its shared memory."""
    cost: Mapping[str, float] = field(default_factory=dict)
    """What a calibration measured of its marks."""
    auto: bool = False
    aggregate: AggregateLayout | None = None
    """The rows of a kernel that keeps statistics instead of records."""
    block: Dim3 | None = None
    """The shape of a block where it is not one row of warps."""

    @staticmethod
    def of(woven: Woven, symbol: str, *, threads: int, **more: Any) -> WovenKernel:
        """The kernel `symbol` of a woven module, launched with `threads` per block unless it fixes their number."""
        known = {
            "warps": -(-woven.threads.get(symbol, threads) // 32),
            "regions": woven.regions,
            "locations": woven.locations,
            "slack": woven.slack,
            "full": woven.full,
            "store": woven.stores[symbol],
            "aggregate": woven.aggregates.get(symbol),
        }
        return WovenKernel(**{**known, **more})

    def tracks(self, grid: Dim3) -> int:
        """Tracks of a launch with this grid."""
        return self.select.blocks_of(grid[0] * grid[1] * grid[2]) * self.select.tracks_per_block(self.warps)


class WovenLaunch:
    """A launch that is recorded: `with launch as pointer:` launches the woven kernel with that pointer."""

    def __init__(
        self,
        kernel: WovenKernel,
        grid: Dim3,
        engine: Engine,
        range_: Range,
        shift: int,
        stream: int,
        *,
        tracks: int,
        device: Device | None = None,
        variant: Variant,
        place: Mapping[str, int] | None = None,
    ) -> None:
        self.kernel, self.grid, self.device = kernel, grid, device
        self._engine, self._range, self._shift, self._stream = engine, range_, shift, stream
        self.variant, self._place = variant, place or {}
        self._tracks = tracks
        self.generation = None if place else variant.generation
        """Which weaving of the variant it runs; None in a graph, which keeps the one it was captured with."""
        self._event = self._written = 0
        self._launch: Launch | None = None
        self._problem: WarplensError | None = None

    @property
    def pointer(self) -> int:
        """What the kernel takes as its buffer: the address, with log2 of a track's size in its low bits."""
        return self._range.address | self._shift

    def __enter__(self) -> int:
        return self.pointer

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            self._event = self._engine.mark(self._stream)
            self._engine.collector.add(self)
        else:
            self._problem = WarplensError(f"kernel {self.kernel.name}: a recorded launch failed")
            self._engine.give(self._range, self._range.size, 0)

    @property
    def _landed(self) -> bool:
        return self._launch is not None or self._problem is not None

    def over(self) -> bool:
        return self._engine.lib.reached(self._event)

    @staticmethod
    def land(launches: Sequence[WovenLaunch]) -> None:
        """Wait for launches of one engine, copy what they wrote to the host, and give their memory back."""
        engine = launches[0]._engine
        with engine.lib.inside(engine.context):
            try:
                start = time.perf_counter()
                for launch in launches:
                    engine.lib.wait(launch._event)
                waited = time.perf_counter()
                _bring_home(engine, launches, (waited - start) / len(launches), waited)
            except WarplensError as problem:
                _fail(launches, problem)
            except Exception as error:  # in the collector's thread nobody would hear of it
                _fail(launches, WarplensError(f"the records of {launches[0].kernel.name} cannot be read: {error!r}"))

    def collect(self) -> Launch:
        """The launch as the capture keeps it; waits for it, and for those before it, if it is still on the device."""
        while not self._landed and self._engine.collector.land_oldest():
            pass
        if not self._landed:
            raise WarplensError(f"kernel {self.kernel.name}: a recorded launch was never made")
        if self._problem is not None:
            raise self._problem
        assert self._launch is not None
        return self._launch

    @property
    def headers(self) -> RowCopy:
        """The headers of all tracks."""
        return RowCopy(self._range.address, 1 << self._shift, HEADER_BYTES, self._tracks)

    def records(self, headers: npt.NDArray[np.void]) -> RowCopy:
        """The slots of all tracks, as far as the busiest one wrote."""
        stride, capacity = 1 << self._shift, capacity_of(self._shift, self.kernel.full, self.kernel.slack)
        exited = bool((headers["state"] != 0).all())
        self._written = int(headers["written"].max(initial=0)) if exited else capacity
        first = stride // 2 if self.kernel.full == "ring" else HEADER_BYTES
        return RowCopy(self._range.address + first, stride, min(self._written, capacity) * SLOT_BYTES, self._tracks)

    def finish(self, headers: Rows, records: Rows, waited: float, start: float) -> None:
        """Keep what was copied as the capture needs it, and give the memory back."""
        kernel, stride = self.kernel, 1 << self._shift
        slots = records.shape[1] // SLOT_BYTES
        raw = np.zeros((self._tracks, track_stride(slots)), np.uint8)
        raw[:, :HEADER_BYTES] = headers
        raw[:, HEADER_BYTES : HEADER_BYTES + records.shape[1]] = records
        # Spare slots behind the last record may have been written too.
        used = stride if kernel.full == "ring" else HEADER_BYTES + (slots + kernel.slack) * SLOT_BYTES
        self._engine.give(self._range, stride, min(stride, used))
        self._engine.give_event(self._event)
        known = headers.reshape(-1).view(HEADER)
        if self._place and not known["magic"].any():
            # Somebody changed the graph behind our back: it was captured anew, or its nodes were replaced.
            self._problem = WarplensError(f"kernel {kernel.name}: a replay of its graph left no records")
            return
        current = self.generation in (None, self.variant.generation)
        if current:
            self.variant.most_written = max(self.variant.most_written or 0, self._written)
        self._launch = Launch(
            kernel.name,
            self.grid,
            kernel.block or (32 * kernel.warps, 1, 1),
            kernel.regions,
            slots,
            raw.reshape(-1),
            full=kernel.full,
            locations=kernel.locations,
            cost=self._cost(known, waited, start),
            extra={
                "store": kernel.store,
                "track_bytes": stride,
                "capacity": capacity_of(self._shift, kernel.full, kernel.slack),
                "most_written": self._written,
                "shared_bytes": kernel.shared_bytes,
                **({AUTOMATIC: True} if kernel.auto else {}),
                **({AGGREGATE: kernel.aggregate.describe()} if kernel.aggregate else {}),
                **kernel.resources,
                "variant": dict(self.variant.describe()),
                **self._sample(),
                **self._place,
            },
            device=self.device,
        )
        if current and not self.variant.settled:
            self.variant.newest = self._launch

    def _sample(self) -> dict[str, Any]:
        """Which share of its blocks a launch has that the overhead budget samples."""
        if self.variant.thinning.step == 1 or self.kernel.select.blocks is None:
            return {}
        blocks = self.grid[0] * self.grid[1] * self.grid[2]
        return {SAMPLED: {"blocks": self.kernel.select.blocks_of(blocks), "of": blocks, "lost": 0}}

    def _cost(self, headers: npt.NDArray[np.void], waited: float, start: float) -> dict[str, float]:
        """The calibrated cost of marks, the host's wait and copy, and the cycles spent emptying shared memory."""
        spent = {**self.kernel.cost, "wait_ns": waited * 1e9, "finalize_ns": (time.perf_counter() - start) * 1e9}
        if self.kernel.shared_slots and len(headers):
            spent["flush_cycles"] = float(headers["flush"].mean())
        return spent


def _bring_home(engine: Engine, launches: Sequence[WovenLaunch], waited: float, start: float) -> None:
    headers = engine.copy.all_rows([launch.headers for launch in launches])
    fields = [one.reshape(-1).view(HEADER) for one in headers]
    wanted = [launch.records(known) for launch, known in zip(launches, fields, strict=True)]
    for launch, header, records in zip(launches, headers, engine.copy.all_rows(wanted), strict=True):
        launch.finish(header, records, waited, start)


def _fail(launches: Sequence[WovenLaunch], problem: WarplensError) -> None:
    for launch in launches:
        if not launch._landed:
            launch._problem = problem
