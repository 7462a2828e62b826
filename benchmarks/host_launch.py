"""Host time that warplens adds to a launch and to the end of a profile, without a GPU.

    PYTHONPATH=src python -m benchmarks.host_launch

The driver's library does nothing (benchmarks/lib/idle_libcuda.c), so calls are made and cost what a call costs; what
a real driver does in them comes on top.
"""

from __future__ import annotations

import argparse
import cProfile
import ctypes
import json
import pstats
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.lib.idle_libcuda import idle_driver
from tests.support.small_launches import SMS, WARPS, small_launches
from warplens.frontends.triton.launch_hook import LaunchHook, recording_launcher
from warplens.frontends.triton.weaving_compiler import Recipe, WeavingCompiler
from warplens.launch.thinning import ALL_MARKS, Thinning
from warplens.launch.variant import Variant
from warplens.launch.weaving_options import weaving
from warplens.launch.woven import WovenKernel
from warplens.profiling.profile import Profile
from warplens.record.layout import HEADER, HEADER_BYTES
from warplens.session import Session
from warplens.weave.weaving import Selection

LAUNCHES, REPEATS = 2000, 7
GRID = (SMS, 1, 1)


def launch(*given: Any) -> None:
    """Stands for the launcher in C."""


class Launcher:
    """What Triton 3.6's launcher does in Python; `scratch` is the allocator of a kernel with profile scratch."""

    def __init__(self, scratch: Callable[..., Any] | None = None) -> None:
        self.scratch, self.num_ctas = scratch, 1

    def __call__(self, x: int, y: int, z: int, stream: int, function: Any, *rest: Any) -> None:
        def allocate(size: int, align: int, allocator: Any) -> Any:
            if size > 0:
                return allocator(x * y * z * self.num_ctas * size, align, stream)
            return None

        nothing = allocate(0, 1, None)
        scratch = allocate(0 if self.scratch is None else 1, 128, self.scratch)
        launch(x, y, z, stream, function, False, False, nothing, scratch, *rest)


class Metadata:
    shared = 0


class PlainKernel:
    function, metadata = 1, Metadata()


