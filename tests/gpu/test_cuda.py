"""The CUDA front end on a real GPU: `python -m pytest tests/gpu -q`."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import warplens as wl
import warplens.cuda as wlcu
from tests.support.cuda_gpu import NEEDS_GPU, SAXPY, Ints, has_gpu, in_parallel
from tests.support.paths import SHIM
from tests.support.shim_records import SLOTS_PER_STEP, step, tracks
from warplens.decode import decode
from warplens.driver.kernel_arguments import pack
from warplens.driver.libcuda import driver
from warplens.errors import WarplensError
from warplens.frontends.cuda.module import Module
from warplens.launch.direct import DeviceBuffer
from warplens.record.capture import Capture, Launch, read_capture, write_capture
from warplens.record.launch_buffer import BUFFER_BYTES, DIRECT_SPARE, plan
from warplens.record.layout import HEADER_BYTES, SLOT_BYTES, TrackState

HERE = Path(__file__).resolve().parent
BENCHMARKS = HERE.parent.parent / "benchmarks" / "kernels"


pytestmark = NEEDS_GPU
needs = {
    name: pytest.mark.skipif(importlib.util.find_spec(name) is None, reason=f"needs {name}")
    for name in ("torch", "cupy")
}


@pytest.fixture(scope="session")
def kernels() -> Module:
    return wlcu.compile(SHIM / "kernels.cu")


@pytest.fixture(scope="session")
def specialised() -> Module:
    return wlcu.compile(HERE / "specialised.cu")


def record(
    module: Module, kernel: str, grid: tuple[int, int, int], block: tuple[int, int, int], *arguments: Any,
    records: int = 200, full: str = "stop", every_thread: bool = False,
) -> Launch:  # fmt: skip
    """Launch outside a profile and return the raw launch; checks that nothing was written past the spare slots."""
    build = module.build(full)
    sizes = plan(grid, block, records=records, full="stop", every_thread=every_thread)
    lent = DeviceBuffer(driver(), kernel, grid, block, sizes, full=full, stream=0, names=build.names)
    function, parameters = module[kernel]._function(driver(), full)
    packed = pack(kernel, (*arguments, np.uint64(lent.address)), parameters)
    driver().launch(function, grid, block, packed, 0, 0)
    driver().synchronize()
    whole = np.frombuffer(driver().download(lent.address + BUFFER_BYTES, sizes.tracks * sizes.stride), np.uint8)
    beyond = whole.reshape(sizes.tracks, sizes.stride)[:, HEADER_BYTES + (records + DIRECT_SPARE) * SLOT_BYTES :]
    assert not beyond.any(), "a store past the track's spare slots"
    launch = lent.collect()
    golden(launch, f"cuda_{kernel}_{full}_{records}")
    return launch


LATE = r"""
#include <warplens.cuh>
extern "C" __global__ void late(int* out, int spin, wl::Buffer prof) {
  wl::Kernel k(prof);
  const long long begin = clock64();
  if (threadIdx.x >= 32) while (clock64() - begin < spin) {}
  { WL_REGION("syncthreads"); __syncthreads(); }
  if (threadIdx.x >= 32) while (clock64() - begin < 2 * spin) {}
  { WL_REGION("count"); out[threadIdx.x] = __syncthreads_count(threadIdx.x & 1); }
  if (threadIdx.x >= 32) while (clock64() - begin < 3 * spin) {}
  { WL_REGION("named"); asm volatile("bar.sync 1, 64;" ::: "memory"); WL_SETTLE(); }
}
"""


def test_a_region_around_a_barrier_lasts_as_long_as_the_latest_warp_takes() -> None:
    """The barrier's own clock fault: without a warp barrier behind it, the end is read on arrival (a few cycles)."""
    spin = 4000
    launch = record(wlcu.compile(LATE, name="late.cu"), "late", (2, 1, 1), (64, 1, 1), Ints(64), spin)
    rows = decode(Capture([launch], device=driver().device())).spans.to_pylist()
    assert {row["region"] for row in rows} == {"syncthreads", "count", "named"}
    for row in rows:
        if row["warp"] == 0:
            assert 0.7 * spin < row["dur_cycles"] < 1.2 * spin, row
        else:
            assert row["dur_cycles"] < 200, row


