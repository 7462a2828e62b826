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
import os
import pstats
import statistics
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
from triton.runtime import _allocation
from triton.runtime import driver as triton_driver

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.lib.ending_phases import timed_steps
from benchmarks.lib.idle_libcuda import idle_driver
from tests.support.small_launches import SMS, WARPS, small_launches
from warplens.driver.kernel_arguments import Shape
from warplens.frontends import cuda_core, cupy
from warplens.frontends.intercept.interceptor import Interceptor, PlainKernel
from warplens.frontends.intercept.woven_module import Twin
from warplens.frontends.triton.launch_hook import LaunchHook, WovenTwin, recording_launcher
from warplens.frontends.triton.weaving_compiler import Recipe, WeavingCompiler
from warplens.launch.short_turns import short_turns, wait_precisely
from warplens.launch.thinning import ALL_MARKS, Thinning
from warplens.launch.variant import Variant
from warplens.launch.weaving_options import weaving
from warplens.launch.woven import WovenKernel
from warplens.profiling.profile import Profile
from warplens.record.layout import HEADER, HEADER_BYTES
from warplens.session import Session, stack
from warplens.weave.weaving import Selection

LAUNCHES, REPEATS = 2000, 21
PAUSE_S = 4.0
"""After this, all launches are decoded in the background."""
SMALL = {"trace_bytes": 8 << 20}
GRID = (SMS, 1, 1)


def launch(*given: Any) -> None:
    """Stands for the launcher in C."""


def launcher(c_launch: Callable[..., None] = launch, scratch_bytes: int = 0) -> Any:
    """Triton's own launcher, for a kernel that takes so much profile scratch per block."""
    from triton.backends.nvidia.driver import CudaLauncher

    made = CudaLauncher.__new__(CudaLauncher)
    vars(made).update(
        launch=c_launch, num_ctas=1, launch_cooperative_grid=False, launch_pdl=False, gsan_enabled=False,
        global_scratch_size=0, global_scratch_align=1, profile_scratch_size=scratch_bytes, profile_scratch_align=128,
        arg_annotations=(), kernel_signature=b"",
    )  # fmt: skip
    return made


class Metadata:
    shared = 0


class PlainTritonKernel:
    function, metadata = 1, Metadata()


class TritonTwin:
    """A woven kernel; where its hook has tracks, a launch writes what the GPU would have."""

    function, packed_metadata, metadata = 1, (), Metadata()

    def __init__(self, hook: Hook) -> None:
        self._run = launcher(self._launch, 128)
        self._hook, self._count = hook, 0

    def _launch(self, *given: Any) -> None:
        if self._hook.tracks is not None:
            pointer = next(one for one in given[7:13] if isinstance(one, int))
            self._write(pointer & -128, 1 << (pointer & 127), self._hook.tracks)

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


KERNEL = WovenKernel(
    name="k", warps=WARPS, regions={1: "load", 2: "store"}, locations={}, slack=2, full="stop", store="late",
    select=Selection(),
)  # fmt: skip


class Hook(LaunchHook):
    """A hook whose kernel has a twin already."""

    tracks: npt.NDArray[np.uint8] | None = None

    def __init__(self, session: Session) -> None:
        super().__init__(session, WeavingCompiler(Recipe(weaving(session.options))))
        kernel, allocator = TritonTwin(self), _allocation._profile_allocator
        before = allocator.get()
        allocator.set(self._allocate)
        self.running, self._twin = True, WovenTwin(kernel, KERNEL, self._start(kernel._run))
        allocator.set(before)

    def variant(self, kernel: Any, grid: Any) -> Variant:
        return self.session.variant("k", 1, grid)

    def twin(self, kernel: Any, captured: bool, thinning: Thinning = ALL_MARKS) -> WovenTwin | None:
        return self._twin


class Intercepted(Interceptor):
    """An interceptor that knows the twin of its one kernel already."""

    twin = Twin("k", None, None, 1, 2, 3)  # type: ignore[arg-type]

    def _find(self, *given: Any) -> Twin:
        return self.twin

    def _tell(self, *given: Any) -> None:
        """Nothing was left out."""

    def _woven(self, *given: Any) -> WovenKernel:
        return KERNEL


