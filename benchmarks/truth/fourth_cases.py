"""Inputs and launches of the fourth set of pairs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.truth import fourth_kernels as kernels
from benchmarks.truth.pair import BROKEN, REPAIRED, Case, Lab

_BOTH = (BROKEN, REPAIRED)


def numbers(*shape: int, top: int = 5, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    piece = np.random.default_rng(41).integers(0, top, min(int(np.prod(shape)), 1 << 20)).astype(dtype)
    return np.resize(piece, shape)


def pair_of(
    run: Callable[[str], None],
    outputs: dict[str, Any],
    expected: Any = None,
    tolerance: float = 0.0,
    adds: bool = False,
) -> Case:
    """`adds` says that the kernel adds to its output."""
    clear = list(outputs.values()) if adds else []
    return Case({version: partial(run, version) for version in outputs}, outputs, expected, tolerance, clear)


def zeros(lab: Lab, *shape: int, dtype: Any = np.float32) -> dict[str, Any]:
    return {version: lab.upload(np.zeros(shape, dtype)) for version in _BOTH}


def made(lab: Lab, name: str) -> dict[str, Any]:
    return {version: lab.kernel(f"{name}.cu", name, version == REPAIRED) for version in _BOTH}


def image_histogram(lab: Lab) -> Case:
    quads, blocks = lab.size(1 << 19, 1 << 9), 4 * lab.sms
    grey = np.clip(np.random.default_rng(42).normal(48, 14, 4 * quads), 0, 255).astype(np.uint8)  # a dark image
    given, kernel = lab.upload(grey), made(lab, "image_histogram")
    out = zeros(lab, 256, dtype=np.int32)

    def run(version: str) -> None:
        kernel[version].launch(blocks, 256, given, out[version], np.int32(quads))

    return pair_of(run, out, np.bincount(grey, minlength=256), adds=True)


def gemm_nt(lab: Lab) -> Case:
    n, depth = lab.size(2048, 64), lab.size(256, 32)
    a, b = numbers(n, depth), numbers(n, depth, top=3)
    arrays, out, kernel = [lab.upload(a), lab.upload(b)], zeros(lab, n, n), made(lab, "gemm_nt")

    def run(version: str) -> None:
        kernel[version].launch((n // 64, n // 64), 256, *arrays, out[version], np.int32(n), np.int32(depth))

    return pair_of(run, out, a @ b.T)


def ragged_softmax(lab: Lab) -> Case:
    rows = lab.size(32768, 32)
    lengths = np.where(np.arange(rows) % 8 == 3, lab.size(4096, 96), lab.size(128, 40))
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    values = numbers(int(starts[-1]))
    order = {BROKEN: np.arange(rows), REPAIRED: np.argsort(-lengths, kind="stable")}
    orders = {version: lab.upload(array.astype(np.int32)) for version, array in order.items()}
    arrays, ends, out = lab.upload(values), lab.upload(starts), zeros(lab, len(values))
    kernel = lab.kernel("ragged_softmax.cu", "ragged_softmax", True)

    def run(version: str) -> None:
        kernel.launch(rows // 8, 256, arrays, out[version], ends, orders[version])

    powers = np.exp(values)
    sums = np.add.reduceat(powers, starts[:-1])
    return pair_of(run, out, powers / np.repeat(sums, lengths), 1e-4)


def row_energy(lab: Lab) -> Case:
    blocks, tiles = 2 * lab.sms, lab.size(16, 2)
    rows = lab.size(8, 2) * blocks
    values = numbers(rows, tiles * 1024)
    given, out, kernel = lab.upload(values), zeros(lab, rows, 8), made(lab, "row_energy")

    def run(version: str) -> None:
        kernel[version].launch(blocks, 256, given, out[version], np.int32(rows), np.int32(tiles))

    return pair_of(run, out, (values.reshape(rows, tiles, 8, 128) ** 2).sum(axis=(1, 3)))


def tile_ring(lab: Lab) -> Case:
    blocks, tiles = 2 * lab.sms, lab.size(64, 3)
    values = numbers(blocks, tiles, 4, 4, 32)
    given, out, kernel = lab.upload(values), zeros(lab, blocks, 4, 32), made(lab, "tile_ring")
    run = lambda version: kernel[version].launch(blocks, 160, given, out[version], np.int32(tiles))  # noqa: E731
    powers = ((values * np.float32(0.25) + np.float32(0.5)) * values - 1) * values + 2
    return pair_of(run, out, powers.sum(axis=(1, 2)), 1e-4)


def to_channels_last(lab: Lab) -> Case:
    images, channels, pixels = lab.size(32, 1), lab.size(64, 32), lab.size(4096, 64)
    values = numbers(images, channels, pixels)
    given, out = lab.upload(values), zeros(lab, images, pixels, channels)
    kernel = made(lab, "to_channels_last")

    def run(version: str) -> None:
        grid = (pixels // 32, channels // 32, images)
        kernel[version].launch(grid, 256, given, out[version], np.int32(channels), np.int32(pixels))

    return pair_of(run, out, np.ascontiguousarray(values.transpose(0, 2, 1)))


def warp_sort(lab: Lab) -> Case:
    blocks, batches = lab.size(4 * lab.sms, 1), lab.size(24, 1)
    values = np.random.default_rng(43).integers(0, 1 << 30, (blocks * batches * 16, 64)).astype(np.int32)
    given, kernel = lab.upload(values), made(lab, "warp_sort")
    out = zeros(lab, *values.shape, dtype=np.int32)
    run = lambda version: kernel[version].launch(blocks, 512, given, out[version], np.int32(batches))  # noqa: E731
    return pair_of(run, out, np.sort(values, axis=1))


def rms_rows(lab: Lab) -> Case:
    """The rows of each layer in a launch of their own, or all in one."""
    layers, rows = lab.size(24, 2), lab.sms
    values = numbers(layers, rows, 512)
    given, out = lab.upload(values), zeros(lab, *values.shape)
    kernel = lab.kernel("rms_rows.cu", "rms_rows", True)

    def broken() -> None:
        for layer in range(layers):
            kernel.launch(rows, 128, given[layer], out[BROKEN][layer])

    def repaired() -> None:
        kernel.launch(layers * rows, 128, given, out[REPAIRED])

    expected = values / np.sqrt((values**2).mean(axis=2, keepdims=True) + 1e-6)
    return Case({BROKEN: broken, REPAIRED: repaired}, out, expected, 1e-4)


def best_candidate(lab: Lab) -> Case:
    blocks, rounds = 4 * lab.sms, lab.size(8, 2)
    scores = np.random.default_rng(44).integers(0, 1 << 24, blocks * rounds * 256).astype(np.int32)
    given, kernel = lab.upload(scores), made(lab, "best_candidate")
    out, mutex = zeros(lab, 2, dtype=np.int32), lab.upload(np.zeros(1, np.int32))

    def run(version: str) -> None:
        kernel[version].launch(blocks, 256, given, np.int32(rounds), out[version], mutex)

    place = int(np.argmax(scores))
    return pair_of(run, out, np.array([~place, scores[place]], np.int32), adds=True)


def running_totals(lab: Lab) -> Case:
    blocks = lab.size(16 * lab.sms, 4)
    values = numbers(blocks * 1024, dtype=np.int32)
    given, kernel = lab.upload(values), made(lab, "running_totals")
    out, state = zeros(lab, len(values), dtype=np.int32), lab.upload(np.zeros(blocks, np.int64))

    def run(version: str) -> None:
        lab.zero(state)
        kernel[version].launch(blocks, 256, given, out[version], state)

    return pair_of(run, out, np.cumsum(values))


def attraction(lab: Lab) -> Case:
    blocks, count = lab.size(16 * lab.sms, 1), lab.size(1024, 128)
    bodies, sources = (
        np.random.default_rng(45 + i).standard_normal((n, 4)).astype(np.float32)
        for i, n in enumerate((blocks * 128, count))
    )
    arrays, out = [lab.upload(bodies), lab.upload(sources)], lab.upload(np.zeros_like(bodies))
    kernel = lab.kernel("attraction.cu", "attraction", True)
    return Case({REPAIRED: lambda: kernel.launch(blocks, 128, *arrays, out, np.int32(count))}, {REPAIRED: out})


def layer_norm(lab: Lab) -> Case:
    programs, columns = 2 * lab.sms, lab.size(8192, 256)
    rows = programs * lab.size(12, 1)
    values = numbers(rows, columns)
    given, out = lab.upload(values), zeros(lab, rows, columns)

    def run(version: str) -> None:
        shape = {"COLUMNS": columns, "BLOCK": lab.size(1024, 128), "STAGES": 4 if version == REPAIRED else 1}
        kernels.layer_norm[(programs,)](given, out[version], rows, **shape, num_warps=4)

    centred = values - values.mean(axis=1, keepdims=True)
    return pair_of(run, out, centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5), 1e-3)


def expert_sums(lab: Lab) -> Case:
    """Each expert's rows in one program, or in parts of at most 64 rows."""
    experts, columns = 2 * lab.sms, lab.size(128, 32)
    sizes = np.random.default_rng(46).permutation(lab.size(5000, 60) / (1 + np.arange(experts)) ** 0.7).astype(int) + 1
    starts = np.concatenate([[0], np.cumsum(sizes)])
    values, part = numbers(int(starts[-1]), columns), lab.size(64, 16)
    whole = [(starts[i], sizes[i], i) for i in range(experts)]
    parts = [(start + at, min(part, size - at), i) for start, size, i in whole for at in range(0, size, part)]
    work = {
        version: [lab.upload(np.array(column, np.int32)) for column in zip(*items, strict=True)]
        for version, items in ((BROKEN, whole), (REPAIRED, parts))
    }
    programs = {BROKEN: len(whole), REPAIRED: len(parts)}
    given, out = lab.upload(values), zeros(lab, experts, columns)

    def run(version: str) -> None:
        shape = {"COLUMNS": columns, "ROWS": 16}
        kernels.expert_sums[(programs[version],)](given, *work[version], out[version], **shape, num_warps=4)

    return pair_of(run, out, np.add.reduceat(values, starts[:-1], axis=0), adds=True)


