"""Inputs and launches of the fifth set of pairs."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from benchmarks.truth import fifth_kernels as kernels
from benchmarks.truth.fourth_cases import described, made, numbers, pair_of, zeros
from benchmarks.truth.pair import BROKEN, REPAIRED, Case, Lab


def thread_rows(lab: Lab) -> Case:
    rows = lab.size(1 << 18, 512)
    values = numbers(rows, 64)
    given, out, kernel = lab.upload(values), zeros(lab, rows, 64), made(lab, "thread_rows")
    run = lambda version: kernel[version].launch(rows // 256, 256, given, out[version], np.int32(rows))  # noqa: E731
    powers = np.exp(values)
    return pair_of(run, out, powers / powers.sum(axis=1, keepdims=True), 1e-4)


def tree_sums(lab: Lab) -> Case:
    blocks, rounds = 2 * lab.sms, lab.size(64, 2)
    values = numbers(blocks, rounds, 1024)
    given, out, kernel = lab.upload(values), zeros(lab, blocks, rounds), made(lab, "tree_sums")
    run = lambda version: kernel[version].launch(blocks, 1024, given, out[version], np.int32(rounds))  # noqa: E731
    return pair_of(run, out, values.sum(axis=2))


def fold_pairs(lab: Lab) -> Case:
    blocks, rounds = lab.size(8 * lab.sms, 2), lab.size(100, 3)
    out, kernel = zeros(lab, blocks), made(lab, "fold_pairs")
    run = lambda version: kernel[version].launch(blocks, 256, out[version], np.int32(rounds))  # noqa: E731
    t, r = np.arange(256)[:, None], np.arange(rounds)[None, :]
    return pair_of(run, out, np.full(blocks, ((t + r) % 7 + (t + r) % 5).sum(), np.float32))


def degree_sums(lab: Lab) -> Case:
    blocks, groups = 4 * lab.sms, lab.size(16, 2)
    vertices = blocks * groups * 8
    degrees = np.minimum(8 / np.random.default_rng(51).random(vertices) ** 0.9, lab.size(6000, 200)).astype(np.int32)
    first = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int32)
    weights = numbers(int(first[-1]))
    orders = {BROKEN: np.arange(vertices), REPAIRED: np.argsort(-degrees, kind="stable")}
    order = {version: lab.upload(array.astype(np.int32)) for version, array in orders.items()}
    starts, given, out = lab.upload(first), lab.upload(weights), zeros(lab, vertices)
    kernel = lab.kernel("degree_sums.cu", "degree_sums", True)

    def run(version: str) -> None:
        kernel.launch(blocks, 256, starts, order[version], given, out[version], np.int32(groups))

    return pair_of(run, out, np.add.reduceat(weights, first[:-1]), 1e-4)


def slab_sums(lab: Lab) -> Case:
    slabs, each = lab.sms + 1, lab.size(64, 4)
    units = slabs * each
    blocks = {BROKEN: slabs, REPAIRED: lab.sms}
    out, kernel = zeros(lab, units, 512), lab.kernel("slab_sums.cu", "slab_sums", True)

    def run(version: str) -> None:
        mine = -(-units // blocks[version])
        shared = lab.size(128 << 10, 2048)
        kernel.launch(blocks[version], 512, out[version], np.int32(units), np.int32(mine), shared=shared)

    return pair_of(run, out)


def shared_list(lab: Lab) -> Case:
    blocks, rounds = 2 * lab.sms, lab.size(64, 2)
    values = numbers(blocks, rounds * 512, top=10)
    given, out, kernel = lab.upload(values), zeros(lab, blocks), made(lab, "shared_list")

    def run(version: str) -> None:
        kernel[version].launch(blocks, 512, given, np.float32(8), np.int32(rounds), out[version])

    return pair_of(run, out, (values > 8).sum(axis=1))


def narrow_copies(lab: Lab) -> Case:
    blocks, tiles = 2 * lab.sms, lab.size(64, 3)
    values = numbers(blocks, tiles, 8, 4, 32)
    given, out, kernel = lab.upload(values), zeros(lab, blocks, 4, 32), made(lab, "narrow_copies")
    run = lambda version: kernel[version].launch(blocks, 160, given, out[version], np.int32(tiles))  # noqa: E731
    return pair_of(run, out, values.sum(axis=(1, 2)))


def rms_norm(lab: Lab) -> Case:
    programs, columns = lab.sms, lab.size(8192, 256)
    rows = programs * lab.size(16, 1)
    values, weights = numbers(rows, columns), numbers(columns, top=3)
    arrays, out = [lab.upload(values), lab.upload(weights)], zeros(lab, rows, columns)

    def run(version: str) -> None:
        shape = {"COLUMNS": columns, "BLOCK": lab.size(512, 128), "STAGES": 5 if version == REPAIRED else 1}
        kernels.rms_norm[(programs,)](*arrays, out[version], rows, **shape, num_warps=4)

    expected = values / np.sqrt((values**2).mean(axis=1, keepdims=True) + 1e-5) * weights
    return pair_of(run, out, expected, 1e-3)


def cube_sums(lab: Lab) -> Case:
    blocks, count, side = lab.sms, 96, 64
    values = numbers(blocks, count, side, side, dtype=np.float16)
    given, out = lab.upload(values.reshape(-1, side)), zeros(lab, blocks, side, side)
    tiles = functools.cache(lambda: described(given, side, side))

    def run(version: str) -> None:
        kernels.cube_sums[(blocks,)](tiles(), out[version], count, STAGES=4, BY_LOG=version == BROKEN, num_warps=4)

    powers = np.array([x + x**2 + x**3 for x in range(1, 6)], np.float32)
    return pair_of(run, out, powers[values.astype(int)].sum(axis=1), 1e-3)


def hash_words(lab: Lab) -> Case:
    blocks, rounds = lab.size(16 * lab.sms, 2), lab.size(60, 2)
    kernel, out = lab.kernel("hash_words.cu", "hash_words", True), lab.upload(np.zeros(blocks * 256, np.int32))
    return Case({REPAIRED: lambda: kernel.launch(blocks, 256, out, np.int32(rounds))}, {REPAIRED: out})


def add_scaled(lab: Lab) -> Case:
    size = lab.size(1 << 25, 1 << 12)
    x = numbers(size)
    given, out = lab.upload(x), lab.upload(np.zeros_like(x))
    kernel = lab.kernel("add_scaled.cu", "add_scaled", True)
    factor: Any = np.float32(2.0)

    def run() -> None:
        kernel.launch(8 * lab.sms, 256, given, out, factor, np.int32(size // 4))

    return Case({REPAIRED: run}, {REPAIRED: out}, 2 * x, clear=[out])
