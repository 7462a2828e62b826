"""Inputs and launches of the tenth set of pairs."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from benchmarks.truth import tenth_kernels as kernels
from benchmarks.truth.fourth_cases import made, numbers, pair_of, zeros
from benchmarks.truth.pair import BROKEN, REPAIRED, Case, Lab


def polyphase(lab: Lab) -> Case:
    blocks = lab.size(1 << 13, 2)
    samples, taps = numbers(blocks * 4096 + 48), numbers(64, top=3)
    given, out, kernel = [lab.upload(samples), lab.upload(taps)], zeros(lab, blocks * 256), made(lab, "polyphase")
    run = lambda version: kernel[version].launch(blocks, 256, *given, out[version])  # noqa: E731
    return pair_of(run, out, np.lib.stride_tricks.sliding_window_view(samples, 64)[::16] @ taps)


def padded_spmv(lab: Lab) -> Case:
    rows, width = lab.size(4096 * lab.sms, 512), 32
    values, x = numbers(rows, width), numbers(rows, top=3)
    aside = np.sort(np.random.default_rng(101).integers(-2000, 2000, width))
    columns = np.clip(np.arange(rows)[:, None] + aside, 0, rows - 1).astype(np.int32)  # a band, as of a mesh
    stored = {
        BROKEN: [lab.upload(values), lab.upload(columns)],
        REPAIRED: [lab.upload(np.ascontiguousarray(one.T)) for one in (values, columns)],
    }
    given, out, kernel = lab.upload(x), zeros(lab, rows), made(lab, "padded_spmv")

    def run(version: str) -> None:
        sizes = np.int32(rows), np.int32(width)
        kernel[version].launch(rows // 256, 256, *stored[version], given, out[version], *sizes)

    return pair_of(run, out, (values * x[columns]).sum(axis=1))


def read_sketches(lab: Lab) -> Case:
    blocks, distinct, rng = lab.size(2 * lab.sms, 1), lab.size(16, 2), np.random.default_rng(102)
    batches = blocks * lab.size(4, 2)
    lengths = rng.integers(lab.size(150, 20), lab.size(250, 30), (distinct, 64))
    lengths[:, 56:] = rng.integers(lab.size(3000, 40), lab.size(5000, 90), (distinct, 8))  # a few long reads
    lengths.sort(axis=1)
    first = np.concatenate([[0], np.cumsum(-(-lengths.reshape(-1) // 16))])
    bases = rng.integers(0, 1 << 32, int(first[-1]) + 1, dtype=np.uint32)
    tables = [np.resize(one.astype(np.int32), batches * 64) for one in (first[:-1], lengths)]
    arrays, kernel = [lab.upload(bases), *(lab.upload(one) for one in tables)], made(lab, "read_sketches")
    out = zeros(lab, batches, 8, dtype=np.int32)
    run = lambda version: kernel[version].launch(blocks, 256, *arrays, out[version], np.int32(batches))  # noqa: E731
    least = np.full((distinct, 8), 0xFFFFFFFF, np.uint32)
    for number, (start, length) in enumerate(zip(first, lengths.reshape(-1), strict=False)):
        at = np.arange(length - 15)
        both = bases[start + at // 16] | bases[start + at // 16 + 1].astype(np.uint64) << np.uint64(32)
        words = (both >> (2 * (at % 16)).astype(np.uint64)).astype(np.uint32)
        for seed in range(8):
            mixed = words ^ np.uint32((seed + 1) * 0x9E3779B9 & 0xFFFFFFFF)
            mixed = (mixed ^ (mixed >> 16)) * np.uint32(0x85EBCA6B)
            mixed = (mixed ^ (mixed >> 13)) * np.uint32(0xC2B2AE35)
            least[number // 64, seed] = min(least[number // 64, seed], (mixed ^ (mixed >> 16)).min())
    return pair_of(run, out, np.resize((least >> 1).astype(np.int32), (batches, 8)))


def sw_strips(lab: Lab) -> Case:
    pairs, strips, columns = lab.sms, lab.size(16, 3), lab.size(1024, 96)
    queries, rng = numbers(pairs, strips * 32, top=4, dtype=np.int32), np.random.default_rng(103)
    targets = rng.integers(0, 4, (pairs, columns)).astype(np.int32)
    targets[:, columns // 4 : columns // 2] = queries[:, : columns // 4]  # a piece that both have
    letters, kernel = [lab.upload(queries), lab.upload(targets)], made(lab, "sw_strips")
    rows = {version: lab.upload(np.zeros((pairs * strips, columns), np.int32)) for version in (BROKEN, REPAIRED)}
    done = {version: lab.upload(np.zeros(pairs * strips, np.int32)) for version in (BROKEN, REPAIRED)}
    out, launches = zeros(lab, pairs, dtype=np.int32), {BROKEN: itertools.count(), REPAIRED: itertools.count()}

    def run(version: str) -> None:
        counters = rows[version], done[version], out[version]
        sizes = np.int32(strips), np.int32(columns), np.int32(next(launches[version]))
        kernel[version].launch(pairs * strips, 32, *letters, *counters, *sizes)

    length = strips * 32
    last, older = np.zeros((2, pairs, length + 1), np.int32)  # two diagonals, with the row above the first
    expected, at = np.zeros(pairs, np.int32), np.arange(length)
    for diagonal in range(length + columns - 1):
        column = diagonal - at
        inside = (column >= 0) & (column < columns)
        same = queries == targets[:, np.clip(column, 0, columns - 1)]
        best = np.maximum(older[:, :-1] + np.where(same, 2, -1), np.maximum(last[:, :-1], last[:, 1:]) - 1)
        scores = np.where(inside, np.maximum(best, 0), 0)
        older, last = last, np.concatenate([np.zeros((pairs, 1), np.int32), scores.astype(np.int32)], axis=1)
        expected = np.maximum(expected, scores.max(axis=1))
    return pair_of(run, out, expected)


def packed_tokens(lab: Lab) -> Case:
    blocks, tiles, sequences = lab.size(2 * lab.sms, 1), lab.size(48, 5), lab.size(1024, 3)
    tokens, rng = blocks * tiles * 32, np.random.default_rng(104)
    cuts = np.sort(rng.choice(np.arange(1, tokens), sequences - 1, replace=False))
    ends, starts = np.append(cuts, tokens), np.append(0, cuts)
    order = rng.permutation(sequences)
    lengths = ends - starts
    begins = np.empty(sequences, np.int64)
    begins[order] = np.cumsum(lengths[order]) - lengths[order]  # where the rows of each sequence lie
    values = numbers(tokens, 64)
    arrays = [lab.upload(values), lab.upload(ends.astype(np.int32)), lab.upload((begins - starts).astype(np.int32))]
    out, kernel = zeros(lab, blocks, 128), made(lab, "packed_tokens")

    def run(version: str) -> None:
        kernel[version].launch(blocks, 160, *arrays, out[version], np.int32(sequences), np.int32(tiles))

    rows = np.arange(tokens) + np.repeat(begins - starts, lengths)
    return pair_of(run, out, (values[rows] ** 2).reshape(blocks, -1, 128).sum(axis=1))


def shared_neighbours(lab: Lab) -> Case:
    blocks, rounds, vertices = 2 * lab.sms, lab.size(64, 4), lab.size(20_000, 50)
    rng = np.random.default_rng(105)
    most = lab.size(512, 60)
    degrees = np.clip(24 * np.exp(1.5 * rng.standard_normal(vertices)), 4, most).astype(np.int64)
    ids = lab.size(4096, 100)
    lists = [np.sort(rng.permutation(ids)[:degree]) for degree in degrees]
    pairs = rng.integers(0, vertices, (blocks * rounds * 8, 2)).astype(np.int32)
    first = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int32)
    ends = np.concatenate(lists).astype(np.int32)
    arrays, kernel = [lab.upload(first), lab.upload(ends), lab.upload(pairs)], made(lab, "shared_neighbours")
    out = zeros(lab, len(pairs), dtype=np.int32)
    run = lambda version: kernel[version].launch(blocks, 256, *arrays, out[version], np.int32(rounds))  # noqa: E731
    bits = np.zeros((vertices, ids), bool)
    bits[np.repeat(np.arange(vertices), degrees), ends] = True
    expected = [np.count_nonzero(bits[one][lists[other]]) for one, other in pairs]
    return pair_of(run, out, np.array(expected, np.int32))


def path_baskets(lab: Lab) -> Case:
    blocks, steps, assets = lab.size(6 * lab.sms, 2), lab.size(16, 3), 40
    betas, paths = np.linspace(0, 0.2, assets, dtype=np.float32), blocks * 256
    given, out, kernel = lab.upload(betas), zeros(lab, paths), made(lab, "path_baskets")
    run = lambda version: kernel[version].launch(blocks, 256, given, out[version], np.int32(steps))  # noqa: E731
    price = np.zeros((paths, assets), np.float32)
    for step in range(steps):
        bits = np.arange(paths, dtype=np.uint32)[:, None] * np.uint32(steps) + np.uint32(step)
        bits = bits * np.uint32(assets) + np.arange(assets, dtype=np.uint32)
        bits = (bits ^ (bits >> 16)) * np.uint32(0x7FEB352D)
        bits = (bits ^ (bits >> 15)) * np.uint32(0x846CA68B)
        total = sum(((bits >> shift) & 255).astype(np.float32) for shift in (0, 8, 16, 24))
        draw = (total - 510) / np.float32(147.8)
        price += np.float32(0.05) * (draw.sum(axis=1, keepdims=True) * betas + draw) - np.float32(0.00125)
    return pair_of(run, out, np.maximum(np.exp(price).mean(axis=1) - 1, 0), 1e-3)


def tone_bins(lab: Lab) -> Case:
    distinct = lab.size(32, 1)
    blocks, pieces = lab.size(16 * lab.sms, 1), lab.size(4, 2)
    signal = np.random.default_rng(106).integers(-2, 3, (distinct, pieces, 256)).astype(np.float32)
    turns = (2 * np.cos(np.linspace(0.4, 2.7, 2048))).astype(np.float32)
    given = [lab.upload(np.resize(signal, (blocks, pieces, 256))), lab.upload(turns)]
    out: Any = lab.upload(np.zeros((blocks, 256), np.float32))
    kernel = lab.kernel("tone_bins.cu", "tone_bins", True)
    last, older = np.zeros((2, distinct, pieces, 2048))
    for at in range(256):
        last, older = turns.astype(np.float64) * last + signal[..., at : at + 1] - older, last
    energy = (last**2 + older**2 - turns * last * older).reshape(distinct, pieces, 8, 256).sum(axis=(1, 2))
    run = lambda: kernel.launch(blocks, 256, *given, out, np.int32(pieces))  # noqa: E731
    return Case({REPAIRED: run}, {REPAIRED: out}, np.resize(energy, (blocks, 256)), 1e-3)


def page_scores(lab: Lab) -> Case:
    sequences, pages, head = 2 * lab.sms, lab.size(192, 8), 128
    pool = numbers(sequences * pages, 16, head, dtype=np.float16) - np.float16(2)
    queries = numbers(sequences, head, top=3, dtype=np.float16)
    table = np.random.default_rng(107).permutation(sequences * pages).astype(np.int32).reshape(sequences, pages)
    arrays = [lab.upload(one) for one in (queries, pool, table)]
    out = zeros(lab, sequences, pages * 16)

    def run(version: str) -> None:
        shape = {"PAGES": 1 if version == BROKEN else 4, "TOKENS": 16, "HEAD": head}
        kernels.page_scores[(sequences,)](*arrays, out[version], pages, 0.125, **shape, num_warps=4)

    scores = [pool[mine].reshape(-1, head).astype(np.float32) @ queries[at] for at, mine in enumerate(table)]
    return pair_of(run, out, np.stack(scores) * np.float32(0.125))


def vertical_blur(lab: Lab) -> Case:
    height, width = lab.size(4096, 128), lab.size(2048, 64)
    image, weights = numbers(height, width, top=256), np.array([1, 8, 28, 56, 70, 56, 28, 8, 1], np.float32) / 256
    arrays, out = [lab.upload(image), lab.upload(weights)], zeros(lab, height, width)

    def run(version: str) -> None:
        parts = 1 if version == BROKEN else lab.size(16, 2)
        shape = {"TAPS": 9, "ROWS": 32, "COLUMNS": 64}
        kernels.vertical_blur[(width // 64, parts)](*arrays, out[version], height, width, **shape, num_warps=4)

    padded = np.pad(image, ((4, 4), (0, 0)), mode="edge")
    return pair_of(run, out, sum(weights[tap] * padded[tap : tap + height] for tap in range(9)), 1e-4)


def vol_paths(lab: Lab) -> Case:
    block, steps = lab.size(8192, 256), lab.size(60, 3)
    tiles, few = 8 * (lab.sms + lab.size(12, 1)), 1024
    count = tiles * block
    seeds = np.random.default_rng(108).integers(-(1 << 31), 1 << 31, few, dtype=np.int32)
    given, out = lab.upload(np.resize(seeds, count)), zeros(lab, count)

    def run(version: str) -> None:
        each = 8 if version == BROKEN else 1
        kernels.vol_paths[(tiles // each,)](
            given, out[version], each, STEPS=steps, BLOCK=block, num_warps=lab.size(32, 4)
        )

    state, price, vol, total = seeds.view(np.uint32), np.ones(few), np.full(few, 0.2), np.zeros(few)
    for _ in range(steps):
        state = state * np.uint32(1664525) + np.uint32(1013904223)
        one, two = (((state >> shift) & 4095) / 4096 - 0.5 for shift in (8, 20))
        price = price + price * vol * one * 0.5
        vol = np.maximum(vol + 0.05 * (0.2 - vol) + 0.1 * vol * two, 0.01)
        total += price
    return pair_of(run, out, np.resize(np.maximum(total / steps - 1, 0), count), 1e-4)


def row_ranges(lab: Lab) -> Case:
    programs, block = lab.size(8 * lab.sms, 4), 128
    rows = programs * lab.size(32, 4)
    lengths = (block * (1 + lab.size(15, 4) * np.exp(-4 * np.arange(rows) / rows))).astype(np.int64)
    first = np.concatenate([[0], np.cumsum(lengths)])  # the vertices of a graph, from many neighbours to few
    entries = int(first[-1])
    columns = np.resize(np.random.default_rng(109).integers(0, rows, 1 << 16), entries).astype(np.int32)
    values, x = numbers(entries, top=3), numbers(rows, top=4)
    arrays, out = [lab.upload(one) for one in (first.astype(np.int32), columns, values, x)], zeros(lab, rows)
    steps = np.concatenate([[0], np.cumsum(-(-lengths // block))])
    even = np.searchsorted(steps, np.linspace(0, steps[-1], programs + 1)).astype(np.int32)
    bounds = {BROKEN: np.linspace(0, rows, programs + 1).astype(np.int32), REPAIRED: even}
    given = {version: lab.upload(bound) for version, bound in bounds.items()}

    def run(version: str) -> None:
        kernels.row_ranges[(programs,)](*arrays, out[version], given[version], BLOCK=block, num_warps=4)

    return pair_of(run, out, np.add.reduceat(values * x[columns], first[:-1]))


def trimer_counts(lab: Lab) -> Case:
    count, block = lab.size(1 << 18, 1 << 9), lab.size(512, 256)
    reads = np.random.default_rng(110).integers(-(1 << 31), 1 << 31, count, dtype=np.int32)
    given, out = lab.upload(reads), zeros(lab, 64, dtype=np.int32)

    def run(version: str) -> None:
        shape = {"BINS": 64, "BY_PROGRAM": version == REPAIRED, "BLOCK": block}
        kernels.trimer_counts[(count // block,)](given, out[version], **shape, num_warps=4)

    expected = sum(np.bincount((reads >> (2 * at)) & 63, minlength=64) for at in range(10))
    return pair_of(run, out, expected, adds=True)


def yuv_planes(lab: Lab) -> Case:
    count, block = lab.size(1 << 23, 1 << 11), 1024
    rgb = numbers(3, count, top=256)
    given, out = lab.upload(rgb), lab.upload(np.zeros((3, count), np.float32))
    run = lambda: kernels.yuv_planes[(count // block,)](given, out, count, BLOCK=block, num_warps=4)  # noqa: E731
    red, green, blue = rgb
    bright = np.float32(0.299) * red + np.float32(0.587) * green + np.float32(0.114) * blue
    expected = np.stack([bright, np.float32(0.492) * (blue - bright), np.float32(0.877) * (red - bright)])
    return Case({REPAIRED: run}, {REPAIRED: out}, expected, 1e-4)
