"""The launch path: give each woven launch a buffer, keep it, and bring its records home when the profile ends."""

from __future__ import annotations

import functools
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from warplens._triton import cost, memory
from warplens._triton.stages import METADATA, REMARKS
from warplens.capture import Launch
from warplens.errors import WarplensError
from warplens.record.layout import HEADER, HEADER_BYTES, MAX_SLOTS, SLOT_BYTES, track_stride
from warplens.session import Profile
from warplens.weave.options import MAX_SHIFT, MIN_SHIFT, Selection, capacity_of, shift_for

DEFAULT_BYTES = 128 << 20
DEFAULT_SHIFTS = (10, 20)
"""Unless told otherwise a launch gets at most 128 MiB, and a track between 1 KiB and 1 MiB."""
MOST_BYTES = 1 << 30
"""What a launch with automatic marks may get when an earlier one shows that it needs more."""


@dataclass(frozen=True)
class WovenKernel:
    """What a compiled kernel's metadata says about its weaving."""

    name: str
    warps: int
    ctas: int
    regions: dict[int, str]
    locations: dict[int, str]
    slack: int
    full: str
    store: str
    select: Selection
    shared_slots: int = 0
    shared_bytes: int = 0
    """Of shared memory, what records wait in."""
    resources: Mapping[str, int] = field(default_factory=dict)
    """What ptxas says the kernel takes, and its shared memory."""
    cost: Mapping[str, float] = field(default_factory=dict)
    """What a calibration measured of its marks."""
    auto: bool = False
    block: tuple[int, int, int] | None = None
    """The shape of a block where it is not one row of warps."""

    @staticmethod
    def of(metadata: Any) -> WovenKernel | None:
        document = getattr(metadata, METADATA, None)
        if not document:
            return None
        select: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in document["select"].items()}
        threads = document["threads"].get(metadata.name, 32 * metadata.num_warps)
        return WovenKernel(
            metadata.name,
            -(-threads // 32),
            getattr(metadata, "num_ctas", 1),
            {int(k): v for k, v in document["regions"].items()},
            {int(k): v for k, v in document["locations"].items()},
            document["slack"],
            document["full"],
            document["store"],
            Selection(**select),
            document.get("shared_slots", 0),
            document.get("shared_bytes", 0),
            {**document.get("resources", {}), "shared_bytes_kernel": getattr(metadata, "shared", 0)},
            auto="auto" in document,
        )


class Pointer(int):
    """An address that Triton's launchers accept, as a number or by `data_ptr`."""

    def data_ptr(self) -> int:
        return int(self)


class TritonLaunch:
    """One launch whose records are still on the device."""

    def __init__(
        self,
        kernel: WovenKernel,
        grid: tuple[int, int, int],
        buffer: memory.Buffer,
        shift: int,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self.kernel, self.grid, self.shift, self.tell = kernel, grid, shift, tell
        blocks = grid[0] * grid[1] * grid[2]
        self.tracks = kernel.select.blocks_of(blocks) * kernel.select.tracks_per_block(kernel.warps)
        self.buffer: memory.Buffer | None = buffer
        self._launch: Launch | None = None

    @property
    def nbytes(self) -> int:
        return self.buffer.nbytes if self.buffer is not None else 0

    def collect(self) -> Launch:
        """Wait for the device, copy what was written, and let the buffer go."""
        if self._launch is None:
            assert self.buffer is not None
            start = time.perf_counter()
            self.buffer.synchronize()
            waited = time.perf_counter()
            self._launch = self._read(self.buffer, waited - start, waited)
            self.buffer = None
        return self._launch

    def _read(self, buffer: memory.Buffer, waited: float, start: float) -> Launch:
        kernel, stride = self.kernel, 1 << self.shift
        capacity = capacity_of(self.shift, kernel.full, kernel.slack)
        headers = buffer.rows(self.tracks, stride, 0, HEADER_BYTES)
        fields = np.ascontiguousarray(headers).view(HEADER).reshape(-1) if self.tracks else np.empty(0, HEADER)
        exited = bool((fields["state"] != 0).all()) if self.tracks else True
        written = int(fields["written"].max(initial=0)) if exited else capacity
        kept = min(written, capacity)
        first = stride // 2 if kernel.full == "ring" else HEADER_BYTES
        records = buffer.rows(self.tracks, stride, first, kept * SLOT_BYTES)
        raw = np.zeros((self.tracks, track_stride(kept)), np.uint8)
        raw[:, :HEADER_BYTES] = headers
        raw[:, HEADER_BYTES : HEADER_BYTES + kept * SLOT_BYTES] = records
        return Launch(
            kernel.name,
            self.grid,
            kernel.block or (32 * kernel.warps, 1, 1),
            kernel.regions,
            kept,
            raw.reshape(-1),
            full=kernel.full,
            locations=kernel.locations,
            cost=self._cost(fields, waited, start),
            extra={
                "store": kernel.store,
                "track_bytes": stride,
                "capacity": capacity,
                "most_written": written,
                "shared_bytes": kernel.shared_bytes,
                **kernel.resources,
            },
        )

    def _cost(self, headers: npt.NDArray[np.void], waited: float, start: float) -> dict[str, float]:
        """Waiting for the launch, copying its buffer out, what a warp spent on emptying shared memory, and what
        automatic marks, which nobody weighed, slowed the kernel by."""
        spent = {**self.kernel.cost, "wait_ns": waited * 1e9, "finalize_ns": (time.perf_counter() - start) * 1e9}
        if self.kernel.shared_slots and len(headers):
            spent["flush_cycles"] = float(headers["flush"].mean())
        if self.kernel.auto:
            spent |= cost.estimate(headers)
            if self.tell is not None and spent.get(cost.SLOWDOWN, 1.0) > cost.WORTH_SAYING:
                self.tell(cost.describe(spent, headers))
        return spent


def pass_on(profile: Profile, kernel: str, remarks: Mapping[str, Any]) -> None:
    """What the compiler had to say of a kernel, to the profile."""
    profile.coverage.add(remarks.get("matched", ()), remarks.get("lines", {}))
    for text in remarks["notes"]:
        profile.note(kernel, text)


_thread = threading.local()


@contextmanager
def tuning() -> Iterator[None]:
    """Launches of this thread inside the block are an autotuner's, hundreds per candidate: none is recorded."""
    before, _thread.tuning = is_tuning(), True
    try:
        yield
    finally:
        _thread.tuning = before


def is_tuning() -> bool:
    return getattr(_thread, "tuning", False)


class LaunchHook:
    """Patches the driver's launcher class and Triton's profile allocator while a profile runs."""

    memory: Any = memory
    """Where buffers come from; front ends without torch put their own in its place."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self._local = threading.local()
        self._launches: list[TritonLaunch] = []
        self._undo: list[Callable[[], None]] = []
        self._watched: list[Any] = []
        self._remarked: dict[int, Mapping[str, Any]] = {}
        self._first: dict[str, TritonLaunch] = {}

    def install(self) -> None:
        from triton.compiler.compiler import CompiledKernel
        from triton.runtime import _allocation, driver

        _allocation.set_profile_allocator(self._allocate)
        self._undo.append(lambda: _allocation.set_profile_allocator(None))
        original, hook = CompiledKernel._init_handles, self

        @functools.wraps(original)
        def init_handles(self: Any) -> None:
            hook._watch(driver.active.launcher_cls)
            original(self)

        CompiledKernel._init_handles = init_handles

        def restore() -> None:
            CompiledKernel._init_handles = original

        self._undo.append(restore)
        # Asking for a driver that is not active yet would start CUDA: that is for the program to do, when it launches.
        if driver._active is not None:
            self._watch(driver.active.launcher_cls)
        self._leave_out_tuning()

    def _watch(self, launcher: Any) -> None:
        """See every launch that goes through this class of launchers."""
        if launcher in self._watched:
            return
        self._watched.append(launcher)
        original_init, original_call, hook = launcher.__init__, launcher.__call__, self

        def init(self: Any, source: Any, metadata: Any) -> None:
            original_init(self, source, metadata)
            self.warplens, self.warplens_name = WovenKernel.of(metadata), metadata.name
            self.warplens_remarks = getattr(metadata, REMARKS, None)

        def call(self: Any, x: int, y: int, z: int, stream: Any, *arguments: Any) -> Any:
            if hasattr(self, "warplens_name") and not is_tuning():
                hook.profile.saw(self.warplens_name)
                hook._remark(self.warplens_name, self.warplens_remarks)
            hook._local.launch = (getattr(self, "warplens", None), (x, y, z))
            try:
                return original_call(self, x, y, z, stream, *arguments)
            finally:
                hook._local.launch = None

        launcher.__init__, launcher.__call__ = init, call

        def restore() -> None:
            launcher.__init__, launcher.__call__ = original_init, original_call
            self._watched.remove(launcher)

        self._undo.append(restore)

    def _remark(self, kernel: str, remarks: Mapping[str, Any] | None) -> None:
        """Pass on what the compiler had to say, which may have been in another process: it is kept with the kernel."""
        if remarks and id(remarks) not in self._remarked:
            self._remarked[id(remarks)] = remarks
            pass_on(self.profile, kernel, remarks)

    def _leave_out_tuning(self) -> None:
        """Only the launch that the user asked for is recorded, none of those that Triton's autotuner makes."""
        from triton.runtime.autotuner import Autotuner

        original = Autotuner._bench

        @functools.wraps(original)
        def bench(self: Any, *arguments: Any, **options: Any) -> Any:
            with tuning():
                return original(self, *arguments, **options)

        Autotuner._bench = bench

        def restore() -> None:
            Autotuner._bench = original

        self._undo.append(restore)

    def remove(self) -> None:
        while self._undo:
            self._undo.pop()()

    def _allocate(self, size: int, alignment: int, stream: int | None) -> Pointer | None:
        """Triton's profile allocator: called in the launching thread just before the launch."""
        kernel, (x, y, z) = getattr(self._local, "launch", None) or (None, (0, 0, 0))
        if kernel is None:
            raise WarplensError(
                "a kernel asks for profile scratch that warplens did not weave: it was compiled by another profiler, "
                "or outside this process's profiles; compile it again inside wl.profile"
            )
        if is_tuning():
            return None
        if not self.profile.wants(kernel.name):
            return None
        if memory.capturing():
            warnings.warn(
                f"warplens: kernel {kernel.name} was captured into a CUDA graph; its replays are not recorded. "
                "Profile the call that is not captured.",
                stacklevel=2,
            )
            return None
        return self._new(kernel, (x * kernel.ctas, y, z), stream)

    def _new(self, kernel: WovenKernel, grid: tuple[int, int, int], stream: int | None) -> Pointer | None:
        blocks = kernel.select.blocks_of(grid[0] * grid[1] * grid[2])
        tracks = blocks * kernel.select.tracks_per_block(kernel.warps)
        if not tracks:
            return None
        shift = self._shift(kernel, tracks)
        self._make_room(tracks << shift)
        try:
            buffer = self.memory.allocate((tracks + 1) << shift, stream)
        except MemoryError as error:
            raise WarplensError(
                f"kernel {kernel.name}: no device memory for {tracks} tracks of {1 << shift} bytes ({error}); "
                "ask for fewer with records_per_warp=, warps= or blocks="
            ) from None
        address = buffer.align(1 << shift)
        first = kernel.name not in self._first
        launch = TritonLaunch(
            kernel, grid, buffer, shift, functools.partial(self.profile.note, kernel.name) if first else None
        )
        self._first.setdefault(kernel.name, launch)
        self._launches.append(launch)
        self.profile.add(launch)
        self.memory.describe(self.profile)
        return Pointer(address | shift)

    def _shift(self, kernel: WovenKernel, tracks: int) -> int:
        records = self.profile.options.records_per_warp
        wish = self.profile.options.bytes_per_block
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
        default = max(low, MIN_SHIFT, min(high, (DEFAULT_BYTES // tracks).bit_length() - 1))
        if not kernel.auto or kernel.full == "ring" or kernel.name not in self._first:
            return default
        # How much automatic marks write shows only when they ran: the first launch says what the others need.
        written = int(self._first[kernel.name].collect().extra["most_written"])
        needed = max(MIN_SHIFT, min(MAX_SHIFT, shift_for(min(written + written // 8, MAX_SLOTS), "stop", kernel.slack)))
        return needed if tracks << needed <= MOST_BYTES else max(default, (MOST_BYTES // tracks).bit_length() - 1)

    def _make_room(self, wanted: int) -> None:
        """Bring earlier launches home when their buffers would fill the device; the only place that waits."""
        held = sum(launch.nbytes for launch in self._launches)
        if held + wanted > self.memory.budget():
            for launch in self._launches:
                launch.collect()
            self._launches.clear()
