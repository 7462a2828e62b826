"""Marks in every kind of control flow, run by the interpreter: direct and woven marks leave the same spans, and the
kernel's results are those of the kernel without marks, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import warplens as wl
import warplens.cuda as wlcu
from tests.support.cuda_compilers import OFF, ON, needs_nvrtc
from tests.support.simulated_driver import SimulatedDriver, in_place
from warplens import simulate
from warplens.decode import decode
from warplens.frontends.cuda.nvrtc import compile_ptx
from warplens.frontends.cuda.woven_build import names_in
from warplens.record.capture import Capture, Launch
from warplens.record.launch_buffer import BUFFER_BYTES, plan
from warplens.trace.model import Trace

pytestmark = needs_nvrtc

GRID, BLOCK, TURNS, THREADS = (2, 2, 1), (8, 4, 3), 9, 96
SOURCE = r"""
#include <warplens.cuh>
template <int N> __forceinline__ __device__ int helper(int v) {
  WL_REGION("helper");
  if constexpr (N > 2) { WL_REGION("big"); v *= 3; } else { WL_REGION("small"); v += 1; }
  return v;
}
extern "C" __global__ void flow(int* out, int n, wl::Buffer prof) {
  wl::Kernel k(prof);
  const int t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const int b = blockIdx.x + gridDim.x * blockIdx.y;
  int v = t + b, j = 0;
  for (int i = 0; i < n; ++i) {
    WL_REGION("turn");
    if ((i + b) % 3 == 1) { WL_INSTANT("skip"); continue; }
    if (i == 5 + b) { WL_INSTANT("break"); break; }
    WL_BEGIN("mma"); v = helper<3>(v); v = helper<1>(v); WL_END("mma");
    WL_VALUE("i", i); WL_VALUE("f", 0.5f * i); WL_VALUE("b", i > 2);
    switch (i & 3) {
      case 0: { WL_REGION("case 0"); v ^= 1; } break;
      case 1: WL_INSTANT("case 1");
      default: WL_INSTANT("default");
    }
    if (t % 32 >= 16) { WL_REGION("upper half"); v += 7; }
    if (t % 32 < 16) { WL_REGION("lower half"); v += 9; }
    if (b == 3 && i == 4) { out[b * 96 + t] = v; return; }
  }
again:
  { WL_REGION("goto"); v += j; if (v % 5 == 0 && t == 0) goto done; }
  if (++j < 3) goto again;
done:
  auto f = [&](int q) { WL_REGION("lambda"); v += q; };
  f(1); f(2);
  if (t & 1) { out[b * 96 + t] = v; return; }
  { WL_REGION("odd lanes gone"); v *= 2; }
  out[b * 96 + t] = v;
}
"""


def _spans(trace: Trace) -> list[tuple[Any, ...]]:
    assert trace.meta.losses.clean
    columns = ("block", "warp", "region", "kind", "depth", "value")
    return [tuple(row[name] for name in columns) for row in trace.spans.to_pylist()]


def _results(space: simulate.GlobalMemory, out: int) -> list[int]:
    return list(space.read(out, np.int32, 4 * THREADS))


def _compiled(options: tuple[str, ...], records: int) -> tuple[Trace | None, list[int]]:
    """The trace of marks that the compiler saw (None without room for any), and what the kernel computed."""
    text, space, sizes = compile_ptx(SOURCE, "k.cu", "sm_90", options), simulate.GlobalMemory(4 << 20), None
    out, address = space.alloc(4 * 4 * THREADS), 0
    if records:
        sizes = plan(GRID, BLOCK, records=records)
        address = sizes.place(space.alloc(sizes.allocation))
        space.write(address, np.zeros(sizes.size, np.uint8))
        space.write(address, np.frombuffer(sizes.header(), np.uint8))
    simulate.run(text, "flow", GRID, BLOCK, [out, TURNS, address], memory=space)
    if sizes is None:
        return None, _results(space, out)
    raw = space.read(address + BUFFER_BYTES, np.uint8, sizes.tracks * sizes.stride)
    launch = Launch("flow", GRID, BLOCK, names_in(text).regions, sizes.capacity, raw, stride=sizes.stride)
    return decode(Capture([launch])), _results(space, out)


@pytest.mark.parametrize("options", [{}, {"store": "now"}])
def test_direct_and_woven_marks_agree_and_change_no_result(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    _, plain = _compiled(OFF, 0)
    direct, computed = _compiled(ON, 400)
    assert direct is not None
    assert computed == plain
    assert len({row[2] for row in _spans(direct)}) == 17, "every mark but those of the upper half, which has no lane 0"
    gpu = in_place(monkeypatch, SimulatedDriver())
    out = gpu.allocate(4 * 4 * THREADS)
    module = wlcu.compile(SOURCE, arch="sm_90")
    assert module.ptx is not None
    with wl.profile(**options) as profile:
        module["flow"].launch(GRID, BLOCK, np.uint64(out), TURNS)
    assert _results(gpu.space, out) == plain
    assert _spans(profile.trace) == _spans(direct)