CLUSTER = r"""
#include <warplens.cuh>
extern "C" __global__ void __cluster_dims__(2, 1, 1) exchange(int* out, int spin, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ int mine;
  const long long begin = clock64();
  if (threadIdx.x == 0) mine = 100 + blockIdx.x;
  if (blockIdx.x & 1) while (clock64() - begin < spin) {}
  {
    WL_REGION("meet");
    asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
    WL_SETTLE();
  }
  int theirs;
  {
    WL_REGION("read");
    unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(&mine));
    asm volatile("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(at) : "r"(1 - (blockIdx.x & 1)));
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(theirs) : "r"(at) : "memory");
    out[blockIdx.x * blockDim.x + threadIdx.x] = theirs;
  }
  asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
}
"""


@pytest.mark.skipif(not has_gpu() or float(driver().device().capability) < 9, reason="needs a GPU with clusters")
@pytest.mark.parametrize("woven", [True, False])
def test_blocks_of_a_cluster_have_tracks_of_their_own(woven: bool) -> None:
    """Direct and woven marks number blocks by the grid; who waits for the other block of the cluster is seen to."""
    spin, out = 6000, Ints(8 * 64)
    module = wlcu.compile(CLUSTER, name="cluster.cu")
    if woven:
        with wl.profile() as profile:
            module["exchange"].launch((8, 1, 1), (64, 1, 1), out, spin)
        spans = profile.trace.spans
    else:
        launch = record(module, "exchange", (8, 1, 1), (64, 1, 1), out, spin)
        spans = decode(Capture([launch], device=driver().device())).spans
    assert out.read() == [100 + (block ^ 1) for block in range(8) for _ in range(64)]
    rows = spans.to_pylist()
    assert sorted((row["block"], row["warp"], row["region"]) for row in rows) == sorted(
        (block, warp, region) for block in range(8) for warp in range(2) for region in ("meet", "read")
    )
    for row in rows:
        if row["region"] == "meet" and row["block"] % 2 == 0:
            assert row["dur_cycles"] > 0.7 * spin, row
        elif row["region"] == "meet":
            assert row["dur_cycles"] < 0.3 * spin, row


def golden(launch: Launch, name: str) -> None:
    """Real captures for the tests that need no GPU."""
    folder = os.environ.get("WARPLENS_GOLDEN_OUT")
    if folder and len(launch.raw) < 2 << 20:
        root = f"{HERE.parent.parent}/"
        launch = replace(launch, locations={k: text.replace(root, "") for k, text in launch.locations.items()})
        write_capture(Capture([launch], device=driver().device()), Path(folder) / f"{name}.wlcap")


@pytest.mark.parametrize("records", [0, 1, 32, 33, 34, 200])
@pytest.mark.parametrize("full", ["stop", "ring"])
def test_nested_regions_at_every_capacity(kernels: Module, full: str, records: int) -> None:
    everything = [line for i in range(3) for line in step(i)]
    launch = record(kernels, "nested", (2, 2, 1), (16, 2, 2), Ints(512), 3, records=records, full=full)
    assert launch.full == full
    found = tracks(launch)
    assert [(int(head["block"]), int(head["warp"])) for head, _ in found] == [
        (b, w) for b in range(4) for w in range(2)
    ]
    for head, lines in found:
        lines = [line for line in lines if line != "empty 0"]
        assert (head["written"], head["state"], head["lane"]) == (3 * SLOTS_PER_STEP, TrackState.EXITED, 0)
        assert head["exit_clock"] > head["start_clock"]
        assert head["exit_ns"] >= head["start_ns"] > 1_600_000_000_000_000_000
        expected = everything[: len(lines)] if full == "stop" else everything[len(everything) - len(lines) :]
        assert lines == expected
        if records >= 33 and (full == "stop" or records > 64):
            assert lines == everything
    if records >= 200:
        trace = decode(Capture([launch], device=driver().device()))
        assert trace.meta.losses.clean
        assert trace.spans.slice(0, 3).to_pydict()["region"] == ["step", "inner", "manual"]


