"""Warp kernels for benchmarks/reach.py: one to run, and launches of Warp's own examples to carry to a machine without
Warp. Warp reads a kernel's source from its file."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import warp as wp

from benchmarks.lib.carried_kernels import CarriedKernel, carried
from benchmarks.lib.stub_driver import StubDriver

ONE_DIMENSION, SIDE, BODIES = 1 << 20, 1 << 10, 1 << 14


@wp.kernel
def saxpy(x: wp.array(dtype=float), y: wp.array(dtype=float), a: float):
    i = wp.tid()
    s = 0.0
    for k in range(16):
        s += x[i] * a + float(k)
    y[i] = s + y[i]


EXAMPLES: list[tuple[str, str, int, int, list[Any]]] = [
    ("core.example_wave", "wave_solve", ONE_DIMENSION, 256, [
        float, float, SIDE, SIDE, 10.0, 1.0, 0.0, 1.0 / 960.0,
    ]),
    ("core.example_wave", "grid_update", ONE_DIMENSION, 256, [float, wp.vec3]),
    ("core.example_dem", "integrate", ONE_DIMENSION, 256, [
        wp.vec3, wp.vec3, wp.vec3, (0.0, -9.8, 0.0), 1.0 / 960.0, 64.0,
    ]),
    ("core.example_raymarch", "draw", ONE_DIMENSION, 256, [
        (0.0, 1.0, 2.0), (-0.2, 0.0, 0.0, 0.98), SIDE, SIDE, wp.vec3,
    ]),
    ("tile.example_tile_nbody", "integrate_bodies_tiled", BODIES, 64, [wp.vec3, wp.vec3, wp.vec3, BODIES]),
]  # fmt: skip
"""Module, kernel, number of threads, threads of a block, and arguments; a type stands for an array."""


def run(described: Callable[..., Any], recorded: int, times: int, cache: str) -> dict[str, Any]:
    """Launch `saxpy` and the kernels of EXAMPLES with automatic marks, and without."""
    import warplens as wl

    wp.config.kernel_cache_dir = cache
    numbers = np.random.default_rng(0)
    work: list[tuple[Any, int, int, list[Any]]] = [(saxpy, ONE_DIMENSION, 256, [float, float, 2.0])]
    work += [(_kernel(module, name), *rest) for module, name, *rest in EXAMPLES]
    first = [
        [numbers.random((count, 3)[: 1 if one is float else 2], np.float32) if isinstance(one, type) else one
         for one in arguments] for _, count, _, arguments in work
    ]  # fmt: skip

    def results() -> list[bytes]:
        made = []
        for (kernel, count, block, kinds), values in zip(work, first, strict=True):
            given = [
                wp.array(value, dtype=kind, device="cuda") if isinstance(kind, type) else value
                for kind, value in zip(kinds, values, strict=True)
            ]
            for _ in range(times):
                wp.launch(kernel, count, inputs=given, device="cuda", block_dim=block)
            wp.synchronize()
            made.append(b"".join(one.numpy().tobytes() for one in given if isinstance(one, wp.array)))
        return made

    plain = results()
    with wl.profile(auto=True, launches=recorded) as profile:
        marked = results()
    return {**described(profile.trace, profile), "identical": marked == plain, "version": wp.__version__}


def _kernel(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"warp.examples.{module}"), name)


def launches() -> list[CarriedKernel]:
    """The launches of EXAMPLES, as Warp makes them on the driver of `StubDriver`."""
    from warplens.frontends.nvidia_warp import ptx_of_module
    from warplens.ptx.tree import parse

    made: list[CarriedKernel] = []
    texts: dict[str, str] = {}

    def sizes_of(symbol: str) -> list[int]:
        entry = next(entry for entry in parse(texts["now"]).entries if entry.name == symbol)
        return [parameter.size for parameter in entry.params]

    driver = StubDriver(sizes_of)
    with tempfile.TemporaryDirectory() as folder:
        wp.config.kernel_cache_dir = folder
        device = wp.get_device("cuda:0")
        for module_name, kernel_name, count, block, arguments in EXAMPLES:
            kernel = _kernel(module_name, kernel_name)
            given, floats, bases = [], [], []
            for argument in arguments:
                if isinstance(argument, type):
                    bases.append((len(bases) + 1) << 36)
                    floats.append(count * (1 if argument is float else 3))
                    argument = wp.array(ptr=bases[-1], dtype=argument, shape=count, device=device)
                given.append(argument)
            kernel.module.load(device, block)
            texts["now"] = ptx_of_module(kernel.module, device, block)
            wp.launch(kernel, count, inputs=given, device=device, block_dim=block)
            made.append(carried(f"{module_name}.{kernel_name}", driver.launches[-1], texts["now"], floats, bases))
    return made
