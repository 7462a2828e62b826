"""Pallas kernels for benchmarks/reach.py: Triton and Mosaic GPU back ends, and what XLA fuses itself."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

import warplens as wl
from benchmarks.lib.reach_cases import RECORDED, TIMES, Row, described

N = 1 << 20


def scale_add(x: Any, y: Any, out: Any) -> None:
    out[...] = x[...] * y[...] + 1


def triton_kernel(x: Any, y: Any) -> Any:
    from jax.experimental.pallas import triton

    block = pl.BlockSpec((1024,), lambda i: (i,))
    shape = jax.ShapeDtypeStruct((N,), jnp.float32)
    call = pl.pallas_call(scale_add, out_shape=shape, grid=(N // 1024,), in_specs=[block] * 2, out_specs=block,
                          compiler_params=triton.CompilerParams(num_warps=4))  # fmt: skip
    return call(x, y)


def mosaic_kernel(x: Any, y: Any) -> Any:
    from jax.experimental.pallas import mosaic_gpu

    def mosaic_add(a: Any, b: Any, out: Any) -> None:
        at = pl.ds(jax.lax.axis_index("i") * 1024, 1024)
        out[at] = a[at] * b[at] + 1

    shape = jax.ShapeDtypeStruct((N,), jnp.float32)
    return mosaic_gpu.kernel(mosaic_add, out_type=shape, grid=(N // 1024,), grid_names=("i",))(x, y)


def fusion(x: Any, y: Any) -> Any:
    return jnp.sin(x) * jnp.cos(y)


def run_pallas(kind: str) -> Row:
    function = {"triton": triton_kernel, "mosaic": mosaic_kernel, "fusion": fusion}[kind]
    x, y = (jax.random.uniform(jax.random.key(seed), (N,)) for seed in (0, 1))

    def run() -> bytes:
        # A function of its own, so that each run compiles.
        compiled = jax.jit(functools.partial(lambda call, a, b: call(a, b), function))
        for _ in range(TIMES):
            out = compiled(x, y)
        return bytes(jax.device_get(out).tobytes())

    profile = wl.profile(auto=True, launches=RECORDED)
    with profile:
        marked = run()
    jax.clear_caches()
    plain = run()
    row = described(profile.trace, profile, {})
    return {**row, "identical": marked == plain, "regions": sorted(profile.trace.regions)}
