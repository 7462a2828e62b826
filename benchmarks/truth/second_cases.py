"""Inputs and launches of the second set of pairs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.truth import triton_kernels as kernels
from benchmarks.truth.pair import BROKEN, REPAIRED, Case, Lab

_BOTH = (BROKEN, REPAIRED)


def _whole(*shape: int, top: int = 5, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    piece = np.random.default_rng(21).integers(0, top, min(int(np.prod(shape)), 1 << 20)).astype(dtype)
    return np.resize(piece, shape)


def _runs(run: Callable[[str], None]) -> dict[str, Callable[[], None]]:
    return {version: partial(run, version) for version in _BOTH}


def row_dot(lab: Lab) -> Case:
    blocks, rounds = lab.size(16 * lab.sms, 2), lab.size(24, 2)
    tables, vectors = _whole(blocks * 128, 32), _whole(rounds, 32, top=3)
    arrays = [lab.upload(tables), lab.upload(vectors)]
    out = {version: lab.upload(np.zeros(blocks * 128, np.float32)) for version in _BOTH}
    made = {version: lab.kernel("row_dot.cu", "row_dot", version == REPAIRED) for version in _BOTH}

    def run(version: str) -> None:
        made[version].launch(blocks, 128, *arrays, out[version], np.int32(rounds))

    return Case(_runs(run), out, (tables @ vectors.T).sum(axis=1))


def smooth_rows(lab: Lab) -> Case:
    blocks = {BROKEN: max(lab.sms // 3, 1), REPAIRED: 4 * max(lab.sms // 3, 1) * 4}
    rows = lab.size(8, 1) * blocks[REPAIRED]
    values = _whole(rows, 4096)
    given, out = lab.upload(values), {version: lab.upload(np.zeros_like(values)) for version in _BOTH}
    kernel = lab.kernel("smooth_rows.cu", "smooth_rows", True)

    def run(version: str) -> None:
        kernel.launch(blocks[version], 256, given, out[version], np.int32(rows // blocks[version]))

    wide = np.pad(values, ((0, 0), (1, 1)), mode="edge")
    return Case(_runs(run), out, 0.25 * wide[:, :-2] + 0.5 * values + 0.25 * wide[:, 2:], 1e-6)


def job_list(lab: Lab) -> Case:
    blocks, each = 4 * lab.sms, lab.size(8, 2)
    jobs = blocks * each
    sizes = np.linspace(lab.size(600, 6), lab.size(60, 2), jobs).astype(np.int32)  # the longest jobs first
    values = _whole(64, 128)
    arrays, following = [lab.upload(sizes), lab.upload(values)], lab.upload(np.zeros(1, np.int32))
    out = {version: lab.upload(np.zeros((jobs, 128), np.float32)) for version in _BOTH}
    made = {version: lab.kernel("job_list.cu", "job_list", version == REPAIRED) for version in _BOTH}

    def run(version: str) -> None:
        if version == REPAIRED:
            lab.zero(following)
        made[version].launch(blocks, 128, *arrays, out[version], following, np.int32(jobs))

    return Case(_runs(run), out)


def staged_sums(lab: Lab) -> Case:
    tiles = lab.size(100, 4)
    values = _whole(tiles * lab.sms * 1024)
    given, out = lab.upload(values), {version: lab.upload(np.zeros(lab.sms * 128, np.float32)) for version in _BOTH}
    made = {version: lab.kernel("staged_sums.cu", "staged_sums", version == REPAIRED) for version in _BOTH}

    def run(version: str) -> None:
        made[version].launch(lab.sms, 160, given, out[version], np.int32(tiles))

    expected = values.reshape(tiles, lab.sms, 8, 128).sum(axis=(0, 2)).reshape(-1)
    return Case(_runs(run), out, expected)


def channel_scale(lab: Lab) -> Case:
    n, channels, block = lab.size(1 << 23, 2048), 8, 1024
    samples = _whole(n, channels)
    stored = {BROKEN: lab.upload(samples), REPAIRED: lab.upload(np.ascontiguousarray(samples.T))}
    out = {version: lab.upload(np.zeros(n, np.float32)) for version in _BOTH}

    def run(version: str) -> None:
        options = {"PLANAR": version == REPAIRED, "CHANNELS": channels, "BLOCK": block}
        kernels.channel_scale[(n // block,)](stored[version], out[version], n, 3, **options, num_warps=4)

    return Case(_runs(run), out, 2 * samples[:, 3])


def column_sums(lab: Lab) -> Case:
    programs, tiles = lab.size(4 * lab.sms, 4), lab.size(16, 2)
    shape = {"ROWS": lab.size(16, 4), "COLUMNS": 256}
    values = _whole(programs * tiles * shape["ROWS"], 256)
    given, out = lab.upload(values), {version: lab.upload(np.zeros(256, np.float32)) for version in _BOTH}

    def run(version: str) -> None:
        at_once = {"AT_ONCE": version == REPAIRED}
        kernels.column_sums[(programs,)](given, out[version], tiles, **at_once, **shape, num_warps=4)

    return Case(_runs(run), out, values.sum(axis=0), clear=list(out.values()))


def matmul_case(lab: Lab, sizes: tuple[int, int, int], tiles: dict[str, tuple[int, int, int, int, int]]) -> Case:
    """`tiles` are BM, BN, BK, warps and stages of each version."""
    m, n, k = (lab.size(size, 64) for size in sizes)
    a, b = _whole(m, k, top=3, dtype=np.float16), _whole(k, n, top=2, dtype=np.float16)
    arrays = [lab.upload(a), lab.upload(b)]
    out = {version: lab.upload(np.zeros((m, n), np.float16)) for version in tiles}

    def run(version: str) -> None:
        bm, bn, bk, warps, stages = tiles[version]
        bm, bn, bk = (lab.size(size, 16) for size in (bm, bn, bk))
        shape = {"BM": bm, "BN": bn, "BK": bk}
        kernels.matmul[(m // bm, n // bn)](*arrays, out[version], n, k, **shape, num_warps=warps, num_stages=stages)

    expected = (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16)
    return Case({version: partial(run, version) for version in tiles}, out, expected, 2e-3)


def large_tile(lab: Lab) -> Case:
    return matmul_case(lab, (2048, 2048, 1024), {BROKEN: (256, 256, 32, 4, 2), REPAIRED: (128, 128, 32, 4, 2)})


def full_matmul(lab: Lab) -> Case:
    """4,096 cubed in tiles of 128 x 256: about two thirds of the tensor cores' peak."""
    return matmul_case(lab, (4096, 4096, 4096), {REPAIRED: (128, 256, 64, 8, 3)})
