"""Inputs and launches of the third set of pairs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.truth import third_kernels as kernels
from benchmarks.truth.pair import BROKEN, REPAIRED, Case, Lab

_BOTH = (BROKEN, REPAIRED)
_FILE = "third.cu"


def _values(*shape: int, top: int = 5, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    piece = np.random.default_rng(31).integers(0, top, min(int(np.prod(shape)), 1 << 20)).astype(dtype)
    return np.resize(piece, shape)


def _both(run: Callable[[str], None], outputs: dict[str, Any], expected: Any = None, tolerance: float = 0.0) -> Case:
    return Case({version: partial(run, version) for version in outputs}, outputs, expected, tolerance)


def _made(lab: Lab, name: str) -> dict[str, Any]:
    return {version: lab.kernel(_FILE, name, version == REPAIRED) for version in _BOTH}


def _zeros(lab: Lab, *shape: int, dtype: Any = np.float32) -> dict[str, Any]:
    return {version: lab.upload(np.zeros(shape, dtype)) for version in _BOTH}


def turn_sheet(lab: Lab) -> Case:
    n = lab.size(4096, 64)
    values = _values(n, n)
    given, out, made = lab.upload(values), _zeros(lab, n, n), _made(lab, "turn_sheet")
    run = lambda version: made[version].launch((n // 32, n // 32), 256, given, out[version], np.int32(n))  # noqa: E731
    return _both(run, out, np.ascontiguousarray(values.T))


def mix_sheet(lab: Lab) -> Case:
    blocks, rounds = lab.size(8 * lab.sms, 2), lab.size(100, 2)
    out, made = _zeros(lab, blocks * 32, 32), _made(lab, "mix_sheet")
    run = lambda version: made[version].launch(blocks, 256, out[version], np.int32(rounds))  # noqa: E731
    one = np.arange(1024, dtype=np.float32).reshape(32, 32)
    return _both(run, out, np.tile((one if rounds % 2 == 0 else one.T) + rounds, (blocks, 1)))


def add_fields(lab: Lab) -> Case:
    n = lab.size(1 << 21, 512)
    values = _values(n, 16)
    given = {BROKEN: lab.upload(values), REPAIRED: lab.upload(np.ascontiguousarray(values.T))}
    out, made = _zeros(lab, n), _made(lab, "add_fields")
    run = lambda version: made[version].launch(n // 256, 256, given[version], out[version], np.int32(n))  # noqa: E731
    return _both(run, out, values.sum(axis=1))


def heavy_units(lab: Lab) -> Case:
    """The same units: 2 SMs' worth of blocks more than fit, or exactly as many as fit, twice."""
    fit = 2 * lab.sms
    blocks = {BROKEN: fit + 8, REPAIRED: 4 * fit}
    units = {BROKEN: lab.size(32, 2), REPAIRED: lab.size(8, 1)}
    out = {version: lab.upload(np.zeros(blocks[version] * 1024, np.float32)) for version in _BOTH}
    kernel = lab.kernel(_FILE, "heavy_units", True)
    run = lambda version: kernel.launch(blocks[version], 1024, out[version], np.int32(units[version]))  # noqa: E731
    return Case({version: partial(run, version) for version in _BOTH}, {BROKEN: out[BROKEN], REPAIRED: out[BROKEN]})


def finish_rows(lab: Lab) -> Case:
    blocks, rounds = lab.size(4 * lab.sms, 2), lab.size(40, 2)
    values = _values(blocks * rounds, 256)
    given, out, made = lab.upload(values), _zeros(lab, *values.shape), _made(lab, "finish_rows")
    run = lambda version: made[version].launch(blocks, 256, given, out[version], np.int32(rounds))  # noqa: E731
    return _both(run, out)


def chained_sums(lab: Lab) -> Case:
    blocks = lab.size(4 * lab.sms, 4)
    values = _values(blocks * 8, 256)
    given, out, made = lab.upload(values), _zeros(lab, *values.shape), _made(lab, "chained_sums")
    sums, ready = lab.upload(np.zeros(blocks, np.float32)), lab.upload(np.zeros(blocks, np.int32))

    def run(version: str) -> None:
        lab.zero(ready)
        made[version].launch(blocks, 256, given, out[version], sums, ready)

    return _both(run, out)


