"""Inputs and launches of the seventh set of pairs."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np

from benchmarks.truth import seventh_kernels as kernels
from benchmarks.truth.fourth_cases import described, made, numbers, pair_of, zeros
from benchmarks.truth.pair import BROKEN, REPAIRED, Case, Lab


def fill_uniform(lab: Lab) -> Case:
    blocks = lab.size(1 << 13, 2)
    out, kernel = zeros(lab, blocks * 4096), made(lab, "fill_uniform")
    x = np.arange(blocks * 4096, dtype=np.uint32) * np.uint32(747796405) + np.uint32(2891336453)
    x = ((x >> ((x >> 28) + 4)) ^ x) * np.uint32(277803737)
    drawn = (((x >> 22) ^ x) >> 8).astype(np.float32) / (1 << 24)
    return pair_of(lambda version: kernel[version].launch(blocks, 256, out[version]), out, drawn)


def hadamard(lab: Lab) -> Case:
    blocks, rounds = lab.size(64 * lab.sms, 2), lab.size(8, 3)
    values = numbers(blocks, 512, 2)
    given, out, kernel = lab.upload(values), zeros(lab, blocks, 512, 2), made(lab, "hadamard")
    run = lambda version: kernel[version].launch(blocks, 64, given, out[version], np.int32(rounds))  # noqa: E731
    last = values
    for _ in range(rounds % 2):  # two transforms give 512 times the values
        for half in 2 ** np.arange(9):
            pairs = last.reshape(blocks, -1, 2, half, 2)
            last = np.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], axis=2)
    return pair_of(run, out, last.reshape(values.shape) * (512.0 ** (rounds // 2) / 16.0**rounds), 1e-4)


def moving_average(lab: Lab) -> Case:
    series, length = lab.size(512 * lab.sms, 512), lab.size(512, 16)
    values = numbers(length, series)
    given, out, kernel = lab.upload(values), zeros(lab, length, series), made(lab, "moving_average")

    def run(version: str) -> None:
        kernel[version].launch(series // 256, 256, given, out[version], np.int32(series), np.int32(length))

    expected, average = np.empty_like(values), np.zeros(series, np.float32)
    for time, seen in enumerate(values):
        expected[time] = average = np.float32(0.75) * average + np.float32(0.25) * seen
    return pair_of(run, out, expected, 1e-5)


def cell_pairs(lab: Lab) -> Case:
    blocks, rng = lab.size(2 * lab.sms, 1), np.random.default_rng(71)
    groups = blocks * lab.size(8, 2)
    sizes = rng.integers(16, lab.size(48, 24), (groups, 8))
    sizes[np.arange(groups), rng.integers(0, 8, groups)] = lab.size(256, 80)
    first = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    places = rng.integers(0, 8, (int(first[-1]), 2)).astype(np.float32)
    arrays, kernel = [lab.upload(places), lab.upload(first)], made(lab, "cell_pairs")
    out = zeros(lab, groups * 8)
    run = lambda version: kernel[version].launch(blocks, 256, *arrays, out[version], np.int32(groups))  # noqa: E731
    expected = np.empty(groups * 8)
    for cell, (start, end) in enumerate(itertools.pairwise(first)):
        apart = ((places[start:end, None] - places[None, start:end]) ** 2).sum(axis=2)
        expected[cell] = np.maximum(4 - apart, 0).sum()
    return pair_of(run, out, expected)


def bias_gradient(lab: Lab) -> Case:
    blocks, rows = 2 * lab.sms, lab.size(64, 8)
    values = numbers(blocks, rows, 1024)
    counters = {version: lab.upload(np.zeros(2, np.int32)) for version in (BROKEN, REPAIRED)}
    given, out, kernel = lab.upload(values), zeros(lab, 1024), made(lab, "bias_gradient")

    def run(version: str) -> None:
        kernel[version].launch(blocks, 256, given, out[version], counters[version], np.int32(rows))

    return pair_of(run, out, values.sum(axis=(0, 1)), adds=True)


def gelu_ring(lab: Lab) -> Case:
    blocks, tiles = 2 * lab.sms, lab.size(64, 5)
    values = numbers(blocks, tiles, 8, 128) * np.float32(0.5) - 1
    given, out, kernel = lab.upload(values), zeros(lab, blocks, 128), made(lab, "gelu_ring")
    run = lambda version: kernel[version].launch(blocks, 160, given, out[version], np.int32(tiles))  # noqa: E731
    x = values.astype(np.float64)
    gelu = 0.5 * x * (1 + np.tanh(0.7978846 * (x + 0.044715 * x**3)))
    return pair_of(run, out, gelu.sum(axis=(1, 2)), 1e-3)


def photon_walk(lab: Lab) -> Case:
    blocks, rounds = lab.size(2 * lab.sms, 1), lab.size(64, 8)
    kernel, out = made(lab, "photon_walk"), zeros(lab, blocks * 256, dtype=np.int32)
    run = lambda version: kernel[version].launch(blocks, 256, out[version], np.int32(rounds))  # noqa: E731
    state = (np.arange(blocks * 256, dtype=np.uint32) * np.uint32(2654435761) + np.uint32(12345)).reshape(-1, 32)
    seen, warps = np.zeros_like(state), np.arange(blocks * 8, dtype=np.uint32)
    for turn in range(rounds):
        draw = (warps * np.uint32(rounds) + np.uint32(turn // 8)) * np.uint32(2654435761)
        draw = (draw ^ (draw >> 15)) * np.uint32(2246822519)
        for chosen, events in ((draw >> 29 != turn % 8, 6), (draw >> 29 == turn % 8, 64)):
            some, counted = state[chosen], seen[chosen]
            for _ in range(events):
                some ^= some << 13
                some ^= some >> 17
                some ^= some << 5
                counted += some >> 31
            state[chosen], seen[chosen] = some, counted
        state += seen.reshape(-1, 16, 2)[:, :, ::-1].reshape(state.shape)
    return pair_of(run, out, seen.reshape(-1))


def adam_step(lab: Lab) -> Case:
    tensors, size = lab.size(40, 3), lab.size(1 << 15, 256)
    arrays = [lab.upload(numbers(tensors, size, top=top)) for top in (5, 4, 3, 6)]
    weights, slopes, first, second = (numbers(tensors, size, top=top) for top in (5, 4, 3, 6))
    out, kernel = zeros(lab, tensors, 3, size), lab.kernel("adam_step.cu", "adam_step", True)

    def run(version: str) -> None:
        if version == REPAIRED:
            kernel.launch((size // 256, tensors), 256, *arrays, out[version], np.int32(size))
            return
        for tensor in range(tensors):
            given = [array[tensor] for array in (*arrays, out[version])]
            kernel.launch((size // 256, 1), 256, *given, np.int32(size))

    first, second = 0.9 * first + 0.1 * slopes, 0.999 * second + 0.001 * slopes**2
    stepped = weights - 0.001 * first / (np.sqrt(second) + 1e-8)
    return pair_of(run, out, np.stack([stepped, first, second], axis=1), 1e-4)


def binomial_prices(lab: Lab) -> Case:
    blocks, trees = lab.size(16 * lab.sms, 1), lab.size(16, 2)
    spots = numbers(256, top=20) - 8
    given, out = lab.upload(np.resize(spots, blocks * 256)), lab.upload(np.zeros(blocks * 256, np.float32))
    kernel = lab.kernel("binomial_prices.cu", "binomial_prices", True)
    prices = np.zeros(256)
    for tree in range(trees):
        value = np.maximum(spots[:, None] + np.arange(-16, 16), 0).astype(np.float64)
        for _ in range(31):
            value = (0.6 - 0.01 * tree) * value[:, :-1] + (0.4 + 0.01 * tree) * value[:, 1:]
        prices += value[:, 0]
    run = lambda: kernel.launch(blocks, 256, given, out, np.int32(trees))  # noqa: E731
    return Case({REPAIRED: run}, {REPAIRED: out}, np.resize(prices, blocks * 256), 1e-3)


def causal_conv(lab: Lab) -> Case:
    length, channels = lab.size(8192, 256), lab.size(2048, 128)
    x, w = numbers(length, channels) - 2, numbers(4, channels, top=3)
    arrays, out = [lab.upload(x), lab.upload(w)], zeros(lab, length, channels)

    def run(version: str) -> None:
        times, wide = (lab.size(512, 128), 1) if version == BROKEN else (16, 128)
        grid = (channels // wide, length // times)
        kernels.causal_conv[grid](*arrays, out[version], channels, TIMES=times, CHANNELS=wide, num_warps=4)

    padded = np.concatenate([np.zeros((3, channels), np.float32), x])
    return pair_of(run, out, np.maximum(sum(w[tap] * padded[3 - tap : 3 - tap + length] for tap in range(4)), 0))


def int8_matvec(lab: Lab) -> Case:
    programs, columns = 2 * lab.sms, lab.size(1 << 15, 512)
    rows = programs * 16
    weights, scales, x = numbers(rows, columns, dtype=np.int8) - np.int8(2), numbers(rows, top=3), numbers(columns)
    arrays, out = [lab.upload(one) for one in (weights, scales, x)], zeros(lab, rows)

    def run(version: str) -> None:
        stages = 5 if version == REPAIRED else 1
        kernels.int8_matvec[(programs,)](
            *arrays, out[version], columns, ROWS=16, BLOCK=lab.size(256, 128), STAGES=stages, num_warps=4
        )

    return pair_of(run, out, (weights.astype(np.float32) @ x) * scales)


def norm_gradients(lab: Lab) -> Case:
    rows, columns = lab.size(8192, 128), lab.size(2048, 64)
    slopes, x = numbers(rows, columns) - 2, numbers(rows, columns, top=7)
    means, scales = numbers(rows, top=3), numbers(rows, top=2) * np.float32(0.5) + np.float32(0.5)
    arrays, out = [lab.upload(one) for one in (slopes, x, means, scales)], zeros(lab, 2, columns)

    def run(version: str) -> None:
        grid = (columns // 64, lab.size(16, 2) if version == REPAIRED else 1)
        kernels.norm_gradients[grid](*arrays, out[version], rows, columns, ROWS=32, COLUMNS=64, num_warps=4)

    weight = (slopes * (x - means[:, None]) * scales[:, None]).sum(axis=0, dtype=np.float64)
    return pair_of(run, out, np.stack([weight, slopes.sum(axis=0)]), 1e-3, adds=True)


def orbits(lab: Lab) -> Case:
    block, steps = lab.size(8192, 256), lab.size(60, 2)
    tiles = 8 * (lab.sms + lab.size(12, 1))
    count, few = tiles * block, 1024
    angle = np.linspace(0, 6, few, dtype=np.float32)
    start = np.stack([np.cos(angle), np.sin(angle), -np.sin(angle), np.cos(angle)]) * np.float32(1.05)
    given, out = lab.upload(np.tile(start, count // few)), zeros(lab, 2, count)

    def run(version: str) -> None:
        each = 8 if version == BROKEN else 1
        grid, warps = (tiles // each,), lab.size(32, 4)
        kernels.orbits[grid](given, out[version], count, each, STEPS=steps, BLOCK=block, num_warps=warps)

    x, y, u, v = start.astype(np.float64)
    for _ in range(steps):
        x, y = x + 0.01 * u, y + 0.01 * v
        pull = 0.01 * (x * x + y * y) ** -1.5
        u, v = u - pull * x, v - pull * y
    return pair_of(run, out, np.tile(np.stack([x, y]), count // few), 1e-3)


def causal_attention(lab: Lab) -> Case:
    block, head, blocks = 64, 64, 2 * lab.sms
    length = block * blocks
    q, k, v = ((numbers(length, head, top=top, dtype=np.float16) - 1) / 2 for top in (3, 4, 5))
    arrays, out = [lab.upload(one) for one in (q, k, v)], zeros(lab, length, head)

    def run(version: str) -> None:
        shape = {"BLOCK": block, "HEAD": head, "STAGES": 3}
        mirrored = version == REPAIRED
        kernels.causal_attention[(blocks // 2,)](
            *arrays, out[version], blocks, 0.125, MIRRORED=mirrored, **shape, num_warps=4
        )

    expected, (query, keys, values) = np.empty((length, head)), (one.astype(np.float32) for one in (q, k, v))
    for first in range(0, length, 256):
        last = first + 256
        scores = query[first:last] @ keys[:last].T * np.float32(0.125)
        scores[np.arange(first, last)[:, None] < np.arange(last)] = -np.inf
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        expected[first:last] = powers @ values[:last] / powers.sum(axis=1, keepdims=True)
    return pair_of(run, out, expected, 1e-2)


def pairwise_l1(lab: Lab) -> Case:
    n, depth = lab.size(4096, 64), lab.size(16, 4)
    x, y = numbers(depth, n), numbers(depth, n, top=9)
    arrays, out = [lab.upload(x), lab.upload(y)], zeros(lab, n, n)

    def run(version: str) -> None:
        high, wide, warps = (256, 128, 2) if version == BROKEN else (64, 128, 4)
        shape = {"BM": lab.size(high, high // 4), "BN": lab.size(wide, wide // 4)}
        grid = (n // shape["BM"], n // shape["BN"])
        kernels.pairwise_l1[grid](*arrays, out[version], n, depth, **shape, num_warps=warps)

    expected = np.zeros((n, n), np.float32)
    for left, right in zip(x, y, strict=True):
        expected += np.abs(left[:, None] - right[None, :])
    return pair_of(run, out, expected)


def key_sums(lab: Lab) -> Case:
    count, block = lab.size(1 << 21, 1 << 11), lab.size(2048, 256)
    keys = np.random.default_rng(72).integers(0, 8, count).astype(np.int32)
    values = numbers(count)
    arrays, out = [lab.upload(keys), lab.upload(values)], zeros(lab, 8)

    def run(version: str) -> None:
        one_by_one = version == BROKEN
        kernels.key_sums[(count // block,)](
            *arrays, out[version], KEYS=8, ONE_BY_ONE=one_by_one, BLOCK=block, num_warps=4
        )

    return pair_of(run, out, np.bincount(keys, weights=values, minlength=8), adds=True)


def grouped_tiles(lab: Lab) -> Case:
    programs, count, side, groups = lab.sms, 96, 64, 128
    total = programs * count
    cuts = np.sort(np.random.default_rng(73).choice(np.arange(1, total), groups - 1, replace=False))
    ends = np.append(cuts, total).astype(np.int32)
    gaps = np.arange(groups, dtype=np.int32)  # a spare tile before each group but the first
    piece = numbers(1 << 20, dtype=np.float16)
    values = np.resize(piece, (total + groups - 1, side, side))
    given, arrays = lab.upload(values.reshape(-1, side)), [lab.upload(ends), lab.upload(gaps)]
    out, tiles = zeros(lab, programs, side, side), functools.cache(lambda: described(given, side, side))

    def run(version: str) -> None:
        shape = {"STAGES": 4, "FROM_START": version == BROKEN}
        kernels.grouped_tiles[(programs,)](tiles(), *arrays, out[version], count, **shape, num_warps=4)

    at = np.arange(total) + np.searchsorted(ends, np.arange(total), side="right")
    expected = [values[mine].sum(axis=0, dtype=np.float32) for mine in at.reshape(count, programs).T]
    return pair_of(run, out, np.stack(expected))


def rotary(lab: Lab) -> Case:
    tokens, heads, half, rows = lab.size(4096, 8), lab.size(32, 4), 64, lab.size(64, 8)
    x, angles = numbers(tokens * heads, 2, half), numbers(tokens, half, top=7)
    given = [lab.upload(one) for one in (x, np.cos(angles), np.sin(angles))]
    out: Any = lab.upload(np.zeros_like(x))

    def run() -> None:
        shape = {"ROWS": rows, "HALF": half}
        kernels.rotary[(tokens * heads // rows,)](*given, out, heads, **shape, num_warps=4)

    cosines, sines = (np.repeat(one, heads, axis=0) for one in (np.cos(angles), np.sin(angles)))
    left, right = x[:, 0], x[:, 1]
    turned = np.stack([left * cosines - right * sines, right * cosines + left * sines], axis=1)
    return Case({REPAIRED: run}, {REPAIRED: out}, turned, 1e-4)