Call = Callable[[], Any]
Calls = tuple[Call, Call, Call]
"""A plain launch, one of a kernel that warplens is done with, and a recorded one."""


def triton_calls(closing: Session, recording: Session) -> Calls:
    rest = ((), None, None, None, *range(12))
    plain, closed, recorded = launcher(), recorder(closing), recorder(recording)
    return (
        lambda: plain(*GRID, 7, 1, *rest),
        lambda: closed(*GRID, 7, 1, *rest),
        lambda: recorded(*GRID, 7, 1, *rest),
    )


def cupy_calls(closing: Session, recording: Session) -> Calls:
    """CuPy's own classes are not needed: what they do in C is the same for all three."""

    class Function:
        ptr, module = 1, None

        def __call__(
            self,
            grid: Any,
            block: Any,
            args: Any,
            shared_mem: int = 0,
            stream: Any = None,
            enable_cooperative_groups: bool = False,
        ) -> None:
            launch(grid, block, args, shared_mem, stream, enable_cooperative_groups)

    class Module:
        """Stands for CuPy's."""

    class Stream:
        ptr = 7

    stream = Stream()
    function = types.SimpleNamespace(Function=Function, Module=Module)
    cuda = types.SimpleNamespace(get_current_stream=lambda: stream, function=function)
    names = {"cupy": types.SimpleNamespace(cuda=cuda), "cupy.cuda": cuda, "cupy.cuda.function": function}
    with mock.patch.dict(sys.modules, names):  # type: ignore[arg-type]
        watched, _ = cupy._classes.__wrapped__()
    plain = Function()
    closed, recorded = (watched(Intercepted(one), plain, "k", {}) for one in (closing, recording))
    arguments = (1, 2, 3)
    return (
        lambda: plain(GRID, (128, 1, 1), arguments, enable_cooperative_groups=False),
        lambda: closed(GRID, (128, 1, 1), arguments, enable_cooperative_groups=False),
        lambda: recorded(GRID, (128, 1, 1), arguments, enable_cooperative_groups=False),
    )


def cuda_core_calls(closing: Session, recording: Session) -> Calls:
    import cuda.core

    class Kernel:
        @staticmethod
        def from_handle(handle: int) -> Kernel:
            return Kernel()

    class Stream:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, 7

    def launching(session: Session) -> Callable[..., None]:
        def plain_launch(stream: Any, config: Any, kernel: Any, *arguments: Any) -> None:
            launch(stream, config, kernel, *arguments)

        with mock.patch.object(cuda.core, "launch", plain_launch), mock.patch.object(cuda_core, "swap_all") as swap:
            cuda_core.install(Intercepted(session))
        made: Callable[..., None] = swap.call_args.args[0][0][1]
        return made

    config, kernel, stream = cuda.core.LaunchConfig(grid=GRID, block=(128, 1, 1)), Kernel(), Stream()
    closed, recorded = launching(closing), launching(recording)

    def plain(stream: Any, config: Any, kernel: Any, *arguments: Any) -> None:
        launch(stream, config, kernel, *arguments)

    return (
        lambda: plain(stream, config, kernel, 1, 2, 3),
        lambda: closed(stream, config, kernel, 1, 2, 3),
        lambda: recorded(stream, config, kernel, 1, 2, 3),
    )


LIBRARIES = {"triton": triton_calls, "cupy": cupy_calls, "cuda_core": cuda_core_calls}


def microseconds(call: Call, launches: int) -> float:
    """Processor time per launch."""
    start = time.process_time()
    for _ in range(launches):
        call()
    return (time.process_time() - start) / launches * 1e6


def recorder(session: Session, tracks: npt.NDArray[np.uint8] | None = None) -> Callable[..., Any]:
    hook = Hook(session)
    hook.tracks = tracks
    return recording_launcher(hook, PlainTritonKernel, launcher())