def test_results_are_bit_identical_and_the_buffer_optional(kernels: Module) -> None:
    plain, profiled = Ints(512), Ints(512)
    kernels["nested"].launch((2, 2), (16, 2, 2), plain, 100)
    with wl.profile() as prof:
        kernels["nested"].launch((2, 2), (16, 2, 2), profiled, 100)
    assert plain.read() == profiled.read()
    assert prof.trace.meta.losses.clean
    assert prof.trace.meta.devices or prof.device.name != "unknown"
    stats = {row.region: row.count for row in prof.trace.stats().rows} if hasattr(prof.trace.stats(), "rows") else {}
    assert not stats or stats["step"] == 8 * 100


def test_early_return_divergence_and_open_regions(kernels: Module) -> None:
    opened, closed = ["begin outer", "begin open", "end outer"], ["begin outer", "begin open", "end open", "end outer"]
    out = Ints(128)
    found = tracks(record(kernels, "early", (2, 1, 1), (64, 1, 1), out))
    assert [lines for _, lines in found] == [opened, closed, opened, closed]
    assert out.read()[:4] == [2, 1, 2, 1]
    assert out.read()[32:34] == [3, 1]
    for _, lines in tracks(record(kernels, "diverge", (2, 1, 1), (40, 1, 1), Ints(128))):
        assert lines == ["begin both", "begin lane 0", "end lane 0", "end both", "instant after"]