def decode_scores(lab: Lab) -> Case:
    """The keys of a sequence in one program, or in sixteen."""
    sequences, length, head = lab.size(32, 2), lab.size(4096, 64), lab.size(128, 32)
    q, keys = numbers(sequences, head, top=3), numbers(sequences, length, head)
    arrays, out = [lab.upload(q), lab.upload(keys)], zeros(lab, sequences)
    parts = {BROKEN: 1, REPAIRED: lab.size(16, 2)}

    def run(version: str) -> None:
        shape = {"BLOCK": lab.size(64, 16), "HEAD": head}
        kernels.decode_scores[(sequences, parts[version])](*arrays, out[version], length, **shape, num_warps=4)

    return pair_of(run, out, np.einsum("sh,slh->s", q, keys), 1e-4, adds=True)


def mixed_norm(lab: Lab) -> Case:
    rows, columns = lab.size(4096, 4), lab.size(8192, 256)
    values, weights = numbers(rows, columns), numbers(columns, top=3)
    arrays, out = [lab.upload(values), lab.upload(weights)], zeros(lab, rows, columns)

    def run(version: str) -> None:
        limit = {"maxnreg": 40} if version == BROKEN else {}
        kernels.mixed_norm[(rows,)](*arrays, out[version], COLUMNS=columns, num_warps=4, **limit)

    powers = np.exp(values - values.max(axis=1, keepdims=True))
    mixed = powers / powers.sum(axis=1, keepdims=True) * weights + values
    centred = mixed - mixed.mean(axis=1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5) + weights
    return pair_of(run, out, expected, 1e-3)


