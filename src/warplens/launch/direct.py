"""One launch's buffer on the device, from its initialisation to the capture."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from warplens.driver.libcuda import Driver
from warplens.errors import WarplensError
from warplens.record.capture import Device, Dim3, Launch
from warplens.record.launch_buffer import (
    BUFFER,
    BUFFER_BYTES,
    FULL_MODES,
    REFUSALS,
    STORES,
    BufferPlan,
    ring_slots,
    trimmed,
)
from warplens.record.layout import HEADER, HEADER_BYTES, SLOT_BYTES, TRACK_MAGIC
from warplens.record.name_table import NAMES_BYTES, Names, scan
from warplens.sass.machine_code import MachineCode

DIRECT = STORES[0]


class DeviceBuffer:
    """Allocated and cleared when made; `collect` waits for the GPU, copies what was written and frees it. `costs` are
    those of marks, by where their stores are."""

    silent = (
        "no warp reached a wl::Kernel. Is `wl::Kernel k(prof);` its first line, was it launched with this buffer "
        "inside the profile, and compiled without -DWARPLENS=0?"
    )
    too_small = (
        "give wlcu.buffer the grid and block of the launch, and every_thread=True when the kernel uses wl::every_thread"
    )
    shared = "several launches wrote to one buffer; give each launch its own"

    def __init__(
        self,
        driver: Driver,
        kernel: str,
        grid: Dim3,
        block: Dim3,
        plan: BufferPlan,
        *,
        full: str,
        stream: int,
        names: Names | None,
        costs: Mapping[str, Mapping[str, float]] | None = None,
        memory: int = 0,
        resources: Mapping[str, int] | None = None,
        device: Device | None = None,
        code: MachineCode | None = None,
    ) -> None:
        self.find_code: Callable[[], MachineCode] | None = None if code is None else lambda: code
        """Finds the machine code that the launch runs, once it is asked for."""
        self._driver, self._plan, self._full, self._names = driver, plan, full, names
        self._context, self._device = driver.context(), device
        self.kernel, self.grid, self.block = kernel, grid, block
        self._costs = costs or {}
        self._resources = dict(resources or {})
        # Memory that was lent is given back by who lent it.
        self._allocation = 0 if memory else driver.allocate(plan.allocation)
        self.address = plan.place(memory or self._allocation)
        # Where a kernel whose cubin is not known leaves its names.
        self._names_at = driver.allocate(NAMES_BYTES) if names is None else 0
        driver.clear(self.address, plan.size, stream)
        driver.upload(self.address, plan.header(self._names_at), stream)

    @property
    def machine_code(self) -> MachineCode | None:
        """The machine code of its kernel, if it is known."""
        return self.find_code() if self.find_code else None

    def collect(self) -> Launch:
        """The launch as the capture keeps it. The first of several collects does the waiting for all."""
        with self._driver.inside(self._context):
            return self._collect()

    def _collect(self) -> Launch:
        try:
            start = time.perf_counter()
            self._driver.synchronize()
            waited = time.perf_counter()
            launch = self._bring_home()
            spent = {"wait_ns": (waited - start) * 1e9, "finalize_ns": (time.perf_counter() - waited) * 1e9}
            return replace(launch, cost={**launch.cost, **spent})
        finally:
            self.free()

    def free(self) -> None:
        """Give the memory back; what was recorded in it is lost."""
        if self._allocation:
            self._driver.free(self._allocation)
        if self._names_at:
            self._driver.free(self._names_at)

    def _bring_home(self) -> Launch:
        head = np.frombuffer(self._driver.download(self.address, BUFFER_BYTES), BUFFER)[0]
        full = FULL_MODES[int(head["mode"])] or self._full
        tracks = self.address + BUFFER_BYTES
        plan = self._learned(head)
        headers = self._driver.download_rows(tracks, plan.stride, HEADER_BYTES, plan.tracks, HEADER_BYTES).view(HEADER)
        begun = headers["magic"] == TRACK_MAGIC
        self._refuse(int(head["refused"]), plan)
        if not np.any(begun):
            raise WarplensError(f"kernel {self.kernel!r} recorded nothing: {self.silent}")
        if head["starts"] > np.count_nonzero(begun & (headers["block"] == 0)):
            raise WarplensError(f"kernel {self.kernel!r}: {self.shared}")
        most = int(headers["written"].max(initial=0))
        # A warp that never reached its exit did not say how much it wrote, so all of its slots come along.
        running = bool(np.any(begun & (headers["state"] == 0)))
        capacity = ring_slots(plan.capacity) if full == "ring" else plan.capacity
        kept = replace(plan, capacity=capacity) if running else trimmed(plan, capacity, most, full)
        width = HEADER_BYTES + kept.capacity * SLOT_BYTES
        raw = self._driver.download_rows(tracks, plan.stride, width, plan.tracks, kept.stride)
        names = self._names if self._names is not None else self._names_on_device(head)
        store = STORES[int(head["store"])]
        known = {} if store == DIRECT else {"store": store}
        return Launch(
            kernel=names.kernel or self.kernel,
            grid=self.grid,
            block=self.block,
            regions=names.regions,
            locations=names.locations,
            capacity=kept.capacity,
            stride=kept.stride,
            raw=raw,
            full=full,
            cost=dict(self._costs.get(store, {})),
            extra={"records_per_warp": capacity, "records_needed": most, **known, **self._resources},
            device=self._device,
        )

    def _refuse(self, why: int, plan: BufferPlan) -> None:
        """What a warp that could not record said of it."""
        if not why:
            return
        reason = REFUSALS[why] if why < len(REFUSALS) else "tracks"
        shape = f"grid {self.grid}, block {self.block}"
        raise WarplensError(
            f"kernel {self.kernel!r} "
            + {
                "tracks": f"was launched with more warps than its buffer has tracks ({plan.tracks} for {shape}); "
                f"{self.too_small}",
                "block": f"has marks that are woven for blocks of whole warps, and {shape} has none; compile it with "
                "`warplens nvcc --any-block`",
                "room": "has woven marks, for which its buffer has no room; leave every_thread to kernels with "
                "wl::every_thread, and compile it with the warplens that runs it",
            }[reason]
        )

    def _learned(self, head: np.void) -> BufferPlan:
        """The plan, cut to the launch's shape where the device wrote it: the tracks past it were never used."""
        if not head["grid"].any():
            return self._plan
        x, y, z = (int(size) for size in head["grid"])
        u, v, w = (int(size) for size in head["block"])
        self.grid, self.block = (x, y, z), (u, v, w)
        return replace(self._plan, tracks=min(self._plan.tracks, x * y * z * -(-u * v * w // 32)))

    def _names_on_device(self, head: np.void) -> Names:
        size = min(int(head["names_size"]), NAMES_BYTES)
        return scan(self._driver.download(self._names_at, size)) if size else Names()
