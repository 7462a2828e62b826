"""Inputs and launches of the Triton kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.truth import triton_kernels as kernels
from benchmarks.truth.pair import BROKEN, REPAIRED, Case, Lab

_BOTH = (BROKEN, REPAIRED)


def _whole(*shape: int, top: int = 5, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    piece = np.random.default_rng(11).integers(0, top, min(int(np.prod(shape)), 1 << 20)).astype(dtype)
    return np.resize(piece, shape)


def softmax_rows(lab: Lab) -> Case:
    columns = lab.size(8192, 128)
    programs = {BROKEN: max(lab.sms // 4, 1), REPAIRED: 4 * lab.sms}
    rows = lab.size(64 * programs[BROKEN], programs[REPAIRED])
    values = np.resize(np.random.default_rng(12).standard_normal(1 << 20).astype(np.float32), (rows, columns))
    given, out = lab.upload(values), {version: lab.upload(np.zeros_like(values)) for version in _BOTH}

    def run(version: str) -> None:
        grid = (programs[version],)
        kernels.softmax_rows[grid](given, out[version], rows // grid[0], COLUMNS=columns, num_warps=8)

    shifted = np.exp(values - values.max(axis=1, keepdims=True))
    expected = shifted / shifted.sum(axis=1, keepdims=True)
    return Case({version: partial(run, version) for version in _BOTH}, out, expected, 1e-5)


def lower_triangle(lab: Lab) -> Case:
    programs, turns = 2 * lab.sms, lab.size(4, 2)
    tile = {"ROWS": 8, "COLUMNS": lab.size(2048, 64)}
    n = 8 * programs * turns
    a, x = _whole(n, n), _whole(n)
    arrays, out = [lab.upload(a), lab.upload(x)], {version: lab.upload(np.zeros(n, np.float32)) for version in _BOTH}

    def run(version: str) -> None:
        alternate = {"ALTERNATE": version == REPAIRED}
        kernels.lower_triangle[(programs,)](*arrays, out[version], n, turns, **alternate, **tile, num_warps=8)

    return Case({version: partial(run, version) for version in _BOTH}, out, np.tril(a) @ x)


def scale_add(lab: Lab) -> Case:
    """The same sum in many small launches or in one."""
    block, parts = 1024, lab.size(32, 2)
    each = 2 * lab.sms * block
    x, y = _whole(parts * each), _whole(parts * each, top=7)
    given = [lab.upload(array.reshape(parts, each)) for array in (x, y)]
    out = {version: lab.upload(np.zeros((parts, each), np.float32)) for version in _BOTH}

    def broken() -> None:
        for number in range(parts):
            arrays = [array[number] for array in (*given, out[BROKEN])]
            kernels.scale_add[(each // block,)](*arrays, 3.0, BLOCK=block, num_warps=4)

    def repaired() -> None:
        kernels.scale_add[(parts * each // block,)](*given, out[REPAIRED], 3.0, BLOCK=block, num_warps=4)

    return Case({BROKEN: broken, REPAIRED: repaired}, out, (3 * x + y).reshape(parts, each))


def large_scale_add(lab: Lab) -> Case:
    size, block = lab.size(1 << 25, 1 << 12), lab.size(8192, 1024)
    x, y = _whole(size), _whole(size, top=7)
    arrays, out = [lab.upload(x), lab.upload(y)], lab.upload(np.zeros(size, np.float32))

    def run() -> None:
        kernels.scale_add[(size // block,)](*arrays, out, 3.0, BLOCK=block, num_warps=8)

    return Case({REPAIRED: run}, {REPAIRED: out}, 3 * x + y)


def matmul(lab: Lab) -> Case:
    m, n, k = lab.size(2048, 32), lab.size(1024, 32), lab.size(2048, 64)
    tile = {"BM": lab.size(128, 16), "BN": lab.size(128, 16), "BK": lab.size(64, 16)}
    a, b = _whole(m, k, top=3, dtype=np.float16), _whole(k, n, top=2, dtype=np.float16)
    arrays, out = (
        [lab.upload(a), lab.upload(b)],
        {version: lab.upload(np.zeros((m, n), np.float16)) for version in _BOTH},
    )

    def run(version: str) -> None:
        grid, stages = (m // tile["BM"], n // tile["BN"]), 4 if version == REPAIRED else 1
        kernels.matmul[grid](*arrays, out[version], n, k, **tile, num_warps=8, num_stages=stages)

    runs: dict[str, Callable[[], None]] = {version: partial(run, version) for version in _BOTH}
    return Case(runs, out, (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16), 2e-3)