def linear(lab: Lab) -> Case:
    """One tile more than there are SMs, or twice as many tiles of half the size."""
    tile = lab.size(128, 16)
    m, n, k = lab.size(19, 3) * tile, lab.size(7, 1) * tile, lab.size(4096, 32)
    a, w = numbers(m, k, top=3, dtype=np.float16), numbers(n, k, top=2, dtype=np.float16)
    bias = numbers(n, dtype=np.float16)
    arrays = [lab.upload(array) for array in (a, w, bias)]
    out = zeros(lab, m, n, dtype=np.float16)

    def run(version: str) -> None:
        bm, stages, warps = (tile // 2, 3, 4) if version == REPAIRED and tile > 16 else (tile, 4, 8)
        shape = {"BM": bm, "BN": tile, "BK": lab.size(64, 16)}
        grid = (m // bm, n // tile)
        kernels.linear[grid](*arrays, out[version], n, k, **shape, num_warps=warps, num_stages=stages)

    expected = (a.astype(np.float32) @ w.T.astype(np.float32) + bias).astype(np.float16)
    return pair_of(run, out, expected, 2e-3)


def gather_rows(lab: Lab) -> Case:
    entries, wanted, width = lab.size(65536, 64), lab.size(32768, 32), lab.size(1024, 32)
    table = numbers(entries, width)
    ids = np.random.default_rng(47).permutation(entries)[:wanted].astype(np.int32)
    arrays, out = [lab.upload(table), lab.upload(ids)], lab.upload(np.zeros((wanted, width), np.float32))
    run = lambda: kernels.gather_rows[(wanted // 4,)](*arrays, out, WIDTH=width, EACH=4, num_warps=8)  # noqa: E731
    return Case({REPAIRED: run}, {REPAIRED: out}, table[ids])


def described(tensor: Any, *shape: int) -> Any:
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    layout = gl.NVMMASharedLayout.get_default_for(list(shape), gl.float16)
    return TensorDescriptor.from_tensor(tensor, list(shape), layout)


def paged_sums(lab: Lab) -> Case:
    """Pages found along a chain of headers, or in a table."""
    sequences, count, side = lab.sms, 192, 32
    pages = sequences * count
    values = numbers(pages, side, side, dtype=np.float16)
    table = np.random.default_rng(48).permutation(pages).reshape(sequences, count).astype(np.int32)
    after = np.zeros((pages, 32), np.int32)
    after[table, 0] = np.roll(table, -1, axis=1)
    given, arrays = lab.upload(values.reshape(pages * side, side)), [lab.upload(after), lab.upload(table)]
    out = zeros(lab, sequences, side, side)
    tiles = functools.cache(lambda: described(given, side, side))

    def run(version: str) -> None:
        shape = {"STAGES": 4, "CHAINED": version == BROKEN}
        kernels.paged_sums[(sequences,)](tiles(), *arrays, out[version], count, **shape, num_warps=4)

    return pair_of(run, out, values[table].astype(np.float32).sum(axis=1))


def smooth_sums(lab: Lab) -> Case:
    """Four warps evaluate, or sixteen."""
    blocks, count, side = lab.sms, 64, 64
    values = numbers(blocks, count, side, side, dtype=np.float16)
    given, out = lab.upload(values.reshape(-1, side)), zeros(lab, blocks, side, side)
    tiles = functools.cache(lambda: described(given, side, side))

    def run(version: str) -> None:
        warps = 16 if version == REPAIRED else 4
        kernels.smooth_sums[(blocks,)](tiles(), out[version], count, STAGES=4, num_warps=warps)

    power = np.arange(5, dtype=np.float32)
    for _ in range(3):
        power = np.exp(-power * power) + np.float32(0.5) * np.arange(5, dtype=np.float32)
    return pair_of(run, out, power[values.astype(int)].sum(axis=1), 1e-3)
