"""How much memory a woven launch gets, and which engine lends it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping

from warplens.driver import libcuda
from warplens.errors import WarplensError
from warplens.launch.arena import Range
from warplens.launch.collected_run import CollectedRun
from warplens.launch.engine import Engine
from warplens.launch.landing import land
from warplens.launch.native_launches import NativeLaunches, NativeTarget
from warplens.launch.ready import MOST_READY, READY_BYTES, ReadyLaunches
from warplens.launch.short_turns import wait_precisely
from warplens.launch.variant import Variant, Variants
from warplens.launch.woven import WovenKernel, WovenLaunch
from warplens.options import Options
from warplens.record.capture import Dim3
from warplens.record.layout import MAX_SLOTS, SLOT_BYTES
from warplens.weave.weaving import MAX_SHIFT, MIN_SHIFT, shift_for

DEFAULT_BYTES = 128 << 20
DEFAULT_SHIFTS = (10, 20)
"""Unless told otherwise a launch gets at most 128 MiB, and a track between 1 KiB and 1 MiB."""
MOST_BYTES = 1 << 30
"""What a launch with automatic marks may get: how much they write shows only when they ran."""
FIRST_SHARE = 1 / 16
"""Of the memory that records may take, what the first launch of a variant with automatic marks may take of it."""

WATCHED_VARIANTS = 64
"""Of so many variants launches are counted to see whether the program is busy launching."""


class Buffers:
    """Lend memory to the launches of one session."""

    def __init__(self, run: CollectedRun, options: Options, variants: Variants | None = None) -> None:
        self._run, self._options = run, options
        self._variants = variants or Variants(options, 0)
        self._ready: list[Variant] = []
        """Variants with launches that have memory and were not made yet."""
        self.watched = options.copies_while_running
        """Whether records may have to be copied while their kernel runs."""
        self.idle: Callable[[], bool] = lambda: False
        """What the threads that bring records home do where there are none: a little of it per call."""
        self._lent_to: deque[Variant] = deque(maxlen=WATCHED_VARIANTS)
        """Variants that were recorded, the newest last."""
        self._engines: dict[int, Engine] = {}
        self._lock = threading.Lock()
        self._native: NativeLaunches | None = None
        self._shelves_open = False

    def lend(
        self,
        kernel: WovenKernel,
        variant: Variant,
        grid: Dim3,
        stream: int,
        *,
        place: Mapping[str, int] | None = None,
        refuse: bool = True,
        ahead: int = 0,
    ) -> WovenLaunch | None:
        """A launch with memory for its records; None where none of its blocks is to be recorded, or there is no memory.

        `with launch as pointer:` launches the woven kernel. `place` is where the launch lies in a graph. Without
        `refuse`, nobody is told that there is no memory. So many launches as `ahead` says get their memory at once, if
        they are small; `variant.ready` keeps them.
        """
        engine = self.engine()
        wait_precisely()  # this thread launches, and the one that brings records home should not be in its way
        if variant.most_written is None and variant.recorded > 1 and self._options.records_per_warp is None:
            engine.collector.land_finished()  # an earlier launch says how much room this one needs
        known = (grid, variant.most_written)
        if place is None and variant.ready is not None and variant.room is not None and variant.room[0] == known:
            launch = variant.ready.next(kernel, grid, stream, engine.context)
            if launch is not None:
                self._run.add(launch)
                return launch
        if variant.room is None:
            self._lent_to.append(variant)
        if variant.room is None or variant.room[0] != known:
            tracks = kernel.tracks(grid)
            variant.room = known, tracks, self.shift(kernel, variant, tracks, engine.budget) if tracks else 0
        _, tracks, shift = variant.room
        if not tracks:
            return None
        size = tracks << shift
        count = 1 + (min(ahead, MOST_READY, READY_BYTES // size) if self._knows_room(variant) else 0)
        range_ = engine.take_zeroed(size * count, 1 << shift) if count > 1 else None
        if range_ is None:
            count = 1
            range_ = self._take_for_one(engine, size, 1 << shift, stream)
        if range_ is None and not refuse:
            return None
        if range_ is None:
            self._refuse(kernel, f"no device memory for {tracks} tracks of {1 << shift} bytes")
            return None
        launches = self._side_by_side(kernel, variant, grid, engine, range_, (tracks, shift), stream, place)
        first = launches.pop(0)
        self._run.add(first)
        if launches:
            launches.reverse()  # the next is taken from the end, so that memory is used in ascending order
            left, variant.ready = variant.ready, ReadyLaunches(self._run, self._variants, engine, launches)
            if left is None:
                self._ready.append(variant)
            else:
                left.give_back()
        return first

    def lend_more(self, kernel: WovenKernel, variant: Variant, grid: Dim3, ahead: int) -> None:
        """Add to the launches of a variant that have memory already, so that there are at most `ahead`."""
        ready, room = variant.ready, variant.room
        if ready is None or room is None or not ready.is_of(kernel, grid):
            return
        engine, (_, tracks, shift) = self.engine(), room
        size = tracks << shift
        count = min(ahead - ready.count, MOST_READY, READY_BYTES // size)
        range_ = engine.take_zeroed(size * count, 1 << shift) if count > 0 else None
        if range_ is not None:
            ready.add(self._side_by_side(kernel, variant, grid, engine, range_, (tracks, shift)))

    def _side_by_side(
        self,
        kernel: WovenKernel,
        variant: Variant,
        grid: Dim3,
        engine: Engine,
        range_: Range,
        room: tuple[int, int],
        stream: int = 0,
        place: Mapping[str, int] | None = None,
    ) -> list[WovenLaunch]:
        """Launches that share a range of memory, in the order of their addresses; `room` is what each has, its tracks
        and log2 of their bytes."""
        tracks, shift = room
        device = engine.device if engine.device.index != self._run.device.index else None
        return [
            WovenLaunch(kernel, grid, engine, address, shift, stream, tracks, variant, device, place)
            for address in range(range_.address, range_.address + range_.size, tracks << shift)
        ]

    def _knows_room(self, variant: Variant) -> bool:
        """Whether the size of the variant's tracks is settled."""
        options = self._options
        return variant.most_written is not None or bool(options.records_per_warp or options.bytes_per_block)

    def _take_for_one(self, engine: Engine, size: int, alignment: int, stream: int) -> Range | None:
        """Memory for one launch; where there is no more, that of launches which were not made yet is given back."""
        found = engine.take(size, alignment, stream)
        if found is None and self.give_back():
            found = engine.take(size, alignment, stream)
        return found

    def give_back(self) -> bool:
        """Give the memory of launches that were prepared and not made back; return whether there was any."""
        variants, self._ready = self._ready, []
        for variant in variants:
            left, variant.ready = variant.ready, None
            if left is not None:
                left.give_back()
        return bool(variants)

    def shelve(self, kernel: WovenKernel, variant: Variant, target: NativeTarget) -> None:
        """Let the next launches of a variant, whose memory is at hand, be made without Python."""
        if variant.ready is None or variant.closed or self._variants.wanted is not None or not self._shelves_open:
            return
        if self._native is None:
            with self._lock:  # of two, the run would ask only one which launches it made
                if self._native is None:
                    self._native = NativeLaunches.of(libcuda.driver(), self._run, self._variants)
        if self._native is not None:
            variant.ready.shelve(self._native, kernel, target)

    def open_shelves(self, *, for_launches: bool) -> None:
        """Let launches be made without Python from now on, or none any more."""
        self._shelves_open = for_launches
        for variant in [] if for_launches else list(self._ready):
            if variant.ready is not None:
                variant.ready.unshelve()
        if self._native is not None:
            self._native.open(again=for_launches)

    def engine(self) -> Engine:
        """The engine of the current context."""
        lib = libcuda.driver()
        context = lib.context()
        found = self._engines.get(context)
        if found is None:
            with self._lock:
                found = self._engines.get(context)
                if found is None:
                    if self._run.stalls is not None:
                        self._run.stalls.enter(context)
                    found = Engine(
                        lib, land, self._options.memory, watched=self.watched, idle=self.idle, launched=self._launched
                    )
                self._engines[context] = found
                self._run.other_device(found.device.index, lambda: found.device)
        return found

    def _launched(self) -> int:
        """Launches, recorded or not, of the variants that were recorded last; another thread asks."""
        return sum(variant.launches for variant in list(self._lent_to))

    def engines(self) -> list[Engine]:
        """The engines of all contexts with recorded launches so far; another thread may ask."""
        with self._lock:
            return list(self._engines.values())

    def land_finished(self) -> None:
        """Bring the launches of the current context home that are over."""
        self.engine().collector.land_finished()

    def end_threads(self) -> None:
        """Leave bringing launches home to who asks for them."""
        for engine in self._engines.values():
            engine.collector.close()

    def release(self) -> None:
        """Give all memory back to the driver. Every launch must have been collected."""
        self.give_back()
        while self._engines:
            self._engines.popitem()[1].release()

    def shift(self, kernel: WovenKernel, variant: Variant, tracks: int, budget: int) -> int:
        """log2 of the bytes of a track."""
        if kernel.aggregate is not None:
            return min(MAX_SHIFT, shift_for(kernel.aggregate.slots, "stop", kernel.slack))
        records, wish = self._options.records_per_warp, self._options.bytes_per_block
        if kernel.shared_slots:
            # The wish was for shared memory; a ring there and its copy in global memory have the same size.
            records = kernel.shared_slots if kernel.full == "ring" else records
        elif wish is not None:
            # A budget is not exceeded: the largest ring, or the most slots, that fit it.
            records = wish // SLOT_BYTES // kernel.select.tracks_per_block(kernel.warps)
            if kernel.full == "ring":
                records = 1 << max(0, records.bit_length() - 1)
        if records is not None:
            return min(MAX_SHIFT, shift_for(records, kernel.full, kernel.slack))
        low, high = DEFAULT_SHIFTS
        most = DEFAULT_BYTES
        if kernel.auto and kernel.full == "stop":
            most = max(most, min(MOST_BYTES, int(budget * FIRST_SHARE)))
        default = max(low, MIN_SHIFT, min(high, (most // tracks).bit_length() - 1))
        written = variant.most_written
        if written is None or kernel.full == "ring":
            return default
        # An earlier launch, which had room for what it could, says what the others need; they may differ by their data.
        slots = min(written * (2 if kernel.auto else 4), MAX_SLOTS)
        needed = max(MIN_SHIFT, min(MAX_SHIFT, shift_for(slots, "stop", kernel.slack)))
        return needed if tracks << needed <= MOST_BYTES else max(default, (MOST_BYTES // tracks).bit_length() - 1)

    def _refuse(self, kernel: WovenKernel, problem: str) -> None:
        remedy = "ask for fewer with records_per_warp=, warps= or blocks=, or allow more with memory="
        if not kernel.auto or self._options.strict:
            raise WarplensError(f"kernel {kernel.name}: {problem}; {remedy}")
        self._run.note(kernel.name, f"runs unmarked: {problem}; {remedy}")
