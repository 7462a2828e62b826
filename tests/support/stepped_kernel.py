"""A Triton kernel with every kind of mark, and its launch on the fake GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

triton = pytest.importorskip("triton", reason="triton is not installed")

import triton.language as tl  # noqa: E402

import warplens.triton as wlt  # noqa: E402
from tests.support.fake_gpu import FakeGpu  # noqa: E402


@triton.jit
def scale(x, factor):
    wlt.begin("scale it")
    x = x * factor
    wlt.end("scale it")
    return x


@triton.jit
def stepped(source, target, steps, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    wlt.begin("all")
    wlt.value("block", tl.program_id(0))
    for step in range(steps):
        with wlt.region("load"):
            x = tl.load(source + offsets)
        x = scale(x, 2.0)
        wlt.instant("tick")
        wlt.value("half", step * 0.5)
        tl.store(target + offsets, x + step)
    wlt.end("all")


@triton.jit
def plain(source, target, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + offsets, tl.load(source + offsets))


def run(gpu: FakeGpu, blocks: int = 3, steps: int = 4) -> tuple[Any, Any]:
    source = gpu.tensor(np.arange(blocks * 128, dtype=np.float32))
    target = gpu.tensor(np.zeros(blocks * 128, dtype=np.float32))
    stepped[(blocks,)](source, target, steps, BLOCK=128, num_warps=2)
    return source, target
