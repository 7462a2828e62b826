"""Inputs and launches of the Gluon kernels."""

from __future__ import annotations

import functools
from functools import partial
from typing import Any

import numpy as np

from benchmarks.truth import gluon_kernels as kernels
from benchmarks.truth.pair import BROKEN, REPAIRED, Case, Lab

_BOTH = (BROKEN, REPAIRED)
TILE = (128, 128, 64)


def row_sums(lab: Lab) -> Case:
    rows, tiles, shape = lab.size(131072, 128), lab.size(4, 2), {"ROWS": 128, "COLUMNS": 64}
    piece = np.random.default_rng(13).integers(0, 5, 1 << 20).astype(np.float32)
    values = np.resize(piece, (rows, tiles * 64))
    given, out = lab.upload(values), {version: lab.upload(np.zeros(rows, np.float32)) for version in _BOTH}

    def run(version: str) -> None:
        along = {"ALONG_ROWS": version == REPAIRED}
        kernels.row_sums[(rows // 128,)](given, out[version], tiles, **along, **shape, num_warps=4)

    return Case({version: partial(run, version) for version in _BOTH}, out, values.sum(axis=1))


def specialised_matmul(lab: Lab) -> Case:
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    m, n, k = 2048, 1024, 2048
    rng = np.random.default_rng(14)
    a = np.resize(rng.integers(0, 3, 1 << 20).astype(np.float16), (m, k))
    b = np.resize(rng.integers(0, 2, 1 << 20).astype(np.float16), (k, n))
    arrays, out = (
        [lab.upload(a), lab.upload(b)],
        {version: lab.upload(np.zeros((m, n), np.float16)) for version in _BOTH},
    )

    def describe(tensor: Any, *shape: int) -> Any:
        layout = gl.NVMMASharedLayout.get_default_for(list(shape), gl.float16)
        return TensorDescriptor.from_tensor(tensor, list(shape), layout)

    bm, bn, bk = TILE

    @functools.cache
    def described(version: str) -> Any:
        return describe(arrays[0], bm, bk), describe(arrays[1], bk, bn), describe(out[version], bm, bn)

    def run(version: str) -> None:
        waits = version == BROKEN
        kernels.specialised_matmul[(m // bm, n // bn)](*described(version), k, bm, bn, bk, 4, waits, num_warps=8)

    expected = (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16)
    return Case({version: partial(run, version) for version in _BOTH}, out, expected, 2e-3)