def test_who_records(kernels: Module) -> None:
    wanted = {
        "by_block": [(0, 0), None],
        "by_warp1": [None, (1, 0)],
        "by_lane5": [(0, 5), (1, 5)],
        "by_predicate": [(0, 7), (1, 7)],
    }
    for kernel, recording in wanted.items():
        found = tracks(record(kernels, kernel, (2, 1, 1), (64, 1, 1)))
        for (head, lines), who in zip(found, recording * 2, strict=True):
            assert lines == (["instant a", "instant b"] if who else []), kernel
            assert head["state"] == TrackState.EXITED, kernel
            assert who is None or (head["warp"], head["lane"]) == who, kernel
    found = tracks(record(kernels, "by_thread", (2, 1, 1), (64, 1, 1), every_thread=True))
    assert [(int(h["warp"]), int(h["lane"])) for h, _ in found] == [(t // 32, t % 32) for t in range(64)] * 2
    assert all(lines == ["instant a", "instant b"] for _, lines in found)


def test_linked_functions_async_work_and_anchors(kernels: Module) -> None:
    for _, lines in tracks(record(kernels, "linked", (2, 1, 1), (64, 1, 1), Ints(128))):
        assert lines == ["instant before", "begin apart", "end apart", "instant after"]
    for _, lines in tracks(record(kernels, "async_copy", (2, 1, 1), (64, 1, 1))):
        assert lines[:4] == ["async_begin copy", "async_begin copy #1", "async_begin copy #2", "anchor 0"]
        assert [i for i, line in enumerate(lines) if line.startswith("anchor")] == [3, 8, 73]


def test_warp_specialised_kernel_with_setmaxnreg(specialised: Module) -> None:
    rounds, out, plain = 20, Ints(2 * 256), Ints(2 * 256)
    launch = record(specialised, "specialised", (2, 1, 1), (384, 1, 1), out, rounds, records=400)
    specialised["specialised"].launch(2, 384, plain, rounds)
    assert out.read() == plain.read()
    assert out.read()[0] == 3 * rounds * (rounds - 1) // 2
    for head, lines in tracks(launch):
        produce = ["begin acquire", "end acquire", "begin produce", "end produce", "begin publish", "end publish"]
        consume = ["begin wait", "end wait", "begin consume", "end consume"]
        assert lines == (produce if head["warp"] < 4 else consume) * rounds


def test_a_warp_that_exits_in_the_middle_of_a_region(specialised: Module) -> None:
    launch = record(specialised, "leaves", (1, 1, 1), (64, 1, 1), Ints(64))
    (first, lines), (second, _) = tracks(launch)
    assert lines == ["instant first", "begin never ended", "end never ended"]
    assert first["state"] == TrackState.EXITED
    assert second["state"] == TrackState.RUNNING
    trace = decode(Capture([launch], device=driver().device()))
    assert trace.meta.losses.tracks_without_exit == 1


def test_a_launch_larger_than_its_buffer_is_refused_not_written(kernels: Module) -> None:
    with pytest.raises(WarplensError, match="more warps than its buffer"), wl.profile() as prof:
        address = wlcu.buffer(1, 32, kernel="by_block")
        function, sizes = kernels["by_block"]._function(driver(), "stop")
        driver().launch(function, (4, 1, 1), (64, 1, 1), pack("by_block", (address,), sizes), 0, 0)
    assert len(prof.trace) == 0


def test_instants_after_a_barrier_land_together_within_what_the_trace_states() -> None:
    """The barrier that lets go when the global timer shows an agreed time: what is left is the fit's (see
    benchmarks/placement.py for barriers that take their own time to reach every SM)."""
    module = wlcu.compile(BENCHMARKS / "placement.cu", options=["-DRELEASE=4"])
    blocks, rounds = driver().device().sm_count, 5
    for _ in range(20):
        memory = Ints(32 * (2 + blocks + blocks * blocks + blocks))
        launch = record(module, "barrier", (blocks, 1, 1), (512, 1, 1), memory, rounds, 0, records=3 * rounds)
        trace = decode(Capture([launch], device=driver().device()))
        start, sm = trace.numpy("start_ns").reshape(-1, rounds), trace.numpy("sm").reshape(-1, rounds)[:, 0]
        first = np.array([start[sm == number].min(axis=0) for number in np.unique(sm)])
        assert len(first) == blocks
        assert trace.meta.losses.clean
        assert 0 < trace.meta.clock.residual_p99_ns < 64
        assert np.ptp(first, axis=0).max() <= min(150, 2 * trace.meta.clock.residual_max_ns)


def test_calibrated_durations_are_those_of_the_work() -> None:
    accurate = wlcu.compile(BENCHMARKS / "accuracy.cu", options=["-DWORK=0", "-DAMOUNT=256", "-DEACH=0"])
    calibration = wlcu.calibrate()
    # A record inside a region is a clock read that issues while the fmas wait, and its store comes later: it may be 0.
    assert 0 <= calibration.record < 60
    assert -4 <= calibration.region < 60, "a region ends when its last fma is issued, 4 cycles before its result"
    assert calibration.empty < 60
    assert 0 <= calibration.behind <= 4, "records of one block lie in one store, so none waits for another's"
    assert calibration.noted < 60
    assert 0 < calibration.alone < 60, "where nothing hides it, a record takes cycles"
    repeats = 200
    samples = Ints(2 * 2 * repeats)
    with wl.profile() as prof:
        accurate["accuracy"].launch(1, 32, samples, np.uint64(0), repeats)
    raw, corrected = prof.trace.numpy("dur_cycles")[20:], prof.trace.time_shift()[20:]
    assert float(np.median(raw - corrected)) == calibration.region, "raw values stay"
    once, twice = np.array(samples.read(), np.int32).view(np.int64).reshape(2, -1)[:, 20:]
    length = np.median(twice) - np.median(once)
    assert length == pytest.approx(4 * 256, rel=0.005), "a dependent fma takes 4 cycles"
    assert abs(float(np.median(corrected)) - length) <= 2


@pytest.mark.parametrize("woven", [True, False])
@pytest.mark.parametrize("each", [0, 64])
def test_calibrated_regions_inside_each_other_lose_what_their_marks_took(woven: bool, each: int) -> None:
    """Five regions in each other, `each` fmas of 4 cycles in all but the outermost."""
    options = ["-DWORK=4", "-DAMOUNT=4", f"-DEACH={each}"]
    nested = wlcu.compile(BENCHMARKS / "accuracy.cu", options=options, woven=woven)["accuracy"]
    wlcu.calibrate()
    repeats = 100
    samples = Ints(2 * 2 * repeats)
    with wl.profile(records_per_warp=16 * repeats) as prof:
        nested.launch(1, 32, samples, np.uint64(0), repeats)
    depth, corrected = prof.trace.numpy("depth"), prof.trace.time_shift()
    found = [float(np.median(corrected[depth == level][20:])) for level in range(5)]
    errors = [abs(cycles - 4 * each * fmas) for cycles, fmas in zip(found, (4, 4, 3, 2, 1), strict=True)]
    assert float(np.median(errors)) <= 2, found
    assert max(errors) <= 12, found


def test_a_module_runs_in_every_context() -> None:
    """Each GPU of a process has a context; a second one on this GPU is as foreign to the first's modules."""
    module, lib, second = wlcu.compile(SAXPY, name="saxpy.cu"), driver(), ctypes.c_void_p()
    lib._call("cuCtxCreate_v2", ctypes.byref(second), ctypes.c_uint(0), ctypes.c_int(lib.device().index))
    lib._call("cuCtxPopCurrent", ctypes.byref(ctypes.c_void_p()))
    try:
        with wl.profile() as prof:
            for context in (lib.context(), second.value or 0, lib.context()):
                with lib.inside(context):
                    x, y = Ints(256), Ints(256)
                    module["saxpy"].launch(2, 128, np.float32(2), x, y, 256)
                    lib.synchronize()
                    del x, y
        assert len(prof.trace.meta.launches) == 3
        assert prof.trace.meta.losses.clean
    finally:
        lib._call("cuCtxDestroy_v2", second)


def test_many_launches_need_no_wait_between_them(kernels: Module) -> None:
    out = Ints(512)
    with wl.profile(records_per_warp=64) as prof:
        for _ in range(50):
            kernels["nested"].launch((2, 2), (16, 2, 2), out, 3)
    assert len(prof.trace.meta.launches) == 50
    assert prof.trace.meta.losses.clean


@needs["cupy"]
@pytest.mark.parametrize("how", ["RawKernel", "RawModule", "nvcc"])
def test_cupy(how: str) -> None:
    import cupy

    if how == "RawKernel":
        kernel = cupy.RawKernel(SAXPY, "saxpy", options=wlcu.flags())
    else:
        backend = "nvcc" if how == "nvcc" else "nvrtc"
        kernel = cupy.RawModule(code=SAXPY, options=wlcu.flags(), backend=backend).get_function("saxpy")
    n = 1000
    x, y = cupy.arange(n, dtype=cupy.float32), cupy.ones(n, dtype=cupy.float32)
    with wl.profile() as prof:
        kernel((8,), (128,), (np.float32(2), x, y, np.int32(n), wlcu.buffer(8, 128, kernel="saxpy")))
    assert float(y[10]) == 21.0
    assert set(prof.trace.regions) == {"saxpy", "load"}
    assert prof.trace.kernels == ["saxpy"]
    kernel((8,), (128,), (np.float32(2), x, y, np.int32(n), wlcu.buffer(8, 128)))
    assert float(y[10]) == 41.0


@needs["cupy"]
def test_cuda_core() -> None:
    core = pytest.importorskip("cuda.core")
    import cupy

    device = core.Device()
    device.set_current()
    stream = device.create_stream()
    arch = "sm_" + "".join(str(part) for part in device.compute_capability)
    options = core.ProgramOptions(std="c++17", arch=arch, include_path=wlcu.include_dir())
    kernel = core.Program(SAXPY, code_type="c++", options=options).compile("cubin").get_kernel("saxpy")
    x, y = cupy.arange(1000, dtype=cupy.float32), cupy.ones(1000, dtype=cupy.float32)
    cupy.cuda.Device().synchronize()
    with wl.profile() as prof:
        handle = wlcu.buffer(8, 128, kernel="saxpy", stream=stream)
        config = core.LaunchConfig(grid=8, block=128)
        core.launch(stream, config, kernel, np.float32(2), x.data.ptr, y.data.ptr, np.int32(1000), handle)
    assert float(y[10]) == 21.0
    assert set(prof.trace.regions) == {"saxpy", "load"}


EXTENSION = """
#include <torch/extension.h>
#include "sm_profiler.h"
__global__ void seed(uint64_t* buffer) {
  const bool leader = sm_profiler_get_lane_id() == 0;
  sm_profiler_event_start(buffer, 0, leader);
  sm_profiler_event_instant(buffer, 1, leader);
  sm_profiler_event_end(buffer, 0, leader);
}
void run_seed(torch::Tensor buffer) { seed<<<4, 64>>>(reinterpret_cast<uint64_t*>(buffer.data_ptr<int64_t>())); }
void run_saxpy(torch::Tensor x, torch::Tensor y, double a, int64_t prof) {
  saxpy<<<8, 128>>>(a, x.data_ptr<float>(), y.data_ptr<float>(), x.numel(), wl::Buffer{(unsigned long long)prof});
}"""


def _load_inline(folder: Path) -> Any:
    import torch
    from torch.utils.cpp_extension import load_inline

    os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "{}.{}".format(*torch.cuda.get_device_capability()))
    declarations = """void run_seed(torch::Tensor buffer);
    void run_saxpy(torch::Tensor x, torch::Tensor y, double a, int64_t prof);"""
    return load_inline(
        "wl_extension", cpp_sources=declarations, cuda_sources=SAXPY + EXTENSION, functions=["run_seed", "run_saxpy"],
        extra_cuda_cflags=list(wlcu.flags()), build_directory=str(folder),
    )  # fmt: skip


@pytest.fixture(scope="session", autouse=True)
def building(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Future[Any] | None]:
    """The torch extension takes a minute to build, so that starts before the first test."""
    wanted = any("extension" in getattr(item, "fixturenames", ()) for item in request.session.items)
    if not (wanted and importlib.util.find_spec("torch") and shutil.which("ninja") and shutil.which("nvcc")):
        yield None
        return
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(_load_inline, tmp_path_factory.mktemp("extension"))


@pytest.fixture
def extension(building: Future[Any] | None) -> Any:
    if building is None:
        pytest.skip("needs torch, ninja and nvcc")
    return building.result()


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    if shutil.which("nvcc") is None:
        pytest.skip("needs nvcc")
    folder = tmp_path_factory.mktemp("programs")
    arch = "sm_" + driver().device().capability.replace(".", "")
    common = ["nvcc", "-std=c++17", "-O2", f"-arch={arch}", f"-I{wlcu.include_dir()}"]
    builds = {
        "stop": [HERE / "program.cu"],
        "ring": [HERE / "program.cu", "-DWARPLENS_RING=1"],
        "quick start": [SHIM / "quick_start.cu"],
    }
    for done in in_parallel([[*common, *what, "-o", folder / name] for name, what in builds.items()]):
        assert done.returncode == 0, done.stderr
    return {name: folder / name for name in builds}


def test_a_program_without_python(programs: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "all.wlcap"
    done = subprocess.run([programs["stop"], "all", "200", out], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "lost 0\n"), done.stderr
    capture = read_capture(out)
    assert len(capture.launches) == 10
    assert capture.device.name == driver().device().name
    for _, lines in tracks(capture.launches[0]):
        assert lines == [line for i in range(3) for line in step(i)], "names come from the module's memory"
    events = json.loads(Path(f"{out}.json").read_text())["traceEvents"]
    assert {"step", "lane 0", "copy"} <= {event["name"] for event in events}
    assert all(event["ts"] >= 0 for event in events if "ts" in event)


def test_the_sm_profiler_quick_start(programs: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "trace.json"
    done = subprocess.run([programs["quick start"], out, "4", "4", "100", "1"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    events = [(e["ph"], e["name"]) for e in json.loads(out.read_text())["traceEvents"] if e["ph"] != "M"]
    nested = [("B", "compute"), ("B", "memory"), ("B", "memory"), ("E", "memory"), ("E", "memory"), ("E", "compute")]
    assert events == [*nested, ("i", "sync"), ("i", "event 31")] * 16
    done = subprocess.run([programs["quick start"], out, "2", "3", "3", "1"], capture_output=True, text=True)
    assert "92 records were lost" in done.stderr
    done = subprocess.run([programs["quick start"], out, "4", "4", "100", "0"], capture_output=True, text=True)
    assert done.returncode == 0


SANITIZERS = ("memcheck", "racecheck", "initcheck")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("compute-sanitizer") is None, reason="needs compute-sanitizer")
def test_compute_sanitizer_finds_nothing(programs: dict[str, Path], tmp_path: Path) -> None:
    """All kernels with no room, one record too little, exactly enough and to spare; the seed's API likewise."""
    commands: dict[str, list[str | Path]] = {}
    for mode in ("stop", "ring"):
        for tool in SANITIZERS:
            out = tmp_path / f"{mode}-{tool}.wlcap"
            commands[f"{tool} {mode}"] = ["--tool", tool, programs[mode], "all", "0,32,33,200", out]
    for number, shape in enumerate(("4 4 100 1", "2 3 3 1", "4 4 100 0")):
        out = tmp_path / f"{number}.json"
        commands[f"seed {shape}"] = ["--tool", "memcheck", programs["quick start"], out, *shape.split()]
    sanitizer = ["compute-sanitizer", "--error-exitcode", "9"]
    results = in_parallel([[*sanitizer, *command] for command in commands.values()])
    for name, done in zip(commands, results, strict=True):
        assert done.returncode == 0, f"{name}: {done.stdout[-3000:]}{done.stderr[-1000:]}"
        assert "ERROR SUMMARY: 0 errors" in done.stdout or "RACECHECK SUMMARY: 0 hazards" in done.stdout, name
    for mode in ("stop", "ring"):
        assert len(read_capture(tmp_path / f"{mode}-memcheck.wlcap").launches) == 40


def test_the_command_line_reads_a_cpp_capture(programs: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "nested.wlcap"
    subprocess.run([programs["stop"], "nested", "200", out], check=True, capture_output=True)
    done = subprocess.run([sys.executable, "-m", "warplens", "stats", out, "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "inner" in done.stdout


def test_torch_load_inline(extension: Any) -> None:
    import torch

    x, y = torch.arange(1000, dtype=torch.float32, device="cuda"), torch.ones(1000, device="cuda")
    with wl.profile() as prof:
        extension.run_saxpy(x, y, 2.0, int(wlcu.buffer(8, 128, kernel="saxpy")))
    assert y[10].item() == 21.0
    assert set(prof.trace.regions) == {"saxpy", "load"}


def test_sm_profiler_from_python(extension: Any, tmp_path: Path) -> None:
    import torch

    from warplens.compat.sm_profiler import SmProfiler

    profiler = SmProfiler(num_blocks=4, num_groups=2, max_events_per_group=10)
    profiler.register_event(0, "compute")
    profiler.register_event(1, "tick")
    extension.run_seed(profiler.get_buffer())
    torch.cuda.synchronize()
    trace = profiler.trace()
    assert trace.spans["region"].to_pylist() == ["compute", "tick"] * 8
    profiler.export(tmp_path / "trace.json")
    profiler.print_stats()
    profiler.init_buffer()
    extension.run_seed(profiler.get_buffer())
    assert len(profiler.trace()) == 16
    off = SmProfiler(num_blocks=4, num_groups=2, max_events_per_group=10, enabled=False)
    extension.run_seed(off.get_buffer())
    torch.cuda.synchronize()
