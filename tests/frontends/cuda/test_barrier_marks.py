"""WL_WAIT, WL_ARRIVE, WL_COPY and events, compiled by the real NVRTC and run by the interpreter."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import warplens as wl
import warplens.cuda as wlcu
from tests.support.cuda_compilers import ON, needs_nvrtc
from tests.support.simulated_driver import SimulatedDriver, in_place
from warplens import simulate
from warplens.decode import decode
from warplens.frontends.cuda.nvrtc import compile_ptx
from warplens.record.capture import Capture, Device, Launch
from warplens.record.launch_buffer import BUFFER_BYTES, plan
from warplens.record.name_table import region_id
from warplens.trace.model import Trace

pytestmark = needs_nvrtc

SOURCE = """
#include <warplens.cuh>
__device__ void wait(unsigned long long* barrier, unsigned parity) {
  asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra W; }"
    :: "r"((unsigned)__cvta_generic_to_shared(barrier)), "r"(parity) : "memory");
}
__device__ void arrive(unsigned long long* barrier) {
  const unsigned address = (unsigned)__cvta_generic_to_shared(barrier);
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(address) : "memory");
}
extern "C" __global__ void work(int* out, int n, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ unsigned long long full, empty;
  __shared__ int cell;
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 32;" :: "r"((unsigned)__cvta_generic_to_shared(&full)));
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 32;" :: "r"((unsigned)__cvta_generic_to_shared(&empty)));
  }
  __syncthreads();
  int sum = 0;
  for (int i = 0; i < n; ++i) {
    if (threadIdx.x < 32) {
      { WL_WAIT("empty", &empty, (i + 1) & 1); wait(&empty, (i + 1) & 1); }
      WL_EVENT_START("tile", i);
      for (int j = 0; j < 40; ++j) sum = sum * 3 + j;
      if (threadIdx.x == 0) cell = i;
      WL_ARRIVE("filled", &full);
      arrive(&full);
    } else {
      { WL_WAIT("full", &full, i & 1); wait(&full, i & 1); }
      sum += cell;
      WL_EVENT_END("tile", i);
      WL_ARRIVE("used", &empty);
      arrive(&empty);
    }
  }
  if (threadIdx.x >= 32) out[blockIdx.x * 32 + threadIdx.x - 32] = sum;
}
"""
STEPS = 6


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> SimulatedDriver:
    return in_place(monkeypatch, SimulatedDriver())


def woven(gpu: SimulatedDriver) -> Trace:
    module = wlcu.compile(SOURCE, arch="sm_90", name="k.cu")
    out = gpu.allocate(4 * 2 * 32)
    with wl.profile() as profile:
        module["work"].launch(2, 64, np.uint64(out), np.int32(STEPS))
    assert gpu.space.read(out, np.int32, 64).tolist() == [sum(range(STEPS))] * 64
    return profile.trace


def direct(_: SimulatedDriver) -> Trace:
    grid, block = (2, 1, 1), (64, 1, 1)
    sizes = plan(grid, block, records=128)
    memory = simulate.GlobalMemory()
    out, buffer = memory.alloc(4 * 64), memory.alloc(sizes.allocation, align=128)
    memory.write(buffer, np.frombuffer(sizes.header(), np.uint8))
    text = compile_ptx(SOURCE, "k.cu", "sm_90", ON)
    simulate.run(text, "work", grid, block, [out, STEPS, buffer], memory=memory)
    assert memory.read(out, np.int32, 64).tolist() == [sum(range(STEPS))] * 64
    raw = memory.read(buffer + BUFFER_BYTES, np.uint8, sizes.tracks * sizes.stride)
    regions = {region_id(name): name for name in ("empty", "full", "tile", "filled", "used")}
    launch = Launch("work", grid, block, regions, sizes.capacity, raw, stride=sizes.stride, clock="simulated")
    return decode(Capture([launch], Device(clock_mhz=1755.0)))


@pytest.mark.parametrize("recorded", [woven, direct])
def test_hand_marks_tell_who_waited_for_whom(
    gpu: SimulatedDriver, recorded: Callable[[SimulatedDriver], Trace]
) -> None:
    trace = recorded(gpu)
    warp, region = trace.numpy("warp"), trace.spans["region"].to_pylist()
    found = {
        (
            region[edge["wait"]],
            int(warp[edge["wait"]]),
            region[edge["arrival_record"]],
            int(warp[edge["arrival_record"]]),
        )
        for edge in trace.edges.to_pylist()
        if edge["kind"] == "arrive"
    }
    assert found == {("full", 1, "filled", 0), ("empty", 0, "used", 1)}
    assert "unknown" not in trace.edges["kind"].to_pylist()
    assert trace.edges.num_rows == 2 * (2 * STEPS - 1), "the first wait for an empty barrier has nobody to wait for"
    assert trace.meta.losses.clean


@pytest.mark.parametrize("recorded", [woven, direct])
def test_a_region_begins_in_one_warp_and_ends_in_another(
    gpu: SimulatedDriver, recorded: Callable[[SimulatedDriver], Trace]
) -> None:
    rows = [row for row in recorded(gpu).spans.to_pylist() if row["region"] == "tile"]
    spans = [row for row in rows if row["kind"] == "span"]
    assert [(row["warp"], row["open"]) for row in spans] == [(0, False)] * 2 * STEPS
    ends = sorted(row["start_cycle"] for row in rows if row["kind"] == "instant")
    assert sorted(row["start_cycle"] + row["dur_cycles"] for row in spans) == ends
    assert min(row["dur_cycles"] for row in spans) > 0


def test_marks_that_are_off_leave_nothing() -> None:
    off = compile_ptx(SOURCE, "k.cu", "sm_90", ("-DWARPLENS=0",))
    bare = SOURCE
    marks = [
        'WL_EVENT_START("tile", i);', 'WL_EVENT_END("tile", i);', 'WL_ARRIVE("filled", &full);',
        'WL_ARRIVE("used", &empty);', 'WL_WAIT("empty", &empty, (i + 1) & 1);', 'WL_WAIT("full", &full, i & 1);',
    ]  # fmt: skip
    for mark in marks:
        assert mark in bare
        bare = bare.replace(mark, "")
    plain = compile_ptx(bare, "k.cu", "sm_90", ("-DWARPLENS=0",))
    assert off.split(".visible .entry")[1] == plain.split(".visible .entry")[1]