def one_kernel(*given: Any) -> tuple[PlainKernel, Shape]:
    """What any launch of cuda.core is of."""
    return PlainKernel("k", 1, str), Shape(GRID, (128, 1, 1), 0, 7)


@contextmanager
def without_gpu() -> Iterator[None]:
    """Have a driver library that does nothing, and a driver of Triton: from 3.9 on, its launcher asks for one even
    where it needs nothing of it."""
    with (
        idle_driver(),
        mock.patch.object(triton_driver, "_active", types.SimpleNamespace()),
        mock.patch.object(cuda_core, "_known", one_kernel),
    ):
        yield


@contextmanager
def running(session: Session) -> Iterator[None]:
    """Have a session on the stack, as if its profile had begun."""
    stack.push(session)
    try:
        yield
    finally:
        stack.remove(session)


def launches(library: str, profile: bool = False) -> dict[str, Any]:
    """Microseconds per launch: plain, and above that one that warplens is done with, and a recorded one."""
    closing, recording = Profile(launches=1), Profile(records_per_warp=16)
    plain, closed, recorded = LIBRARIES[library](closing, recording)
    with running(closing):
        for _ in range(100):
            closed()
    with running(recording):
        recorded()
        recording.buffers.engine().collector.close()  # bringing records home is measured by itself
        rounds = []
        for _ in range(REPEATS):
            times = microseconds(plain, LAUNCHES // 10), microseconds(recorded, LAUNCHES // 10)
            with running(closing):
                rounds.append((times[0], microseconds(closed, LAUNCHES // 10), times[1]))
        if profile:
            with cProfile.Profile() as profiler:
                for _ in range(LAUNCHES):
                    recorded()
            pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(30)
    recording.collect()
    more = [(closed - plain, recorded - plain) for plain, closed, recorded in rounds]
    return {
        "plain_us": statistics.median(one[0] for one in rounds),
        "closed_more_us": statistics.median(one[0] for one in more),
        "recorded_more_us": statistics.median(one[1] for one in more),
        "least_more_us": [min(one[0] for one in more), min(one[1] for one in more)],
    }


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
            recorded(*grid, 7, 1, (), None, None, None)
            if number < 3:
                prof.buffers.engine().collector.land_finished()
        time.sleep(pause)
        clocks = {"wall_s": time.perf_counter, "cpu_s": time.process_time, "thread_s": time.thread_time}
        before = {name: clock() for name, clock in clocks.items()}
        if profile:
            with cProfile.Profile() as profiler:
                prof._finish()
            pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(35)
        else:
            prof._finish()
        found = {name: clock() - before[name] for name, clock in clocks.items()}
        assert options or len(prof.trace) == LAUNCHES * blocks * WARPS * 2
        return found


def beside_decoding(launches: int = 60, rounds: int = 5) -> dict[str, dict[str, float]]:
    """Microseconds of recorded launches, 4 ms apart, while the launches before them are decoded in the background, and
    where nothing is, in turn. The launches of a GPU leave their records by themselves, so writing them is not
    counted."""
    times: dict[str, list[float]] = {"decoding": [], "not_decoding": []}
    for number in range(2 * rounds):
        kind = "not_decoding" if number % 2 else "decoding"
        times[kind] += _beside(launches, decoding=kind == "decoding")
    return {
        kind: {
            "median_us": statistics.median(found),
            "mean_us": statistics.mean(found),
            "p99_us": statistics.quantiles(found, n=100)[-1],
        }
        for kind, found in times.items()
    }


def _beside(launches: int, *, decoding: bool) -> list[float]:
    made, session, found = small_launches(1).launches[0], Profile(), []
    session.reset()
    if not decoding:
        session.buffers.idle = lambda: False
    hook = Hook(session)
    recorded = recording_launcher(hook, PlainTritonKernel, launcher())
    hook.tracks = made.raw.reshape(made.tracks, -1)
    for _ in range(16 * launches):
        recorded(*GRID, 7, 1, (), None, None, None)
    hook.tracks = None
    for _ in range(launches):
        time.sleep(0.004)
        before = time.perf_counter_ns()
        recorded(*GRID, 7, 1, (), None, None, None)
        found.append((time.perf_counter_ns() - before) / 1e3)
    session.collect()
    return found


def waiting_for_lock(waits: int = 400) -> dict[str, float]:
    """Median microseconds that a thread waits for Python's lock while another computes in short turns: as Linux times
    short waits by default, and as in a thread whose launches are recorded."""
    found = {}
    for kind, precise in (("default_us", False), ("recording_us", True)):
        ended = threading.Event()

        def compute(ended: threading.Event = ended) -> None:
            while not ended.is_set():
                pass

        thread, times = threading.Thread(target=compute), []
        wait_precisely(precise)
        with short_turns():
            thread.start()
            for _ in range(waits):
                start = time.perf_counter_ns()
                time.sleep(0)  # gives the lock away and takes it again
                times.append((time.perf_counter_ns() - start) / 1e3)
            ended.set()
            thread.join()
        found[kind] = statistics.median(times)
    wait_precisely(False)
    return found


def measure() -> dict[str, Any]:
    """Everything, as one document."""
    with without_gpu():
        found = {f"launch_{library}": launches(library) for library in LIBRARIES}
        best = {
            f"end_{name}_{blocks}_blocks": min(
                (end_of_profile(save, blocks=blocks) for _ in range(2)), key=lambda one: one["cpu_s"]
            )
            for name, save in (("trace", False), ("file", True))
            for blocks in (8, SMS)
        }
        later = {
            f"end_{name}_later": end_of_profile(save, pause=PAUSE_S, **options)
            for name, save, options in (("trace", False, {}), ("file", True, {}), ("sampled", False, SMALL))
        }
        sampled = {
            f"end_sampled_{name}": end_of_profile(save, **SMALL) for name, save in (("trace", False), ("file", True))
        }
        beside = {"beside_decoding": beside_decoding(), "waiting_for_lock": waiting_for_lock()}
        return {**found, **best, **later, **sampled, **beside, "launches": LAUNCHES, "load": os.getloadavg()[0]}


ENDS: dict[str, tuple[bool, int, dict[str, Any]]] = {
    "8 blocks": (False, 8, {}),
    "8 blocks to a file": (True, 8, {}),
    "132 blocks": (False, SMS, {}),
    "132 blocks to a file": (True, SMS, {}),
    "132 blocks, sampled": (False, SMS, SMALL),
    "132 blocks, sampled, to a file": (True, SMS, SMALL),
    "132 blocks, sampled with all lifetimes": (False, SMS, {"trace_bytes": 24 << 20}),
}
"""Ends of a profile: whether it writes a file, blocks of each launch, and options."""


def quickest_ends(times: int) -> dict[str, Any]:
    """The least time that each end of a profile takes, of several in turn, and how long its steps take in the quickest
    one."""
    found: dict[str, Any] = {}
    for _ in range(times):
        for name, (save, blocks, options) in ENDS.items():
            with without_gpu(), timed_steps() as steps:
                one = end_of_profile(save, blocks=blocks, **options)
            known = found.setdefault(name, {**one, "steps": steps})
            if one["thread_s"] < known["thread_s"]:
                known["steps"] = steps
            known |= {clock: min(seconds, known[clock]) for clock, seconds in one.items()}
    return {**found, "load": os.getloadavg()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ends", type=int, metavar="TIMES", help="only measure the end of profiles, so many times")
    parser.add_argument("--profile", choices=("launch", "trace", "file"), help="print where the time goes, too")
    parser.add_argument("--library", choices=LIBRARIES, default="triton", help="whose launch to profile")
    parser.add_argument("--blocks", type=int, default=SMS, help="of the launches whose profile ends")
    given = parser.parse_args()
    if given.ends:
        print(json.dumps(quickest_ends(given.ends), indent=1))
        return
    if given.profile:
        with without_gpu():
            ends = given.profile != "launch"
            name = given.library
            print(end_of_profile(given.profile == "file", True, given.blocks) if ends else launches(name, True))
        return
    print(json.dumps(measure()))


if __name__ == "__main__":
    main()
