"""Inputs and launches of the sixth set of pairs."""

from __future__ import annotations

import numpy as np

from benchmarks.truth import sixth_kernels as kernels
from benchmarks.truth.fourth_cases import made, numbers, pair_of, zeros
from benchmarks.truth.pair import BROKEN, REPAIRED, Case, Lab


def particle_energy(lab: Lab) -> Case:
    count = lab.size(1 << 22, 1 << 9)
    records = numbers(count, 16)
    fields = np.ascontiguousarray(records[:, [3, 4, 5, 6]].T)
    given = {BROKEN: lab.upload(records), REPAIRED: lab.upload(fields)}
    out, kernel, blocks = zeros(lab, count), made(lab, "particle_energy"), lab.size(8 * lab.sms, 1)

    def run(version: str) -> None:
        kernel[version].launch(blocks, 256, given[version], out[version], np.int32(count))

    return pair_of(run, out, 0.5 * fields[3] * (fields[:3] ** 2).sum(axis=0))


def turn_tiles(lab: Lab) -> Case:
    blocks, rounds = lab.size(32 * lab.sms, 2), lab.size(200, 3)
    values = numbers(blocks, 16, 16)
    given, out, kernel = lab.upload(values), zeros(lab, blocks, 16, 16), made(lab, "turn_tiles")

    def run(version: str) -> None:
        kernel[version].launch(blocks, (16, 16), given, out[version], np.int32(rounds))

    turned = values if rounds % 2 == 0 else values.transpose(0, 2, 1)
    return pair_of(run, out, turned + rounds)


