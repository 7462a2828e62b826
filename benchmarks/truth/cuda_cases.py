"""Inputs and launches of the CUDA kernels. Values are small whole numbers where a sum's order may differ."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.truth.pair import BROKEN, REPAIRED, Case, Lab

_BOTH = (BROKEN, REPAIRED)
Array = np.ndarray[Any, Any]


def _whole(size: int, top: int = 8, dtype: Any = np.float32) -> Array:
    """Return random whole numbers; a long array repeats a short one, which is quicker to make."""
    piece = np.random.default_rng(1).integers(0, top, min(size, 1 << 20)).astype(dtype)
    return np.resize(piece, size)


def _both(make: Callable[[bool], Callable[[], None]]) -> dict[str, Callable[[], None]]:
    return {version: make(version == REPAIRED) for version in _BOTH}


def matvec(lab: Lab) -> Case:
    rows = lab.size(1 << 18, 512)
    a, x = _whole(rows * 64).reshape(rows, 64), _whole(64)
    stored = {False: lab.upload(a), True: lab.upload(np.ascontiguousarray(a.T))}
    vector, out = lab.upload(x), {version: lab.upload(np.zeros(rows, np.float32)) for version in _BOTH}

    def make(repaired: bool) -> Callable[[], None]:
        kernel = lab.kernel("matvec.cu", "matvec", repaired)
        result = out[_BOTH[repaired]]
        return lambda: kernel.launch(rows // 256, 256, stored[repaired], vector, result, np.int32(rows))

    return Case(_both(make), out, a @ x)


def row_scan(lab: Lab) -> Case:
    rows, columns = lab.size(131072, 256), lab.size(128, 64)
    values = _whole(rows * columns).reshape(rows, columns)
    given, out = lab.upload(values), {version: lab.upload(np.zeros((rows, columns), np.float32)) for version in _BOTH}

    def make(repaired: bool) -> Callable[[], None]:
        kernel = lab.kernel("row_scan.cu", "row_scan", repaired)
        result = out[_BOTH[repaired]]
        return lambda: kernel.launch(rows // 128, 128, given, result, np.int32(columns))

    return Case(_both(make), out, np.cumsum(values, axis=1, dtype=np.float32))


def sum_squares(lab: Lab) -> Case:
    rounds, threads = lab.size(480, 32), 2 * lab.sms * 256
    values = _whole(rounds * threads)
    given, out = lab.upload(values), {version: lab.upload(np.zeros(threads, np.float32)) for version in _BOTH}

    def make(repaired: bool) -> Callable[[], None]:
        kernel = lab.kernel("sum_squares.cu", "sum_squares", repaired)
        result = out[_BOTH[repaired]]
        return lambda: kernel.launch(2 * lab.sms, 256, given, result, np.int32(rounds))

    return Case(_both(make), out, (values.reshape(rounds, threads) ** 2).sum(axis=0))


def _polynomial(lab: Lab, parts: int, units: dict[str, int]) -> Case:
    """`units` are how many parts of the points a block of each version takes."""
    points = 1024 * 16 * parts
    piece = np.linspace(-1, 1, 1 << 14, dtype=np.float32)
    coefficients = np.random.default_rng(2).standard_normal(256).astype(np.float32)
    x = np.resize(piece, points)
    given, table = lab.upload(x), lab.upload(coefficients)
    out = {version: lab.upload(np.zeros(points, np.float32)) for version in units}
    kernel = lab.kernel("polynomial.cu", "polynomial", True)

    def run(version: str) -> None:
        each = units[version]
        kernel.launch(parts // each, 1024, given, out[version], table, np.int32(each))

    expected = np.resize(np.polyval(coefficients.astype(np.float64), piece), points)
    return Case({version: partial(run, version) for version in units}, out, expected, 1e-3)


def last_wave(lab: Lab) -> Case:
    return _polynomial(lab, 4 * (lab.sms + lab.size(8, 1)), {BROKEN: 4, REPAIRED: 1})


def full_waves(lab: Lab) -> Case:
    return _polynomial(lab, lab.sms * lab.size(4, 1), {REPAIRED: 1})


def sparse_rows(lab: Lab) -> Case:
    blocks = 4 * lab.sms
    heavy, light = lab.size(1024, 96), lab.size(128, 20)
    lengths = np.tile(np.r_[np.full(8, heavy), np.full(56, light)], blocks)
    starts = np.r_[0, np.cumsum(lengths)].astype(np.int32)
    count = int(starts[-1])
    values, x = _whole(count), _whole(1 << 16)
    columns = (np.arange(count) & (1 << 16) - 1).astype(np.int32)  # neighbours, so that a warp reads few lines
    arrays = [lab.upload(array) for array in (starts, columns, values, x)]
    out = {version: lab.upload(np.zeros(64 * blocks, np.float32)) for version in _BOTH}

    def make(repaired: bool) -> Callable[[], None]:
        kernel = lab.kernel("sparse_rows.cu", "sparse_rows", repaired)
        result = out[_BOTH[repaired]]
        return lambda: kernel.launch(blocks, 256, *arrays, result)

    sums = np.add.reduceat(values * x[columns], starts[:-1]).reshape(blocks, 64)
    largest = np.maximum(sums.max(axis=1, keepdims=True), 1)
    return Case(_both(make), out, (sums / largest).ravel(), 1e-6)


def byte_counts(lab: Lab) -> Case:
    blocks, each = 2 * lab.sms, lab.size(256, 4)
    words = np.random.default_rng(3).integers(0, 1 << 32, blocks * each * 256, dtype=np.uint64).astype(np.uint32)
    given, lock = lab.upload(words), lab.upload(np.zeros(1, np.uint32))
    out = {version: lab.upload(np.zeros(256, np.uint32)) for version in _BOTH}

    def make(repaired: bool) -> Callable[[], None]:
        kernel = lab.kernel("byte_counts.cu", "byte_counts", repaired)
        result = out[_BOTH[repaired]]
        return lambda: kernel.launch(blocks, 256, given, result, lock, np.int32(each))

    return Case(_both(make), out, np.bincount(words.view(np.uint8), minlength=256), clear=[*out.values(), lock])


def activation_sum(lab: Lab) -> Case:
    tiles = lab.size(62, 6)
    values = np.random.default_rng(4).standard_normal(1 << 20).astype(np.float32)
    values = np.resize(values, tiles * lab.sms * 2048)
    given, out = lab.upload(values), {version: lab.upload(np.zeros(lab.sms, np.float32)) for version in _BOTH}

    def make(repaired: bool) -> Callable[[], None]:
        kernel = lab.kernel("activation_sum.cu", "activation_sum", repaired)
        result, threads = out[_BOTH[repaired]], 32 * (5 if repaired else 2)
        return lambda: kernel.launch(lab.sms, threads, given, result, np.int32(tiles))

    each = values / (1 + np.exp(-1.702 * values)) + np.exp(-values * values)
    return Case(_both(make), out, each.reshape(tiles, lab.sms, 2048).sum(axis=(0, 2), dtype=np.float64), 1e-3)


def register_tile(lab: Lab) -> Case:
    n, depth = lab.size(2048, 128), lab.size(512, 32)
    a, b = _whole(n * depth).reshape(n, depth), _whole(n * depth, 5).reshape(depth, n)
    arrays, out = [lab.upload(a), lab.upload(b)], {v: lab.upload(np.zeros((n, n), np.float32)) for v in _BOTH}

    def make(repaired: bool) -> Callable[[], None]:
        kernel = lab.kernel("register_tile.cu", "register_tile", repaired)
        result = out[_BOTH[repaired]]
        return lambda: kernel.launch((n // 128, n // 128), 256, *arrays, result, np.int32(n), np.int32(depth))

    return Case(_both(make), out, a @ b)


def walk_links(lab: Lab) -> Case:
    entries, blocks = lab.size(1 << 26, 1 << 12), lab.size(2048, 4)
    index = np.arange(entries, dtype=np.int64)
    links = (index * 1664525 + 1013904223 & entries - 1).astype(np.int32)  # visits every entry before it repeats
    table, out = lab.upload(links), {version: lab.upload(np.zeros(blocks * 128, np.int32)) for version in _BOTH}

    def make(repaired: bool) -> Callable[[], None]:
        kernel = lab.kernel("walk_links.cu", "walk_links", repaired)
        result, shared = out[_BOTH[repaired]], (4 if repaired else 160) << 10
        return lambda: kernel.launch(blocks, 128, table, result, np.int32(entries - 1), shared=shared)

    at = (np.arange(blocks * 128, dtype=np.uint64) * 2654435761 & np.uint64(entries - 1)).astype(np.int32)
    expected = np.zeros_like(at)
    for _ in range(8):
        expected ^= at
        at = links[at]
    return Case(_both(make), out, expected ^ at)


def bin_counts(lab: Lab) -> Case:
    blocks, chunks, bins = 2 * lab.sms, lab.size(2, 1), 2048
    values = np.random.default_rng(5).random(blocks * chunks * 32 * 1024, np.float32)
    given, out = lab.upload(values), {version: lab.upload(np.zeros(bins, np.uint32)) for version in _BOTH}

    def make(repaired: bool) -> Callable[[], None]:
        kernel = lab.kernel("bin_counts.cu", "bin_counts", repaired)
        result = out[_BOTH[repaired]]
        return lambda: kernel.launch(blocks, 1024, given, result, np.int32(chunks))

    expected = np.bincount((values * np.float32(bins)).astype(np.int64), minlength=bins)
    return Case(_both(make), out, expected, clear=list(out.values()))


def probe_chains(lab: Lab) -> Case:
    entries, batches, warps = 1 << 16, 8, 2 * lab.sms * 8
    index = np.arange(entries, dtype=np.int64)
    following = (index * 1664525 + 1013904223 & entries - 1).astype(np.int32)
    turn = np.add.outer(np.arange(warps), np.arange(batches)) % batches
    lengths = (lab.size(8, 1) * (1 + turn)).astype(np.int32)
    arrays = [lab.upload(following), lab.upload(lengths)]
    out = {version: lab.upload(np.zeros(warps * 32, np.int32)) for version in _BOTH}

    def make(repaired: bool) -> Callable[[], None]:
        kernel = lab.kernel("probe_chains.cu", "probe_chains", repaired)
        arguments = *arrays, out[_BOTH[repaired]], np.int32(entries - 1), np.int32(batches)
        return lambda: kernel.launch(2 * lab.sms, 256, *arguments)

    return Case(_both(make), out)


def copy_rows(lab: Lab) -> Case:
    values = _whole(lab.size(1 << 25, 1 << 13))
    given, out = lab.upload(values), lab.upload(np.zeros_like(values))
    kernel = lab.kernel("copy_rows.cu", "copy_rows", True)
    return Case({REPAIRED: lambda: kernel.launch(values.size // 8192, 256, given, out)}, {REPAIRED: out}, values)
