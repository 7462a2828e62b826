"""One launch of a woven kernel: its memory on the device, and what becomes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from warplens.errors import WarplensError, without_frames
from warplens.launch.arena import Range
from warplens.launch.collector import LARGE_BATCH
from warplens.launch.engine import Engine
from warplens.launch.lent_launch import LentLaunch
from warplens.launch.variant import Variant
from warplens.record.aggregate_rows import AggregateLayout
from warplens.record.capture import Device, Dim3, Launch
from warplens.sass.machine_code import MachineCode
from warplens.weave.weaving import Selection
from warplens.weave.woven_ptx import Woven


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
    code: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """What the code of each region is made of, by the region's name."""
    between: Sequence[Sequence[int]] = ()
    """The regions of the code between others, as `Woven.between` has them."""
    cost: Mapping[str, float] = field(default_factory=dict)
    """What a calibration measured of its marks."""
    auto: bool = False
    aggregate: AggregateLayout | None = None
    """The rows of a kernel that keeps statistics instead of records."""
    block: Dim3 | None = None
    """The shape of a block where it is not one row of warps."""
    machine_code: MachineCode | None = None
    """Its machine code, for the verification of its regions."""

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
            "between": () if symbol in woven.aggregates else woven.between.get(symbol, ()),
            "aggregate": woven.aggregates.get(symbol),
        }
        regions = more.get("regions", woven.regions)
        code = {
            regions.get(int(number), "") if number else "": counts
            for number, counts in woven.code.get(symbol, {}).items()
        }
        if woven.text and "machine_code" not in more:
            names = {raw: regions[number] for number, raw in woven.regions.items() if number in regions}
            known["machine_code"] = MachineCode(symbol, woven.text, names=names, automatic=bool(more.get("auto")))
        return WovenKernel(**{**known, "code": code, **more})

    def tracks(self, grid: Dim3) -> int:
        """Tracks of a launch with this grid."""
        return self.select.blocks_of(grid[0] * grid[1] * grid[2]) * self.select.tracks_per_block(self.warps)


class WovenLaunch(LentLaunch):
    """A launch that is recorded. `pointer` has the address of its memory, with log2 of a track's size in the low
    bits."""

    __slots__ = (
        "address", "device", "engine", "event", "generation", "grid", "kernel", "launch", "place", "pointer", "problem",
        "shift", "stream", "tracks", "variant",
    )  # fmt: skip

    def __init__(
        self,
        kernel: WovenKernel,
        grid: Dim3,
        engine: Engine,
        address: int,
        shift: int,
        stream: int,
        tracks: int,
        variant: Variant,
        device: Device | None = None,
        place: Mapping[str, int] | None = None,
    ) -> None:
        self.kernel, self.grid, self.engine, self.stream, self.variant = kernel, grid, engine, stream, variant
        self.address, self.shift, self.tracks, self.pointer = address, shift, tracks, address | shift
        self.device, self.place = device, place
        self.generation = None if place else variant.generation
        """Which weaving of the variant it runs; None in a graph, which keeps the one it was captured with."""
        self.event = 0
        self.launch: Launch | None = None
        self.problem: WarplensError | None = None

    @property
    def size(self) -> int:
        """Bytes of its memory."""
        return self.tracks << self.shift

    def launched(self) -> None:
        """The kernel was given to its stream. What the driver says against it is the profile's problem, not the
        program's."""
        engine = self.engine
        try:
            self.event = engine.mark(self.stream)
        except WarplensError as problem:
            self.problem = without_frames(problem)
        else:
            engine.collector.add(self)

    def made(self, stream: int, event: int, status: int) -> None:
        """It was given to `stream` without Python, and `event` marked behind it with this status."""
        self.stream, self.event = stream, event
        if status:
            self.problem = WarplensError(f"kernel {self.kernel.name}: cuEventRecord failed (CUDA error {status})")
        else:
            self.engine.collector.add(self)

    def failed(self) -> None:
        self.problem = WarplensError(f"kernel {self.kernel.name}: a recorded launch failed")
        self.cancel()

    def cancel(self) -> None:
        """Give the memory back, which nobody has written to."""
        self.engine.give(Range(self.address, self.size), self.size, 0)

    @property
    def machine_code(self) -> MachineCode | None:
        """The machine code of its kernel."""
        return self.kernel.machine_code

    @property
    def landed(self) -> bool:
        return self.launch is not None or self.problem is not None

    @property
    def in_flight(self) -> bool:
        """Whether it was given to its stream and has not ended."""
        return bool(self.event) and not self.landed and not self.over()

    def over(self) -> bool:
        return self.engine.lib.reached(self.event)

    def land(self, launches: Sequence[WovenLaunch]) -> None:
        """Wait for launches of one engine, copy what they wrote to the host, and give their memory back."""
        self.engine.land(launches)

    def collect(self) -> Launch:
        """The launch as the capture keeps it; waits for it, and for those before it, if it is still on the device."""
        while not self.landed and self.engine.collector.land_oldest(LARGE_BATCH):
            pass
        if not self.landed:
            raise WarplensError(f"kernel {self.kernel.name}: a recorded launch was never made")
        if self.problem is not None:
            raise self.problem
        assert self.launch is not None
        return self.launch