def thread_tables(lab: Lab) -> Case:
    blocks, rounds = lab.size(8 * lab.sms, 2), lab.size(60, 2)
    steps, out = lab.upload(_values(rounds, top=32, dtype=np.int32)), _zeros(lab, blocks * 128)
    made = _made(lab, "thread_tables")
    run = lambda version: made[version].launch(blocks, 128, steps, out[version], np.int32(rounds))  # noqa: E731
    return Case({version: partial(run, version) for version in _BOTH}, {BROKEN: out[BROKEN], REPAIRED: out[BROKEN]})


def one_sum(lab: Lab) -> Case:
    blocks, each = lab.size(4 * lab.sms, 2), lab.size(8, 2)
    values = _values(blocks * each * 256, top=2)
    given, out, made = lab.upload(values), _zeros(lab, 257), _made(lab, "one_sum")
    run = lambda version: made[version].launch(blocks, 256, given, out[version], np.int32(each))  # noqa: E731
    expected = np.zeros(257, np.float32)
    expected[0] = values.sum()
    return Case({version: partial(run, version) for version in _BOTH}, out, expected, clear=list(out.values()))


def warp_chains(lab: Lab) -> Case:
    blocks, rounds = lab.size(4 * lab.sms, 2), lab.size(64, 4)
    steps = np.random.default_rng(7).permutation(np.repeat([10, 40, 80, 250], 16)).astype(np.int32)
    given, out, made = lab.upload(steps), _zeros(lab, blocks * 256), _made(lab, "warp_chains")
    run = lambda version: made[version].launch(blocks, 256, given, out[version], np.int32(rounds))  # noqa: E731
    return _both(run, out)


def powers(lab: Lab) -> Case:
    blocks, rounds = lab.size(8 * lab.sms, 2), lab.size(60, 2)
    kernel, out = lab.kernel(_FILE, "powers", True), lab.upload(np.zeros(blocks * 256, np.float32))
    return Case({REPAIRED: lambda: kernel.launch(blocks, 256, out, np.int32(rounds))}, {REPAIRED: out})


def random_walk(lab: Lab) -> Case:
    blocks, steps, size = lab.size(8 * lab.sms, 2), lab.size(100, 2), lab.size(1 << 24, 1 << 10)
    table = np.random.default_rng(5).integers(0, size, size).astype(np.int32)
    given, out, made = lab.upload(table), _zeros(lab, blocks * 128, dtype=np.int32), _made(lab, "random_walk")
    shared = {BROKEN: lab.size(100 << 10, 0), REPAIRED: 0}

    def run(version: str) -> None:
        numbers = (np.int32(size - 1), np.int32(steps))
        made[version].launch(blocks, 128, given, out[version], *numbers, shared=shared[version])

    return _both(run, out)


def wide_copy(lab: Lab) -> Case:
    size = lab.size(1 << 26, 1 << 12)
    values = _values(size)
    kernel, given, out = lab.kernel(_FILE, "wide_copy", True), lab.upload(values), lab.upload(np.zeros_like(values))
    return Case({REPAIRED: lambda: kernel.launch(size // 4096, 256, given, out)}, {REPAIRED: out}, values)


def norm_rows(lab: Lab) -> Case:
    rows, columns = lab.size(16384, 4), lab.size(4096, 64)
    values = _values(rows, columns)
    given, out = lab.upload(values), lab.upload(np.zeros_like(values))
    run = lambda: kernels.norm_rows[(rows,)](given, out, COLUMNS=columns, num_warps=8)  # noqa: E731
    centred = values - values.mean(axis=1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)
    return Case({REPAIRED: run}, {REPAIRED: out}, expected, 1e-4)


def strided_rows(lab: Lab) -> Case:
    """Sums along the columns of a matrix, where neighbouring lanes read rows far apart, or columns side by side."""
    rows, columns = lab.size(8192, 64), lab.size(4096, 64)
    values = _values(rows, columns)
    given = {BROKEN: lab.upload(np.ascontiguousarray(values.T)), REPAIRED: lab.upload(values)}
    out = {version: lab.upload(np.zeros(columns, np.float32)) for version in _BOTH}
    block = lab.size(64, 16)

    def run(version: str) -> None:
        steps = {"ACROSS": version == REPAIRED, "BLOCK": block, "ROWS": 4}
        grid = (columns // block, lab.size(32, 1))
        kernels.strided_rows[grid](given[version], out[version], rows, columns, **steps, num_warps=4)

    expected = values.sum(axis=0)
    return Case({version: partial(run, version) for version in _BOTH}, out, expected, 1e-5, clear=list(out.values()))
