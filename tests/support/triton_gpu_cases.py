"""Triton kernels with marks for a real GPU, and the number of records that each must leave."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
triton = pytest.importorskip("triton", reason="triton is not installed")
if not torch.cuda.is_available():
    pytest.skip("no CUDA GPU here", allow_module_level=True)

import triton.language as tl  # noqa: E402

import warplens.triton as wlt  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "triton"))

import attention  # noqa: E402
import matmul  # noqa: E402
import softmax  # noqa: E402
import vector_add  # noqa: E402


@triton.jit
def fma_chain(x, y, n_iter, BLOCK: tl.constexpr, LENGTH: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.load(x + offs)
    for _ in range(n_iter):
        wlt.begin("work")
        for _ in tl.static_range(LENGTH):
            acc = acc * 1.0001 + 0.5
        wlt.end("work")
    tl.store(y + offs, acc)


def half(*shape: int) -> Any:
    return torch.randn(*shape, device="cuda", dtype=torch.float16)


def run_vector_add() -> Any:
    x, y = (torch.randn(100_003, device="cuda") for _ in range(2))
    out = torch.empty_like(x)
    vector_add.vector_add[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)
    return out


def run_clusters() -> Any:
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("clusters need a Hopper GPU or a newer one")
    x, y = (torch.randn(100_003, device="cuda") for _ in range(2))
    out = torch.empty_like(x)
    vector_add.vector_add[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024, num_ctas=2)
    return out


def run_softmax() -> Any:
    x = torch.randn(512, 1000, device="cuda")
    out = torch.empty_like(x)
    softmax.softmax[(512,)](out, x, 1000, BLOCK=1024)
    return out


def run_matmul(kernel: Any = None) -> Any:
    a, b = half(1024, 1024), half(1024, 1024)
    c = torch.empty_like(a)
    matmul.matmul[(8, 8)](a, b, c, 1024, 1024, 1024, 128, 128, 64, num_warps=4, num_stages=3)
    return c


def run_persistent() -> Any:
    a, b = half(1024, 1024), half(1024, 1024)
    c = torch.empty_like(a)
    matmul.persistent_matmul[(16,)](a, b, c, 1024, 1024, 1024, 16, 128, 128, 64, num_warps=4, num_stages=3)
    return c


def run_attention() -> Any:
    q, k, v = (half(4, 1024, 64) for _ in range(3))
    out = torch.empty_like(q)
    attention.attention[(8, 4)](q, k, v, out, 0.18, 1024, 128, 64, 64, num_warps=4, num_stages=3)
    return out


def run_specialised() -> Any:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("the warp-specialised Gluon matmul needs a Hopper GPU")
    import gluon_matmul

    a, b = half(1024, 1024), half(1024, 1024)
    c = torch.empty_like(a)
    gluon_matmul.run(a, b, c)
    return c


# What each launch must leave: region -> rows of all warps. "tile" also names a value, "issue copies" an arrival.
CASES: dict[str, tuple[Callable[[], Any], dict[str, int]]] = {
    "vector_add": (run_vector_add, {"load": 98 * 4, "add": 98 * 4, "store": 98 * 4}),
    "clusters": (run_clusters, {"load": 2 * 98 * 4, "add": 2 * 98 * 4, "store": 2 * 98 * 4}),
    "softmax": (run_softmax, {"load": 512 * 4, "row maximum": 512 * 4}),
    "matmul": (run_matmul, {"load": 64 * 4 * 16, "dot": 64 * 4 * 16, "store": 64 * 4}),
    "persistent": (run_persistent, {"tile": 2 * 64 * 4, "dot": 64 * 4 * 16, "store": 64 * 4}),
    "attention": (run_attention, {"load q": 32 * 4, "qk": 32 * 4 * 16, "softmax": 32 * 4 * 16, "pv": 32 * 4 * 16}),
    "specialised": (run_specialised, {"wgmma": 64 * 8 * 16, "issue copies": 2 * 64 * 16, "store": 64 * 8}),
}


def counts(trace: Any) -> dict[str, int]:
    return {row["values"]: row["counts"] for row in trace.spans["region"].value_counts().to_pylist()}
