"""CUDA source whose marks are woven into its PTX: compiled by the real NVRTC, run by the interpreter."""

from __future__ import annotations

import gc
import re
import weakref
from typing import Any

import numpy as np
import pytest

import warplens as wl
import warplens.cuda as wlcu
from tests.support.cuda_compilers import needs_nvrtc
from tests.support.simulated_driver import SimulatedDriver, in_place
from warplens.calibrate.cuda_marks import measure_woven
from warplens.errors import UsageError, WarplensError
from warplens.frontends.cuda import measured_cost
from warplens.frontends.cuda import module as module_file
from warplens.frontends.cuda.woven_build import how_for
from warplens.options import Options
from warplens.ptx.tree import parse

pytestmark = needs_nvrtc

SOURCE = """
#include <warplens.cuh>
__noinline__ __device__ int helper(int v, wl::Link& link) {
  wl::Callee here(link);
  WL_REGION("in helper");
  return v * 3;
}
extern "C" __global__ void work(int* out, int n, wl::Buffer prof) {
  wl::Kernel k(prof);
  int v = threadIdx.x;
  for (int i = 0; i < n; ++i) {
    WL_REGION("a step, 100%");
    { WL_REGION("add"); v += i; }
    WL_VALUE("i", i);
    WL_ASYNC_BEGIN("copy", i & 3);
    v ^= 5;
    WL_ASYNC_END("copy", i & 3);
  }
  WL_ANCHOR();
  WL_BEGIN("wait"); __syncthreads(); WL_END("wait");
  WL_INSTANT("done");
  out[blockIdx.x * blockDim.x + threadIdx.x] = HELPED;
}
"""
INLINED = SOURCE.replace("HELPED", "v")
CALLED = SOURCE.replace("HELPED", "[&] { wl::Link link; return helper(v, link); }()")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> SimulatedDriver:
    return in_place(monkeypatch, SimulatedDriver())


def profiled(gpu: SimulatedDriver, source: str, block: int = 64, **options: Any) -> tuple[Any, list[int]]:
    module = wlcu.compile(source, arch="sm_90", name="k.cu")
    out = gpu.allocate(4 * 2 * block)
    with wl.profile(**options) as profile:
        module["work"].launch(2, block, np.uint64(out), np.int32(5))
    return profile.trace, gpu.space.read(out, np.int32, 2 * block).tolist()


def expected(block: int, factor: int) -> list[int]:
    values = []
    for _ in range(2):
        for thread in range(block):
            v = thread
            for i in range(5):
                v = v + i ^ 5
            values.append(v * factor)
    return values


@pytest.mark.parametrize("block", [64, 48])
@pytest.mark.parametrize("source", ["inlined", "called"])
def test_every_mark_of_the_header_reaches_the_trace(gpu: SimulatedDriver, source: str, block: int) -> None:
    called = source == "called"
    trace, out = profiled(gpu, CALLED if called else INLINED, block)
    assert out == expected(block, 3 if called else 1)
    rows = trace.spans.to_pylist()
    tracks = {(row["block"], row["warp"]) for row in rows}
    assert tracks == {(b, w) for b in (0, 1) for w in (0, 1)}
    for track in tracks:
        mine = [row for row in rows if (row["block"], row["warp"]) == track]
        names = [row["region"] for row in mine]
        assert {name: names.count(name) for name in set(names)} == {
            "a step, 100%": 5, "add": 5, "i": 5, "copy": 5, "wait": 1, "done": 1, **({"in helper": 1} if called else {})
        }  # fmt: skip
        assert [row["value"] for row in mine if row["region"] == "i"] == [0, 1, 2, 3, 4]
        assert all(row["depth"] == 1 for row in mine if row["region"] == "add")
    assert trace.meta.losses.clean
    assert trace.meta.clock.anchors == 4 * 3
    assert trace.meta.locations["add"] == "k.cu:13"
    spread = not called and block == 64
    assert (trace.meta.launches[0].extra["store"] == "spread") == spread


@pytest.mark.parametrize("source", [INLINED, CALLED])
def test_a_kernel_in_a_graph_is_recorded_at_each_replay(gpu: SimulatedDriver, source: str) -> None:
    module = wlcu.compile(source, arch="sm_90", name="k.cu")
    out = gpu.allocate(4 * 2 * 64)
    with wl.profile() as profile:
        module["work"].launch(2, 64, np.uint64(out), np.int32(5))
        captured = gpu.graphs.begin(9)
        known = profile.replays.graph(gpu.capture(9))
        module["work"].launch(2, 64, np.uint64(out), np.int32(5), stream=9)
        gpu.graphs.end(captured)
        for _ in range(3):
            profile.replays.replay(known, 9, captured.replay)
    assert gpu.space.read(out, np.int32, 128).tolist() == expected(64, 3 if source is CALLED else 1)
    rows = profile.trace.spans.to_pylist()
    launches = [sorted((r["block"], r["warp"], r["region"]) for r in rows if r["launch"] == n) for n in range(4)]
    assert launches[0]
    assert all(one == launches[0] for one in launches)
    assert [launch.extra.get("node") for launch in profile.trace.meta.launches] == [None, 0, 0, 0]