def embedding_bag(lab: Lab) -> Case:
    bags, length, rows = lab.size(8 * lab.sms, 4), lab.size(256, 8), lab.size(1 << 18, 64)
    table = numbers(rows, 128)
    indices = np.random.default_rng(61).integers(0, rows, (bags, length)).astype(np.int32)
    arrays, out = [lab.upload(table), lab.upload(indices)], zeros(lab, bags, 128)
    kernel = made(lab, "embedding_bag")

    def run(version: str) -> None:
        kernel[version].launch(bags // 4, 128, *arrays, out[version], np.int32(length))

    return pair_of(run, out, table[indices].sum(axis=1), 1e-4)


def bulk_sums(lab: Lab) -> Case:
    blocks, tiles = 2 * lab.sms, lab.size(128, 5)
    values = numbers(blocks, tiles, 4, 256)
    given, out, kernel = lab.upload(values), zeros(lab, blocks, 256), made(lab, "bulk_sums")
    run = lambda version: kernel[version].launch(blocks, 256, given, out[version], np.int32(tiles))  # noqa: E731
    return pair_of(run, out, values.sum(axis=(1, 2)))


def expert_counts(lab: Lab) -> Case:
    tokens, blocks = lab.size(1 << 21, 1 << 10), lab.size(4 * lab.sms, 2)
    experts = np.random.default_rng(62).integers(0, 8, tokens).astype(np.int32)
    given, out, kernel = lab.upload(experts), zeros(lab, 8, dtype=np.int32), made(lab, "expert_counts")
    run = lambda version: kernel[version].launch(blocks, 256, given, out[version], np.int32(tokens))  # noqa: E731
    return pair_of(run, out, np.bincount(experts, minlength=8), adds=True)


def triangle_rows(lab: Lab) -> Case:
    size = lab.size(4096, 128)
    matrix, x = numbers(size, size), numbers(size, top=3)
    arrays, out, kernel = [lab.upload(matrix), lab.upload(x)], zeros(lab, size), made(lab, "triangle_rows")
    run = lambda version: kernel[version].launch(size, 128, *arrays, out[version], np.int32(size))  # noqa: E731
    repeats = 1 + np.arange(size) // (size - size // 64)
    return pair_of(run, out, (np.tril(matrix).astype(np.float64) @ x) * repeats, 1e-3)


def newton_rows(lab: Lab) -> Case:
    blocks, rounds = lab.sms, lab.size(64, 1)
    values = numbers(blocks, 256) + 1
    given, out, kernel = lab.upload(values), zeros(lab, blocks, 256), made(lab, "newton_rows")
    run = lambda version: kernel[version].launch(blocks, 256, given, out[version], np.int32(rounds))  # noqa: E731
    return pair_of(run, out, np.cbrt(values), 1e-3)


def ordered_totals(lab: Lab) -> Case:
    blocks, size = lab.size(2 * lab.sms, 1), lab.size(1 << 14, 1 << 8)
    values = numbers(blocks, size)
    turns = {version: lab.upload(np.zeros(1, np.int32)) for version in (BROKEN, REPAIRED)}
    given, out, kernel = lab.upload(values), zeros(lab, blocks), made(lab, "ordered_totals")

    def run(version: str) -> None:
        kernel[version].launch(blocks, 128, given, out[version], turns[version], np.int32(size))

    case = pair_of(run, out, np.cumsum(values.sum(axis=1)), 1e-4)
    return Case(case.run, case.outputs, case.expected, case.tolerance, list(turns.values()))


def few_rows(lab: Lab) -> Case:
    rows, quads = 16, lab.size(1 << 16, 1 << 9)
    values = numbers(rows, quads, 4)
    given, out, kernel = lab.upload(values), zeros(lab, rows), made(lab, "few_rows")

    def run(version: str) -> None:
        parts = lab.size(32, 2) if version == REPAIRED else 1
        kernel[version].launch((rows, parts), 256, given, out[version], np.int32(quads))

    return pair_of(run, out, (values.astype(np.float64) ** 2).sum(axis=(1, 2)), 1e-3, adds=True)


def smooth_tiles(lab: Lab) -> Case:
    slabs, block, steps = lab.sms * lab.size(4, 1) + 8, lab.size(4096, 128), lab.size(400, 2)
    values = numbers(slabs * 8, block)
    given, out = lab.upload(values), zeros(lab, slabs * 8, block)

    def run(version: str) -> None:
        tiles = 8 if version == BROKEN else 1
        kernels.smooth_tiles[(slabs * 8 // tiles,)](given, out[version], tiles, STEPS=steps, BLOCK=block, num_warps=16)

    return pair_of(run, out, tolerance=1e-4)


def wide_softmax(lab: Lab) -> Case:
    programs, columns = 4 * lab.sms, lab.size(8192, 256)
    rows = programs * lab.size(8, 1)
    values = numbers(rows, columns)
    given, out = lab.upload(values), zeros(lab, rows, columns)

    def run(version: str) -> None:
        kernels.wide_softmax[(programs,)](
            given, out[version], rows, COLUMNS=columns, num_warps=1 if version == BROKEN else 8
        )

    powers = np.exp(values - values.max(axis=1, keepdims=True))
    return pair_of(run, out, powers / powers.sum(axis=1, keepdims=True) + 0.001 * values, 1e-3)


def scale_shift(lab: Lab) -> Case:
    rows, columns = lab.size(1 << 14, 4), lab.size(4096, 128)
    x, scale, shift = numbers(rows, columns), numbers(columns), numbers(columns, top=3)
    arrays, out = [lab.upload(one) for one in (x, scale, shift)], lab.upload(np.zeros_like(x))
    run = lambda: kernels.scale_shift[(rows,)](*arrays, out, COLUMNS=columns, num_warps=8)  # noqa: E731
    return Case({REPAIRED: run}, {REPAIRED: out}, x * scale + shift)


def escape_times(lab: Lab) -> Case:
    width, most = lab.size(2048, 32), lab.size(1000, 8)
    kernel, out = lab.kernel("escape_times.cu", "escape_times", True), lab.upload(np.zeros(width * width, np.int32))
    run = lambda: kernel.launch(width * width // 256, 256, out, np.int32(width), np.int32(most))  # noqa: E731
    return Case({REPAIRED: run}, {REPAIRED: out})
