"""Inputs and launches of the eighth set of pairs."""

from __future__ import annotations

import numpy as np

from benchmarks.truth import eighth_kernels as kernels
from benchmarks.truth.fourth_cases import made, numbers, pair_of, zeros
from benchmarks.truth.pair import BROKEN, REPAIRED, Case, Lab


def long_dots(lab: Lab) -> Case:
    rows, columns = lab.size(256 * 8 * lab.sms, 512), lab.size(128, 16)
    values, vector = numbers(rows, columns), numbers(columns, top=3)
    stored = {BROKEN: lab.upload(values), REPAIRED: lab.upload(np.ascontiguousarray(values.T))}
    given, out, kernel = lab.upload(vector), zeros(lab, rows), made(lab, "long_dots")

    def run(version: str) -> None:
        sizes = np.int32(rows), np.int32(columns)
        kernel[version].launch(rows // 256, 256, stored[version], given, out[version], *sizes)

    return pair_of(run, out, values @ vector)


def flip_tiles(lab: Lab) -> Case:
    side, rounds = lab.size(2048, 64), lab.size(64, 3)
    values = numbers(side, side)
    given, out, kernel = lab.upload(values), zeros(lab, side, side), made(lab, "flip_tiles")

    def run(version: str) -> None:
        sizes = np.int32(side), np.int32(rounds)
        kernel[version].launch((side // 32, side // 32), (32, 8), given, out[version], *sizes)

    tiles = values.reshape(side // 32, 32, side // 32, 32)
    summed = sum(np.roll(tiles, -turn, axis=3) for turn in range(rounds))
    return pair_of(run, out, summed.reshape(side, side).T)


def rotate_lanes(lab: Lab) -> Case:
    blocks, rounds = lab.size(4 * lab.sms, 2), lab.size(400, 4)
    given, out, kernel = lab.upload(numbers(blocks, 8, 32)), zeros(lab, blocks, 8, 32), made(lab, "rotate_lanes")
    run = lambda version: kernel[version].launch(blocks, 256, given, out[version], np.int32(rounds))  # noqa: E731
    return pair_of(run, out)


def word_lengths(lab: Lab) -> Case:
    blocks, groups = lab.size(4 * lab.sms, 2), lab.size(16, 2)
    texts = blocks * groups * 8
    random = np.random.default_rng(71)
    lengths = np.minimum(64 / random.random(texts) ** 0.8, lab.size(20_000, 300)).astype(np.int32)
    begins = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    text = np.where(random.random(int(begins[-1])) < 0.2, 32, 97).astype(np.uint8)
    order = {BROKEN: np.arange(texts), REPAIRED: np.argsort(lengths, kind="stable")}
    ids = {version: lab.upload(at.astype(np.int32)) for version, at in order.items()}
    arrays, out = [lab.upload(begins), lab.upload(text)], zeros(lab, texts, dtype=np.int32)
    kernel = lab.kernel("word_lengths.cu", "word_lengths", True)

    def run(version: str) -> None:
        kernel.launch(blocks, 256, ids[version], *arrays, out[version], np.int32(groups))

    return pair_of(run, out, np.add.reduceat((text == 32).astype(np.int32), begins[:-1]))


def rising_work(lab: Lab) -> Case:
    blocks, scale = lab.size(24 * lab.sms, 4), lab.size(2000, 4)
    given, out, kernel = lab.upload(numbers(blocks * 256)), zeros(lab, blocks * 256), made(lab, "rising_work")
    run = lambda version: kernel[version].launch(blocks, 256, given, out[version], np.int32(scale))  # noqa: E731
    return pair_of(run, out)


def hot_counters(lab: Lab) -> Case:
    blocks, rounds = 2 * lab.sms, lab.size(32, 2)
    values = numbers(blocks, rounds * 4 * 512, top=1000, dtype=np.int32)
    given, out, kernel = lab.upload(values), zeros(lab, blocks, dtype=np.int32), made(lab, "hot_counters")
    run = lambda version: kernel[version].launch(blocks, 512, given, out[version], np.int32(rounds))  # noqa: E731
    return pair_of(run, out, (values & 1).sum(axis=1))


def single_steps(lab: Lab) -> Case:
    blocks, rounds = 2 * lab.sms, lab.size(512, 32)
    values = numbers(blocks, rounds, 128)
    given, out, kernel = lab.upload(values), zeros(lab, blocks, 128), made(lab, "single_steps")
    run = lambda version: kernel[version].launch(blocks, 128, given, out[version], np.int32(rounds))  # noqa: E731
    return pair_of(run, out, values.sum(axis=1))


def narrow_grid(lab: Lab) -> Case:
    rows, columns = lab.size(1 << 15, 64), lab.size(1024, 128)
    values = numbers(rows, columns)
    given, out = lab.upload(values), zeros(lab, rows)
    programs = {BROKEN: lab.size(24, 2), REPAIRED: lab.size(rows // 16, 4)}

    def run(version: str) -> None:
        each = -(-rows // programs[version])
        kernels.narrow_grid[(programs[version],)](given, out[version], each, rows, COLUMNS=columns, num_warps=4)

    return pair_of(run, out, np.sqrt((values.astype(np.float64) ** 2).sum(axis=1)), 1e-4)