VALUES = """
#include <warplens.cuh>
struct Half { float v; __device__ explicit operator float() const { return v; } };  // as __half and __nv_bfloat16 are
enum class Stage { fill = 3 };
extern "C" __global__ void work(int* out, int n, wl::Buffer prof) {
  wl::Kernel k(prof);
  WL_VALUE("half", Half{0.5f * n});
  WL_VALUE("stage", Stage::fill);
  WL_VALUE("short", static_cast<short>(-n));
  WL_VALUE("flag", n > 3);
  out[blockIdx.x * blockDim.x + threadIdx.x] = n;
}
"""


def test_values_of_any_type_that_is_a_number(gpu: SimulatedDriver) -> None:
    trace, _ = profiled(gpu, VALUES)
    rows = [row for row in trace.spans.to_pylist() if row["track"] == 0]
    assert {row["region"]: row["value"] for row in rows} == {"half": 2.5, "stage": 3, "short": -5, "flag": 1}
    assert set(wlcu.compile(VALUES, arch="sm_90").regions().values()) == {"half", "stage", "short", "flag"}


def test_a_profile_that_nobody_holds_goes_with_its_records(gpu: SimulatedDriver) -> None:
    module, out = wlcu.compile(INLINED, arch="sm_90", name="k.cu"), gpu.allocate(4 * 64)
    profile = wl.profile()
    with profile:
        module["work"].launch(1, 64, np.uint64(out), np.int32(5))
    left = weakref.ref(profile)
    del profile
    gc.collect()
    assert left() is None


def test_a_kernel_is_looked_up_once_however_often_it_is_launched(gpu: SimulatedDriver) -> None:
    module = wlcu.compile(INLINED, arch="sm_90", name="k.cu")
    out = gpu.allocate(4 * 64)
    with wl.profile() as profile:
        for _ in range(3):
            module["work"].launch(1, 64, np.uint64(out), np.int32(2))
    # Once when the module is loaded, to see whether it spills, and once to launch it.
    assert len(gpu.functions) == 2
    assert profile.trace.meta.losses.clean
    assert len(profile.trace.meta.launches) == 3


def test_a_kernel_runs_on_whichever_gpu_is_current(gpu: SimulatedDriver) -> None:
    """Each GPU has a context, and a module is loaded into one; records are read in that of their launch."""
    module = wlcu.compile(INLINED, arch="sm_90", name="k.cu")
    out = gpu.allocate(4 * 64)
    with wl.profile() as profile:
        for gpu.current in (1, 2, 1, 2):
            module["work"].launch(1, 64, np.uint64(out), np.int32(2))
        gpu.current = 1
    assert gpu.homes == [1, 2], "once per GPU, not once per launch"
    assert len(profile.trace.meta.launches) == 4
    assert profile.trace.meta.losses.clean
    assert set(gpu.waited) == {1, 2}
    assert gpu.current == 1
    assert [info.device for info in profile.trace.meta.launches] == [0, 1, 0, 1]
    assert sorted(profile.trace.meta.devices) == ["0", "1"]
    rows = profile.trace.spans.to_pylist()
    assert {(row["launch"], row["device"]) for row in rows} == {(0, 0), (1, 1), (2, 0), (3, 1)}


def test_options_of_woven_kernels_reach_cuda(gpu: SimulatedDriver) -> None:
    trace, _ = profiled(gpu, INLINED, warps=[1], blocks=[0], clock="64", full="stop")
    assert {(row["block"], row["warp"]) for row in trace.spans.to_pylist()} == {(0, 1)}
    trace, _ = profiled(gpu, INLINED, granularity="block")
    assert {(row["block"], row["warp"]) for row in trace.spans.to_pylist()} == {(0, 0), (1, 0)}
    trace, out = profiled(gpu, INLINED, mode="aggregate")
    assert out == expected(64, 1)
    assert {row.region: row.count for row in trace.stats()} == {"a step, 100%": 20, "add": 20, "wait": 4}
    with pytest.raises(UsageError, match="mode='aggregate' is not there for CUDA kernels"):
        profiled(gpu, CALLED, mode="aggregate")
    with pytest.raises(UsageError, match="buffer='shared' is not there for CUDA kernels"):
        profiled(gpu, INLINED, buffer="shared")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("k(prof)", "k(prof, wl::lane(3))"), "another leader"),
        (("wl::Kernel k(prof);", ""), "marks that no wl::Kernel opens: the direct way says so"),
        (("int v = threadIdx.x;", "int v = threadIdx.x"), "an error in the source: the direct way says so"),
    ],
)
def test_what_the_weaver_cannot_do_is_compiled_the_direct_way(change: tuple[str, str], why: str) -> None:
    assert module_file.Module(INLINED.replace(*change), "k.cu", "sm_90", (), woven=True).ptx is None, why
    assert module_file.Module(INLINED, "k.cu", "sm_90", (), woven=True).ptx is not None
    assert module_file.Module(INLINED, "k.cu", "sm_90", (), woven=False).ptx is None


