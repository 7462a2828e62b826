"""`stalls=True` on a real GPU: a region that chases pointers waits for memory, one of dependent operations for them."""

from __future__ import annotations

import numpy as np
import pytest

import warplens as wl
import warplens.cuda as wlcu
from tests.support.cuda_gpu import NEEDS_GPU, Ints
from tests.support.sass_kernels import needs_tools

pytestmark = [*NEEDS_GPU, needs_tools]

SOURCE = r"""
#include <warplens.cuh>
extern "C" __global__ void two(const int* zeros, int* out, int steps, wl::Buffer prof) {
  wl::Kernel kernel(prof);
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  int at = 0;
  float x = i;
  for (int j = 0; j < steps; ++j) {
    {
      WL_REGION("chase");
      #pragma unroll 1
      for (int k = 0; k < 8; ++k) at = zeros[(at + i * 64) & ((1 << 20) - 1)];
    }
    {
      WL_REGION("chain");
      #pragma unroll 1
      for (int k = 0; k < 64; ++k) { x = x * 1.01f + 0.1f; x = x * 0.99f + 0.1f; x = x * 1.01f - 0.1f; }
    }
  }
  out[i] = at + (int)x;
}
"""


def test_regions_stall_for_known_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPLENS_VERIFY", "1")
    kernel = wlcu.compile(SOURCE, name="two.cu")["two"]
    zeros, out = Ints(1 << 20), Ints(132 * 256)
    with wl.profile(stalls=True) as prof:
        for _ in range(5):
            kernel.launch(132, 256, zeros, out, np.int32(256))
    found = prof.trace.stalls()
    refused = [note for note in found.notes if note.startswith("not sampled")]
    if refused:
        pytest.skip(refused[0])
    rows = {one.region: one for one in found.regions}
    assert next(iter(rows["chase"].stall_shares)) == "long_scoreboard"
    assert next(iter(rows["chain"].stall_shares)) == "wait"
    shares = prof.trace.stats()
    for region, row in rows.items():
        assert row.share == pytest.approx(shares[region].share, abs=0.1)
