"""Inputs and launches of the ninth set of pairs."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.truth import ninth_kernels as kernels
from benchmarks.truth.fourth_cases import made, numbers, pair_of, zeros
from benchmarks.truth.pair import BROKEN, REPAIRED, Case, Lab


def sobel_edges(lab: Lab) -> Case:
    width, height = lab.size(4096, 64), lab.size(2048, 32)
    values = numbers(height, width, top=256)
    given, out, kernel = lab.upload(values), zeros(lab, height, width), made(lab, "sobel_edges")

    def run(version: str) -> None:
        along, across = (width, height) if version == REPAIRED else (height, width)
        sizes = np.int32(width), np.int32(height)
        kernel[version].launch((along // 32, across // 32), (32, 8), given, out[version], *sizes)

    wide = np.pad(values, 1, mode="edge")
    near = {(i, j): wide[i : i + height, j : j + width] for i in range(3) for j in range(3)}
    right = sum(weight * (near[i, 2] - near[i, 0]) for i, weight in enumerate((1, 2, 1)))
    down = sum(weight * (near[2, j] - near[0, j]) for j, weight in enumerate((1, 2, 1)))
    return pair_of(run, out, np.abs(right) + np.abs(down))


def small_factors(lab: Lab) -> Case:
    blocks = lab.size(8 * lab.sms, 1)
    values = numbers(blocks * 4, 32, 32) + 100 * np.eye(32, dtype=np.float32)
    given, out, kernel = lab.upload(values), zeros(lab, blocks * 4, 32, 32), made(lab, "small_factors")
    factors = values.astype(np.float64)
    for pivot in range(31):
        after = slice(pivot + 1, None)
        factors[:, after, pivot] /= factors[:, pivot, pivot, None]
        factors[:, after, after] -= factors[:, after, pivot, None] * factors[:, pivot, None, after]
    return pair_of(lambda version: kernel[version].launch(blocks, 128, given, out[version]), out, factors, 1e-3)


def march_rays(lab: Lab) -> Case:
    rays, depth = lab.size(1024 * lab.sms, 512), lab.size(384, 16)
    volume = numbers(depth, rays, top=8, dtype=np.uint8)
    given, out, kernel = lab.upload(volume), zeros(lab, rays), made(lab, "march_rays")

    def run(version: str) -> None:
        kernel[version].launch(rays // 256, 256, given, out[version], np.int32(rays), np.int32(depth))

    light, through = np.zeros(rays), np.ones(rays)
    for density in volume:
        opacity = density / 1024
        light += through * opacity * (1 + 0.5 * opacity)
        through *= 1 - opacity
    return pair_of(run, out, light, 2e-5)


def cross_sections(lab: Lab) -> Case:
    blocks = {BROKEN: lab.size(lab.sms + 12, 1), REPAIRED: lab.sms}
    units, lookups = lab.size(8 * blocks[BROKEN], 4), lab.size(8, 2)
    energies = (np.arange(8192, dtype=np.float32) / np.float32(8192)) ** 2
    reactions = numbers(3, 8192, top=50)
    given, out = lab.upload(np.concatenate([energies[None], reactions])), zeros(lab, units, 1024)
    kernel = lab.kernel("cross_sections.cu", "cross_sections", True)

    def run(version: str) -> None:
        sizes = np.int32(units), np.int32(lookups)
        kernel.launch(blocks[version], 1024, given, out[version], *sizes, shared=4 * 8192 * 4)

    state = np.arange(units * 1024, dtype=np.uint32) * np.uint32(2654435761)
    expected = np.zeros(units * 1024)
    for _ in range(lookups):
        state = state * np.uint32(1664525) + np.uint32(1013904223)
        energy = (state >> 8).astype(np.float32) / np.float32(1 << 24)
        for reaction in reactions:
            expected += np.interp(energy, energies, reaction)
    return pair_of(run, out, expected.reshape(units, 1024), 1e-3)


def star_fluxes(lab: Lab) -> Case:
    blocks, side, random = lab.size(4 * lab.sms, 1), lab.size(2048, 128), np.random.default_rng(91)
    image = numbers(side, side, top=16) + 1
    radii = (2 + lab.size(30, 8) * (1 - np.arange(128) / 128) ** 2).astype(np.int32)
    stars = np.zeros((blocks, 128, 4), np.int32)
    stars[..., :2], stars[..., 2] = random.integers(32, side - 32, (blocks, 128, 2)), radii
    arrays, out, kernel = [lab.upload(image), lab.upload(stars)], zeros(lab, blocks, 128), made(lab, "star_fluxes")
    run = lambda version: kernel[version].launch(blocks, 256, *arrays, out[version], np.int32(side))  # noqa: E731
    fluxes = np.zeros((blocks, 128))
    for radius in np.unique(radii):
        dy, dx = np.mgrid[-radius : radius + 1, -radius : radius + 1]
        dy, dx = dy[dx**2 + dy**2 <= radius**2], dx[dx**2 + dy**2 <= radius**2]
        mine = radii == radius
        x, y = stars[:, mine, 0, None], stars[:, mine, 1, None]
        fluxes[:, mine] = image[y + dy, x + dx].sum(axis=2)
    return pair_of(run, out, fluxes / fluxes[:, :1], 1e-5)


def pool_packed(lab: Lab) -> Case:
    blocks, vectors = lab.size(2 * lab.sms, 1), lab.size(128, 9)
    packed = np.resize(np.random.default_rng(92).integers(0, 1 << 32, 1 << 18, np.uint32), (blocks, vectors, 256))
    scales = numbers(blocks, vectors, 64, top=4) * np.float32(0.25)
    arrays, out = [lab.upload(packed), lab.upload(scales)], zeros(lab, blocks, 2048)
    kernel = made(lab, "pool_packed")

    def run(version: str) -> None:
        warps = 8 if version == REPAIRED else 5
        kernel[version].launch(blocks, 32 * warps, *arrays, out[version], np.int32(vectors))

    expected = np.zeros((blocks, 64, 4, 8), np.float32)
    for vector in range(vectors):
        values = (packed[:, vector, :, None] >> (4 * np.arange(8, dtype=np.uint32)) & 15).astype(np.float32) - 8
        expected += values.reshape(expected.shape) * scales[:, vector, :, None, None]
    return pair_of(run, out, expected.reshape(blocks, 2048))


def restore_blocks(lab: Lab) -> Case:
    count, rounds = lab.size(2048 * lab.sms, 128), lab.size(4, 2)
    piece = np.random.default_rng(93).integers(0, 256, (8, 8, min(count, 4096))).astype(np.float32)
    values = np.tile(piece, -(-count // piece.shape[2]))[..., :count]
    given, out, kernel = lab.upload(values), zeros(lab, 8, 8, count), made(lab, "restore_blocks")

    def run(version: str) -> None:
        kernel[version].launch(count // 128, 128, given, out[version], np.int32(count), np.int32(rounds))

    n = np.arange(8)
    cosines = np.cos(np.pi * (2 * n + 1) * n[:, None] / 16) / 2
    cosines[0] = np.sqrt(1 / 8)
    pixels = piece.transpose(2, 0, 1).astype(np.float64)
    for _ in range(rounds):
        waves = cosines @ pixels @ cosines.T
        waves = np.sign(waves) * np.maximum(np.abs(waves) - 0.5, 0)
        pixels = np.clip(cosines.T @ waves @ cosines, 0, 255)
    last = np.tile(pixels.transpose(1, 2, 0), -(-count // piece.shape[2]))[..., :count]
    return pair_of(run, out, last, 1e-2)


def nearest_points(lab: Lab) -> Case:
    blocks, count, random = lab.size(2 * lab.sms, 1), lab.size(8192, 1024), np.random.default_rng(94)
    # A scanner looks at eight places in turn, 64 points at a time, and each time a little nearer to their centres.
    at = np.arange(count)
    reach = 1000 * 0.8 ** (at // 512) * random.uniform(0.8, 1, count)
    angle = random.uniform(0, 2 * np.pi, count)
    centres = np.arange(8) * 4096
    x = centres[at // 64 % 8] + reach * np.cos(angle)
    points = np.stack([x, reach * np.sin(angle)], axis=1).round().astype(np.float32)
    queries = np.zeros((blocks, 8, 2), np.float32)
    queries[..., 0], queries[..., 1] = centres, (np.arange(blocks) % 8)[:, None]
    arrays = [lab.upload(points), lab.upload(queries)]
    out, kernel = zeros(lab, blocks, 8, 32), made(lab, "nearest_points")
    run = lambda version: kernel[version].launch(blocks, 256, *arrays, out[version], np.int32(count))  # noqa: E731
    few = queries[:8].astype(np.float64)  # the queries of later blocks are the same
    apart = ((few[:, :, None] - points) ** 2).sum(axis=3)
    return pair_of(run, out, np.resize(np.sort(apart, axis=2)[..., :32], (blocks, 8, 32)))


def mersenne_powers(lab: Lab) -> Case:
    blocks, rounds, prime = lab.size(16 * lab.sms, 1), lab.size(4, 2), np.uint64(2**31 - 1)
    random = np.random.default_rng(95)
    values = np.resize(random.integers(1, 2**31 - 1, 4096, np.uint32), blocks * 1024)
    exponents = random.integers(1 << 30, 2**31 - 1, rounds, np.uint32)
    arrays: list[Any] = [lab.upload(values), lab.upload(exponents)]
    out = lab.upload(np.zeros(blocks * 1024, np.uint32))
    kernel = lab.kernel("mersenne_powers.cu", "mersenne_powers", True)
    expected = values[:4096].astype(np.uint64)
    for exponent in exponents:
        power, factor = np.ones_like(expected), expected
        for bit in range(31):
            power = power * factor % prime if exponent >> bit & 1 else power
            factor = factor * factor % prime
        expected = power
    run = lambda: kernel.launch(blocks, 256, *arrays, out, np.int32(rounds))  # noqa: E731
    return Case({REPAIRED: run}, {REPAIRED: out}, np.resize(expected, blocks * 1024))


def lora_shrink(lab: Lab) -> Case:
    tokens, depth, rank = lab.size(512, 32), lab.size(1 << 16, 512), 16
    x, a = numbers(tokens, depth, dtype=np.float16), numbers(rank, depth, top=3, dtype=np.float16)
    arrays, out = [lab.upload(x), lab.upload(a)], zeros(lab, tokens, rank)

    def run(version: str) -> None:
        grid = (tokens // 16, lab.size(16, 2) if version == REPAIRED else 1)
        shape = {"TOKENS": 16, "RANK": rank, "BLOCK": 128}
        kernels.lora_shrink[grid](*arrays, out[version], depth, **shape, num_warps=4)

    return pair_of(run, out, x.astype(np.float32) @ a.T.astype(np.float32), adds=True)


def flame_cells(lab: Lab) -> Case:
    programs, each, block = 4 * lab.sms, lab.size(16, 2), lab.size(256, 128)
    tiles = programs * each
    steps = np.where(np.arange(tiles) < tiles // 8, lab.size(320, 8), lab.size(20, 2)).astype(np.int32)
    fuel = numbers(tiles, block) / 4 + np.float32(0.25)
    heat = numbers(tiles, block, top=7) / 4 + np.float32(0.5)
    arrays, out = [lab.upload(one) for one in (fuel, heat, steps)], zeros(lab, 2, tiles, block)

    def run(version: str) -> None:
        shape = {"DEALT": version == REPAIRED, "BLOCK": block}
        kernels.flame_cells[(programs,)](*arrays, out[version], tiles * block, each, **shape, num_warps=4)

    left, warmth = fuel.astype(np.float64), heat.astype(np.float64)
    for step in range(int(steps.max())):
        some = steps > step
        burnt = 0.01 * left[some] * np.exp(-4 / warmth[some])
        left[some] -= burnt
        warmth[some] += burnt
    return pair_of(run, out, np.stack([left, warmth]), 1e-3)


def gram_matrix(lab: Lab) -> Case:
    programs, rows = lab.sms, lab.size(2048, 64)
    x, lock = numbers(programs * rows, 64, dtype=np.float16), lab.upload(np.zeros(1, np.int32))
    given, out = lab.upload(x), zeros(lab, 64, 64)

    def run(version: str) -> None:
        shape = {"LOCKED": version == BROKEN, "ROWS": 64, "COLUMNS": 64}
        kernels.gram_matrix[(programs,)](given, out[version], lock, rows, **shape, num_warps=4)

    return pair_of(run, out, x.T.astype(np.float32) @ x.astype(np.float32), adds=True)


def embedding_gradient(lab: Lab) -> Case:
    tokens, words, width = lab.size(1 << 16, 64), lab.size(8192, 32), lab.size(128, 32)
    random = np.random.default_rng(96)
    ids = np.where(random.random(tokens) < 0.9, 0, random.integers(0, words, tokens)).astype(np.int32)
    slopes = numbers(tokens, width)
    arrays, out = [lab.upload(ids), lab.upload(slopes)], zeros(lab, words, width)

    def run(version: str) -> None:
        shape = {"APART": version == REPAIRED, "TOKENS": 32, "WIDTH": width}
        kernels.embedding_gradient[(tokens // 32,)](*arrays, out[version], 0, **shape, num_warps=4)

    expected = np.zeros((words, width))
    np.add.at(expected, ids, slopes)
    return pair_of(run, out, expected, adds=True)


def resize_images(lab: Lab) -> Case:
    count, side = lab.size(32, 3), lab.size(384, 48)
    small = side * 2 // 3
    values = numbers(count, side, side, top=256)
    given, out = lab.upload(values), zeros(lab, count, small, small)
    block = lab.size(1024, 256)

    def run(version: str) -> None:
        shape = {"SIDE": side, "SMALL": small, "BLOCK": block}
        if version == REPAIRED:
            kernels.resize_images[(small * small // block, count)](given, out[version], **shape, num_warps=4)
            return
        for image in range(count):
            grid = (small * small // block, 1)
            kernels.resize_images[grid](given[image], out[version][image], **shape, num_warps=4)

    places = np.arange(small) * 1.5 + 0.25
    first = places.astype(int)
    part = (places - first).astype(np.float32)
    upright = values[:, first] * (1 - part)[:, None] + values[:, first + 1] * part[:, None]
    return pair_of(run, out, upright[..., first] * (1 - part) + upright[..., first + 1] * part)


def swiglu(lab: Lab) -> Case:
    rows, columns = lab.size(8192, 4), lab.size(4096, 256)
    gates, values = numbers(rows, columns, top=9, dtype=np.float16) - 4, numbers(rows, columns, dtype=np.float16)
    given: list[Any] = [lab.upload(gates), lab.upload(values)]
    out: Any = lab.upload(np.zeros((rows, columns), np.float16))
    run = lambda: kernels.swiglu[(rows,)](*given, out, COLUMNS=columns, num_warps=8)  # noqa: E731
    wide = gates.astype(np.float32)
    return Case({REPAIRED: run}, {REPAIRED: out}, wide / (1 + np.exp(-wide)) * values, 5e-3)