@pytest.mark.slow  # six calibrations in the interpreter
def test_a_calibration_of_woven_marks_goes_with_the_launches_it_is_true_of(
    gpu: SimulatedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = measure_woven(gpu, "sm_90", "stop")  # type: ignore[arg-type]
    assert list(found) == ["spread", "mixed", "defer", "now"]
    for store, calibration in found.items():
        assert calibration.device == "interpreter"
        assert 0 <= calibration.record < 60, store
        assert calibration.alone > calibration.record, "where nothing hides it, a record costs more"
        monkeypatch.setitem(measured_cost.calibrations, ("interpreter", store, "stop"), calibration.cost)
    for options in ({}, {"store": "now"}):
        trace, _ = profiled(gpu, INLINED, **options)
        assert trace.time_shift() is not None, options
    # 48 threads leave a warp that is not whole, so lane 0 stores each record.
    trace, _ = profiled(gpu, INLINED, block=48)
    assert trace.meta.launches[0].extra["store"] in ("mixed", "defer")
    assert trace.time_shift() is not None
    for options in ({"full": "ring"}, {"clock": "64"}):
        trace, _ = profiled(gpu, INLINED, **options)
        with pytest.raises(WarplensError, match="has no calibration"):
            trace.time_shift()
    assert list(measure_woven(gpu, "sm_90", "ring")) == ["mixed", "now"]  # type: ignore[arg-type]


def test_words_kept_in_registers_are_given_up_where_they_make_the_kernel_spill(
    gpu: SimulatedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resources(function: int) -> dict[str, int]:
        text, _ = gpu.functions[function]
        return {"registers": 32, "shared_bytes": 0, "local_bytes": 24 * ("%wl_k" in text)}

    monkeypatch.setattr(gpu, "resources", resources)
    trace, out = profiled(gpu, re.sub(r"WL_(VALUE|ASYNC_\w+)\(.*?\);", "", INLINED))
    assert out == expected(64, 1)
    assert "%wl_k" in gpu.images[0]
    assert len(gpu.images) == 2, "what no longer spills is not woven again"
    assert gpu.unloaded == [0], "what spilled is given back"
    assert "%wl_k" not in gpu.launched[0]
    assert len(trace) == 4 * (2 * 5 + 2)


def test_a_driver_older_than_the_compiler_gets_machine_code(gpu: SimulatedDriver, monkeypatch: Any) -> None:
    module = module_file.Module(INLINED, "k.cu", "sm_90", (), woven=True)
    entries = {entry.name for entry in parse(module.ptx or "").entries}
    assert entries == {"work"}

    def refuse(image: bytes) -> int:
        raise WarplensError("cuModuleLoadData failed: CUDA_ERROR_UNSUPPORTED_PTX_VERSION")

    monkeypatch.setattr(gpu, "load", refuse)
    assert module.woven(how_for(Options(), (64, 1, 1))) is None
    assert module.ptx is None


@pytest.mark.parametrize("spills", [False, True])
def test_kernels_that_marks_cost_many_registers_are_limited_where_that_spills_nothing(
    gpu: SimulatedDriver, monkeypatch: pytest.MonkeyPatch, spills: bool
) -> None:
    def resources(function: int) -> dict[str, int]:
        text, _ = gpu.functions[function]
        most = re.search(r"\.maxnreg (\d+)", text)
        registers = int(most[1]) if most else 60 if "@woven" in text else 40
        return {"registers": registers, "shared_bytes": 0, "local_bytes": 8 * (spills and most is not None)}

    monkeypatch.setattr(gpu, "resources", resources)
    trace, out = profiled(gpu, INLINED)
    assert out == expected(64, 1)
    woven, plain, limited = gpu.images
    assert "@woven" not in plain
    assert limited == woven.replace("\n{", "\n.maxnreg 44\n{", 1)
    assert (".maxnreg" in gpu.launched[0]) is not spills
    assert gpu.unloaded == [1, 2 if spills else 0]
    extra = trace.meta.launches[0].extra
    assert (extra["registers"], extra["registers_plain"]) == (60 if spills else 44, 40)
