"""Which loops of unknown length run equally often in all warps of a block, and in all blocks."""

from __future__ import annotations

import pytest

from tests.support.cuda_compilers import needs_nvrtc
from warplens.analyse.code_counts import CodeCounts
from warplens.frontends.cuda import woven_build
from warplens.frontends.cuda.nvrtc import compile_ptx, cuda_includes
from warplens.weave.weaver import weave
from warplens.weave.weaving import SymbolBuffer

_KERNEL = """
#include <warplens.cuh>
extern "C" __global__ void __launch_bounds__(256)
k(const float* in, float* out, const int* lengths, int* counter, int n, wl::Buffer prof) {{
  wl::Kernel kernel(prof);
  const int tid = threadIdx.x, warp = tid / 32, block = blockIdx.x;
  __shared__ int shared;
  float v = in[block * 256 + tid];
  {before}
  {{
    WL_REGION("it");
#pragma unroll 1
    {loop}
  }}
  out[block * 256 + tid] = v;
}}
"""
_STEP = "v = v * 0.5f + 1.0f;"


def counts(loop: str, before: str = "") -> CodeCounts:
    source = _KERNEL.format(loop=loop, before=before)
    text = compile_ptx(source, "k.cu", "sm_90a", [*cuda_includes(), *woven_build.FLAGS])
    code = weave(text, buffer=SymbolBuffer()).code["k"]
    return CodeCounts.of(next(one for number, one in code.items() if number))


@needs_nvrtc
@pytest.mark.parametrize(
    ("loop", "before", "by_warp", "by_block"),
    [
        (f"for (int i = 0; i < n; ++i) {_STEP}", "", False, False),
        ("for (int i = tid; i < n; i += 256) v += in[i];", "", False, False),
        ("for (int i = warp; i < n; i += 8) v += in[i];", "", False, False),
        ("for (int i = block * 256 + tid; i < n; i += gridDim.x * 256) v += in[i];", "", False, False),
        (f"for (int i = 0; i < m; ++i) {_STEP}", "int m = lengths[0];", False, False),
        (f"for (int i = 0; i < m; ++i) {_STEP}", "int m = lengths[block];", False, True),
        (f"for (int i = 0; i < m; ++i) {_STEP}", "int m = lengths[block * 8 + warp];", True, True),
        (f"for (int i = 0; i < 16 + block * n; ++i) {_STEP}", "", False, True),
        (f"for (int i = tid; i < n; ++i) {_STEP}", "", True, True),
        (f"for (int i = 0; i < tid; ++i) {_STEP}", "", True, True),
        (f"for (int i = lengths[block]; i < lengths[block + 1]; ++i) {_STEP}", "", False, True),
        ("while (v > 1e-3f) v *= 0.5f;", "", True, True),
        (f"for (int i = 0; i < n; ++i) {{ if (v > 9) break; {_STEP} }}", "", True, True),
        # Of the items, each warp takes those of its own, which are of different length; or all take each.
        (f"for (int j = 0; j < 8; ++j) if (j == warp) for (int i = 0; i < lengths[j]; ++i) {_STEP}", "", True, True),
        (f"for (int j = 0; j < n; ++j) for (int i = 0; i < lengths[j]; ++i) {_STEP}", "", False, False),
        (f"if (warp == 0) for (int i = 0; i < n; ++i) {_STEP}", "", False, False),
        (f"for (int i = 0; i < m; ++i) {_STEP}",
         "if (tid == 0) shared = atomicAdd(counter, 1); __syncthreads(); int m = shared;", False, True),
    ],
)  # fmt: skip
def test_what_ends_a_loop_says_whether_it_is_equally_long(
    loop: str, before: str, by_warp: bool, by_block: bool
) -> None:
    found = counts(loop, before)
    assert found.unbounded
    assert (found.differs_by_warp, found.differs_by_block) == (by_warp, by_block)


def test_of_older_recordings_nothing_is_known() -> None:
    old = CodeCounts.of({"instructions": 9, "unbounded": 1})
    assert old.differs_by_warp
    assert old.differs_by_block
    assert not CodeCounts.of({"instructions": 9}).differs_by_block
