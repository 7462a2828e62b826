"""Which barriers of CUDA kernels are needed: a table of kernels whose answer is known, and random ones that are run."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cuda_compilers import needs_nvrtc
from warplens.frontends.cuda import woven_build
from warplens.frontends.cuda.nvrtc import compile_ptx, cuda_includes
from warplens.ptx.barrier_need import Need, barrier_needs
from warplens.ptx.control_flow import ControlFlow
from warplens.ptx.tree import parse

pytestmark = needs_nvrtc
ATTENTION = Path(__file__).parents[2] / "examples" / "attention"
NEEDED, UNNEEDED, UNKNOWN = Need.NEEDED, Need.UNNEEDED, Need.UNKNOWN
_ARGUMENTS = "const float* in, float* out, const int* at, int n"
_KERNEL = """
#define SYNC __syncthreads()
extern "C" __global__ void {bounds} k({arguments}) {{
  const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
  float v = in[blockIdx.x * 256 + tid];
  {body}
  out[blockIdx.x * 256 + tid] = v;
}}
"""
_REDUCE = "for (int s = 16; s; s /= 2) v += __shfl_xor_sync(~0u, v, s);"
_ONE_PER_WARP = "if (lane == 0) part[warp] = v; SYNC; v = 0; for (int i = 0; i < 8; ++i) v += part[i];"


def needs(body: str, bounds: str = "__launch_bounds__(256)") -> list[Need]:
    rounds = body.replace("for (int r", "\n#pragma unroll 1\nfor (int r")
    source = _KERNEL.format(bounds=bounds, arguments=_ARGUMENTS, body=rounds)
    text = compile_ptx(source, "k.cu", "sm_90a", woven_build.FLAGS)
    (function,) = parse(text).entries
    return [*barrier_needs(function, ControlFlow(function)).values()]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        # One value per warp, which all read; once more in each round, so that it is read before it is overwritten.
        (f"__shared__ float part[8]; {_REDUCE} {_ONE_PER_WARP}", [{NEEDED}]),
        (f"__shared__ float part[8]; for (int r = 0; r < n; ++r) {{ {_REDUCE} {_ONE_PER_WARP} SYNC; }}",
         [{NEEDED}, {NEEDED}]),
        # Two arrays that take turns need no second barrier.
        (f"__shared__ float a[8], b[8]; float* part = a; {_REDUCE} {_ONE_PER_WARP} part = b; {_ONE_PER_WARP}",
         [{NEEDED}, {NEEDED}]),
        # A value that one thread finds.
        ("__shared__ float one; if (tid == 0) one = v; SYNC; v += one;", [{NEEDED}]),
        ("__shared__ float part[8]; if (lane == 0) part[warp] = v; SYNC; v += part[warp];", [{UNNEEDED}]),
        # Rows of a warp's own in any order; the rows of the next warp.
        ("__shared__ float t[256]; t[tid] = v; SYNC; v = t[warp * 32 + (lane * 5 + 3) % 32];", [{UNNEEDED}]),
        ("__shared__ float t[288]; t[tid] = v; SYNC; v = t[tid + 32];", [{NEEDED}]),
        ("__shared__ float t[256]; t[tid] = v; SYNC; v = t[tid ^ 16]; SYNC; t[tid] = v; SYNC; v += t[tid ^ 32];",
         [{UNNEEDED}, {UNNEEDED, NEEDED}, {NEEDED}]),
        # The same buffer in each round: filled by all, read by all.
        ("__shared__ float t[256]; for (int r = 0; r < n; ++r) { t[tid] = in[r * 256 + tid]; SYNC; "
         "for (int i = 0; i < 256; ++i) v += t[i]; SYNC; }", [{NEEDED, UNKNOWN}, {NEEDED, UNKNOWN}]),
        # A loop of unknown length over a dynamic array; the pointer is one register that moves on.
        ("extern __shared__ float t[]; for (int i = warp; i < n; i += 8) if (lane == 0) t[i] = v; SYNC; "
         "for (int i = tid; i < n; i += 256) v += t[i];", [{NEEDED, UNKNOWN}]),
        ("__shared__ float t[1024]; for (int i = tid; i < 1024; i += 256) t[i] = in[i]; SYNC; "
         "for (int i = 0; i < n; ++i) v += t[i];", [{NEEDED, UNKNOWN}]),
        # Two names of the same dynamic memory; two arrays of fixed size.
        ("extern __shared__ float t[]; extern __shared__ int u[]; t[tid] = v; SYNC; v += u[255 - tid];",
         [{UNKNOWN, NEEDED}]),
        ("__shared__ float t[256]; extern __shared__ float u[]; t[tid] = v; SYNC; v += u[255 - tid];", [{UNNEEDED}]),
        ("extern __shared__ float t[]; float* u = t + n; t[tid] = v; SYNC; v += u[255 - tid];", [{UNKNOWN, NEEDED}]),
        # One of two buffers, by a condition of the data or by the round.
        ("__shared__ float a[256], b[256]; float* p = n & 1 ? a : b; p[tid] = v; SYNC; v += a[255 - tid];",
         [{UNKNOWN, NEEDED}]),
        ("__shared__ float t[2][256]; for (int r = 0; r < n; ++r) { t[r & 1][tid] = v; SYNC; "
         "v += t[r & 1][255 - tid]; }", [{NEEDED, UNKNOWN}]),
        ("__shared__ float t[2][256]; for (int r = 0; r < n; ++r) { t[r & 1][tid] = v; SYNC; v += t[r & 1][tid ^ 1]; }",
         [{UNKNOWN, UNNEEDED}]),
        # An index that was loaded, a place that was taken from a counter.
        ("__shared__ float t[256]; t[tid] = v; SYNC; v += t[at[tid]];", [{UNKNOWN}]),
        ("__shared__ float t[256]; t[at[tid]] = v; SYNC; v += t[tid];", [{UNKNOWN}]),
        ("__shared__ int c; __shared__ float t[256]; if (tid == 0) c = 0; SYNC; int i = atomicAdd(&c, 1); t[i] = v; "
         "SYNC; v += t[tid];", [{NEEDED}, {UNKNOWN, NEEDED}]),
        # Atomics on shared memory: bins, and a sum that is read.
        ("__shared__ int h[256]; h[tid] = 0; SYNC; atomicAdd(&h[at[tid]], 1); SYNC; v += h[tid];",
         [{UNKNOWN}, {UNKNOWN}]),
        ("__shared__ float s; if (tid == 0) s = 0; SYNC; atomicAdd(&s, v); SYNC; v = s;", [{NEEDED}, {NEEDED}]),
        # Division by what is no power of two is a product; a shuffle within parts of a warp; packed registers.
        ("__shared__ float t[256]; t[tid] = v; SYNC; v += t[tid / 7];", [{NEEDED}]),
        ("__shared__ float t[256]; t[tid / 33 * 33] = v; SYNC; v += t[tid / 33 * 33];", [{NEEDED}]),
        ("__shared__ float t[256]; int w = __shfl_sync(~0u, warp, 0); t[w * 32 + lane] = v; SYNC; v = t[w * 32 + 31 - "
         "lane];", [{UNNEEDED}]),
        ("__shared__ float t[256]; int w = __shfl_sync(~0u, tid, 0, 8); t[w + lane % 8] = v; SYNC; v += t[tid];",
         [{UNKNOWN, NEEDED, UNNEEDED}]),
        # Copies that run by themselves.
        ('__shared__ float t[256]; asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: '
         '"r"((unsigned)__cvta_generic_to_shared(t + tid)), "l"(in + tid)); asm volatile("cp.async.wait_all;"); '
         "SYNC; v = t[255 - tid];", [{UNKNOWN}]),
        # Threads that leave early, and a part of the block.
        ("__shared__ float t[256]; t[tid] = v; SYNC; if (tid >= 32) return; v = t[tid];", [{UNNEEDED}]),
        ("__shared__ float t[256]; t[tid] = v; SYNC; if (tid >= 32) return; v = t[tid] + t[tid + 128];", [{NEEDED}]),
        ("__shared__ float t[256]; t[tid] = v; SYNC; if (tid < n) v = t[tid ^ 32];", [{NEEDED}]),
        # Nothing is shared; results of others in global memory, behind a flag or not.
        ("v *= 2; SYNC; v += 1;", [{UNNEEDED}]),
        ("out[tid] = v; SYNC; v = out[255 - tid];", [{UNKNOWN}]),
        ("out[tid] = v; __threadfence(); SYNC; if (tid == 0) atomicAdd((int*)out + 9, 1);", [{UNKNOWN}]),
        ("v = __syncthreads_or(v > n);", [{NEEDED}]),
        # Words of 16 bytes.
        ("__shared__ float4 t[256]; t[tid] = make_float4(v, v, v, v); SYNC; v = ((float*)t)[tid * 4 + 3];",
         [{UNNEEDED}]),
        ("__shared__ float4 t[256]; t[tid] = make_float4(v, v, v, v); SYNC; v = ((float*)t)[tid];", [{NEEDED}]),
    ],
)  # fmt: skip
def test_the_barriers_of_kernels_whose_answer_is_known(body: str, expected: list[set[Need]]) -> None:
    found = needs(body)
    assert len(found) == len(expected)
    assert all(one in allowed for one, allowed in zip(found, expected, strict=True)), found


def test_a_block_whose_size_is_not_known_may_be_larger() -> None:
    """With 256 threads nobody reads what another wrote, with 512 threads the upper half does."""
    body = "__shared__ float t[1024]; t[tid] = v; SYNC; v = t[tid + 256];"
    assert needs(body, "__launch_bounds__(512)") == [NEEDED]
    assert needs(body) == [UNNEEDED]
    assert needs(body, "") == [UNKNOWN]


def test_rows_and_planes_of_threads() -> None:
    """A warp is not a row: with rows of 64 or 8 threads another one reads."""
    row = "__shared__ float t[32][32]; t[threadIdx.y][tid] = v; SYNC; v = t[threadIdx.y][31 - tid];"
    assert needs(row) != [UNNEEDED]
    assert needs("__shared__ float t[256]; t[threadIdx.z] = v; SYNC; v = t[threadIdx.z];") == [UNKNOWN]


@dataclass(frozen=True)
class _Index:
    text: str
    of: Callable[[int, int], int]


_INDICES = [
    _Index("tid", lambda t, i: t),
    _Index("tid ^ 1", lambda t, i: t ^ 1),
    _Index("tid ^ 64", lambda t, i: t ^ 64),
    _Index("255 - tid", lambda t, i: 255 - t),
    _Index("warp * 32 + 31 - lane", lambda t, i: t // 32 * 32 + 31 - t % 32),
    _Index("(tid + 32) & 255", lambda t, i: (t + 32) & 255),
    _Index("tid / 2", lambda t, i: t // 2),
    _Index("tid * 2", lambda t, i: t * 2),
    _Index("tid / 7", lambda t, i: t // 7),
    _Index("tid % 24", lambda t, i: t % 24),
    _Index("warp", lambda t, i: t // 32),
    _Index("lane", lambda t, i: t % 32),
    _Index("i", lambda t, i: i),
    _Index("(i & 1) * 256 + tid", lambda t, i: (i & 1) * 256 + t),
    _Index("(i & 1) * 256 + (tid ^ 64)", lambda t, i: (i & 1) * 256 + (t ^ 64)),
    _Index("i * 256 + tid", lambda t, i: i * 256 + t),
    _Index("(tid + i) & 255", lambda t, i: (t + i) & 255),
    _Index("min(tid, 31 + 32 * (i & 7))", lambda t, i: min(t, 31 + 32 * (i & 7))),
    _Index("at[tid]", lambda t, i: 255 - t),
]
_GUARDS = [
    _Index("true", lambda t, i: 1),
    _Index("tid < 32", lambda t, i: t < 32),
    _Index("tid >= 64", lambda t, i: t >= 64),
    _Index("lane == 0", lambda t, i: t % 32 == 0),
    _Index("tid == 0", lambda t, i: t == 0),
    _Index("(i & 1) == warp % 2", lambda t, i: (i & 1) == t // 32 % 2),
]
_ARRAYS = {"a": lambda i: "a", "b": lambda i: "b", "c": lambda i: "c", "d": lambda i: "c",
           "p": lambda i: "a" if i & 1 else "b"}  # fmt: skip


@dataclass(frozen=True)
class _Step:
    array: str
    writes: bool
    index: _Index
    guard: _Index

    @property
    def text(self) -> str:
        at = f"{self.array}[{self.index.text}]"
        return f"if ({self.guard.text}) {f'{at} = v;' if self.writes else f'v += {at};'}"


def _touched(step: _Step, turn: int) -> dict[tuple[str, int], set[int]]:
    found: dict[tuple[str, int], set[int]] = {}
    for tid in range(256):
        if step.guard.of(tid, turn):
            found.setdefault((_ARRAYS[step.array](turn), step.index.of(tid, turn)), set()).add(tid // 32)
    return found


def _race(steps: list[_Step], kept: list[bool], looped: bool) -> bool:
    """Whether warps race for a word without the barriers that are not kept; the last barrier is that of the loop."""
    between: list[tuple[int, _Step, dict[tuple[str, int], set[int]]]] = []
    order = 0
    for turn in range(5 if looped else 1):
        for step, keep in zip(steps, kept, strict=True):
            mine = _touched(step, turn)
            for _, other, theirs in between:
                if step.writes or other.writes:
                    for word in mine.keys() & theirs.keys():
                        if len(mine[word] | theirs[word]) > 1:
                            return True
            between.append((order, step, mine))
            order += 1
            if keep:
                between.clear()
    return False


_STEPS = st.lists(
    st.builds(
        _Step, st.sampled_from(sorted(_ARRAYS)), st.booleans(), st.sampled_from(_INDICES), st.sampled_from(_GUARDS)
    ),
    min_size=2,
    max_size=4,
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(_STEPS, st.booleans())
def test_without_unneeded_barriers_no_warps_race(steps: list[_Step], looped: bool) -> None:
    """All barriers that are called unneeded are left out together; then what each warp accesses is compared."""
    body = " ".join(f"{step.text} SYNC;" for step in steps)
    around = f"\n#pragma unroll 1\nfor (int i = 0; i < n; ++i) {{ {body} }}" if looped else f"const int i = 0; {body}"
    shared = "__shared__ volatile float a[2048], b[2048]; extern __shared__ volatile float c[], d[];"
    found = needs(f"{shared} {around.replace('p[', '(i & 1 ? a : b)[')}")
    assert len(found) == len(steps)
    kept = [one is not UNNEEDED for one in found]
    assert not _race(steps, kept, looped), [one.value for one in found]
    if not looped:
        for number, one in enumerate(found):
            without = [keep and at != number for at, keep in enumerate(kept)]
            assert one is not NEEDED or _race(steps, without, looped), "needed, and yet no warps race without it"


def test_the_oracle_sees_races() -> None:
    one, other = (_Step("a", writes, _INDICES[at], _GUARDS[0]) for writes, at in ((True, 0), (False, 3)))
    assert _race([one, other], [False, True], False)
    assert not _race([one, other], [True, True], False)
    assert all(itertools.starmap(lambda index, guard: index.text and guard.text, zip(_INDICES, _GUARDS, strict=False)))


@pytest.mark.parametrize("source", ["broken/decode.cu", "tiled.cu", "flash.cu", "naive.cu"])
def test_the_attention_examples_need_all_of_their_barriers(source: str) -> None:
    """Scores that one loop writes and another reads, tiles that are overwritten, sums by one value per warp."""
    path = ATTENTION / source
    options = ["-DHEAD=128", "-DELEMENT=half_t", f"--include-path={ATTENTION}", *cuda_includes(), *woven_build.FLAGS]
    for function in parse(compile_ptx(path.read_text(), path.name, "sm_90a", options)).entries:
        found = barrier_needs(function, ControlFlow(function)).values()
        assert found
        assert UNNEEDED not in found