class Twin:
    """A woven kernel; where its hook has tracks, a launch writes what the GPU would have."""

    function, packed_metadata, metadata = 1, (), Metadata()

    def __init__(self, hook: Hook) -> None:
        self._run = Launcher(self._allocate)
        self._hook, self._count = hook, 0

    def _allocate(self, *given: Any) -> Any:
        pointer = self._hook._allocate(*given)
        if self._hook.tracks is not None:
            self._write(pointer & -128, 1 << (pointer & 127), self._hook.tracks)
        return pointer

    def _write(self, address: int, stride: int, tracks: npt.NDArray[np.uint8]) -> None:
        """Leave these tracks in the launch's memory, each launch 64 µs later than the one before."""
        self._count += 1
        memory = np.ctypeslib.as_array((ctypes.c_uint8 * (len(tracks) * stride)).from_address(address))
        rows = memory.reshape(len(tracks), stride)
        rows[:, : tracks.shape[1]] = tracks
        header = np.ndarray(len(tracks), HEADER, rows, strides=(stride,))
        for name, step in (("ns", 64_000), ("clock", 64_000 * 1755 // 1000)):
            for end in ("start", "exit"):
                header[f"{end}_{name}"] += step * self._count
        rows[:, HEADER_BYTES : HEADER_BYTES + 32].view("<u4")[:, 1::2] += np.uint32(112_320 * self._count)

    @property
    def run(self) -> Launcher:
        return self._run


KERNEL = WovenKernel(
    name="k", warps=WARPS, regions={1: "load", 2: "store"}, locations={}, slack=2, full="stop", store="late",
    select=Selection(),
)  # fmt: skip


class Hook(LaunchHook):
    """A hook whose kernel has a twin already."""

    tracks: npt.NDArray[np.uint8] | None = None

    def __init__(self, session: Session) -> None:
        super().__init__(session, WeavingCompiler(Recipe(weaving(session.options))))
        self.running, self._twin = True, Twin(self)

    def variant(self, kernel: Any, grid: Any) -> Variant:
        return self.session.variant("k", 1, grid)

    def twin(self, kernel: Any, captured: bool, thinning: Thinning = ALL_MARKS) -> tuple[Any, WovenKernel] | None:
        return self._twin, KERNEL


def microseconds(call: Callable[..., Any], launches: int = LAUNCHES) -> list[float]:
    """Processor time per launch of some repeats; a launch has as many arguments as one of Triton's."""
    rest = ((), None, None, None, *range(12))
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        for _ in range(launches):
            call(*GRID, 7, 1, *rest)
        times.append((time.process_time() - start) / launches * 1e6)
    return times


def recorder(session: Session, tracks: npt.NDArray[np.uint8] | None = None) -> Callable[..., Any]:
    hook = Hook(session)
    hook.tracks = tracks
    return recording_launcher(hook, PlainKernel, Launcher())


def launches(profile: bool = False) -> dict[str, Any]:
    """Microseconds per launch: plain, one that warplens is done with, and a recorded one."""
    plain = Launcher()
    closed = recorder(Profile(launches=1))
    for _ in range(100):
        closed(*GRID, 7, 1, (), None)
    session = Profile(records_per_warp=16)
    recorded = recorder(session)
    recorded(*GRID, 7, 1, (), None)
    session.buffers.engine().collector.close()  # bringing records home is measured by itself
    found: dict[str, list[float]] = {"plain_us": [], "closed_us": [], "recorded_us": []}
    for _ in range(3):
        for name, call in zip(found, (plain, closed, recorded), strict=True):
            found[name] += microseconds(call, LAUNCHES // 10)
    if profile:
        with cProfile.Profile() as profiler:
            for _ in range(LAUNCHES):
                recorded(*GRID, 7, 1, (), None)
        pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(30)
    session.collect()
    result: dict[str, Any] = {name: statistics.median(times) for name, times in found.items()}
    return result | {"spread_us": {name: [min(times), max(times)] for name, times in found.items()}}


def end_of_profile(
    save: bool, profile: bool = False, blocks: int = SMS, pause: float = 0.0, **options: Any
) -> dict[str, float]:
    """Seconds from the last of 2,000 launches of 4 warps per block with two spans each to the trace, or to its file;
    with a `pause`, from so many seconds after it."""
    made, grid = small_launches(1, blocks=blocks).launches[0], (blocks, 1, 1)
    with tempfile.TemporaryDirectory() as folder:
        prof = Profile(Path(folder) / "out.warplens" if save else None, **options)
        prof.reset()
        recorded = recorder(prof, made.raw.reshape(made.tracks, -1))
        # The first launch gets tracks of another size, which its records show.
        for number in range(LAUNCHES):
            recorded(*grid, 7, 1, (), None)
            if number < 3:
                prof.buffers.engine().collector.land_finished()
        time.sleep(pause)
        wall, cpu = time.perf_counter(), time.process_time()
        if profile:
            with cProfile.Profile() as profiler:
                prof._finish()
            pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(35)
        else:
            prof._finish()
        found = {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
        assert options or len(prof.trace) == LAUNCHES * blocks * WARPS * 2
        return found


def measure() -> dict[str, Any]:
    """Everything, as one document."""
    with idle_driver():
        found = launches()
        best = {
            f"end_{name}_{blocks}_blocks": min(
                (end_of_profile(save, blocks=blocks) for _ in range(2)), key=lambda one: one["cpu_s"]
            )
            for name, save in (("trace", False), ("file", True))
            for blocks in (8, SMS)
        }
        return {**found, **best, "launches": LAUNCHES}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", choices=("launch", "trace", "file"), help="print where the time goes, too")
    parser.add_argument("--blocks", type=int, default=SMS, help="of the launches whose profile ends")
    given = parser.parse_args()
    if given.profile:
        with idle_driver():
            ends = given.profile != "launch"
            print(end_of_profile(given.profile == "file", True, given.blocks) if ends else launches(True))
        return
    print(json.dumps(measure()))


if __name__ == "__main__":
    main()
