"""JAX compiles kernels for a GPU that is not there; what its ptxas kept is woven and assembled."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental import topologies
from jax.experimental.pallas import mosaic_gpu, triton

from tests.support.xla_target import H100
from warplens.auto.rules import Auto
from warplens.frontends import jax_xla
from warplens.frontends.intercept.woven_module import marked_text
from warplens.profiling.profile import Profile
from warplens.ptx.isa_version import lowered_for
from warplens.sass.cuda_tools import find_tool
from warplens.weave.fit.ptxas_output import read_kernels
from warplens.weave.weaving import Weaving

SIZE = 1024
VECTOR = jax.ShapeDtypeStruct((SIZE,), jnp.float32)


def add_one(x: Any, y: Any, out: Any) -> None:
    out[...] = x[...] * y[...] + 1


def triton_add(x: Any, y: Any) -> Any:
    block = pl.BlockSpec((256,), lambda i: (i,))
    call = pl.pallas_call(add_one, out_shape=VECTOR, grid=(4,), in_specs=[block] * 2, out_specs=block,
                          compiler_params=triton.CompilerParams())  # fmt: skip
    return call(x, y)


def triton_matmul(x: Any, y: Any) -> Any:
    def matmul(a: Any, b: Any, out: Any) -> None:
        def step(k: Any, total: Any) -> Any:
            return total + pl.dot(a[:, pl.ds(k * 32, 32)], b[pl.ds(k * 32, 32), :])

        out[...] = jax.lax.fori_loop(0, 4, step, jnp.zeros((64, 64), jnp.float32))

    a, b = (one[: 128 * 4].reshape(4, 128).repeat(32, 0).astype(jnp.float16) for one in (x, y))
    call = pl.pallas_call(
        matmul, out_shape=jax.ShapeDtypeStruct((128, 128), jnp.float32), grid=(2, 2),
        in_specs=[pl.BlockSpec((64, 128), lambda i, j: (i, 0)), pl.BlockSpec((128, 64), lambda i, j: (0, j))],
        out_specs=pl.BlockSpec((64, 64), lambda i, j: (i, j)), compiler_params=triton.CompilerParams(),
    )  # fmt: skip
    return call(a, b)


def mosaic_add(x: Any, y: Any) -> Any:
    return mosaic_gpu.kernel(add_one, out_type=VECTOR, grid=(1,), grid_names=("i",))(x, y)


def fusion(x: Any, y: Any) -> Any:
    return jnp.sin(x) * jnp.cos(y)


KERNELS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "triton_add": (triton_add, "add_one"),
    "triton_matmul": (triton_matmul, "matmul"),
    "mosaic_add": (mosaic_add, "add_one_mosaic_gpu_kernel"),
    "fusion": (fusion, "fusion"),
}


def compiled(name: str) -> dict[str, Any]:
    function, wanted = KERNELS[name]
    jax_xla.why_not = lambda: ""  # type: ignore[assignment]
    profile = Profile(auto="all")
    stop = jax_xla.start(profile)
    assert stop is not None, profile.notes
    target = topologies.get_topology_desc(platform="cuda", target_config=H100, topology="1x1x1")
    place = jax.sharding.SingleDeviceSharding(target.devices[0])
    given = jax.ShapeDtypeStruct(VECTOR.shape, VECTOR.dtype, sharding=place)
    jax.jit(function).trace(given, given).lower(lowering_platforms=("cuda",)).compile()
    stop()
    kept = Path(os.environ["XDG_CACHE_HOME"]) / "warplens" / "ptx"
    texts = [gzip.decompress(path.read_bytes()).decode() for path in kept.iterdir()]
    symbols = {symbol: text for text in texts for symbol in re.findall(r"\.entry (\w+)", text) if wanted in symbol}
    symbol, text = next(iter(symbols.items()), ("", ""))
    return {**woven(text, symbol), "woven": symbol} if symbol else {"woven": "", "kept": len(texts)}


def woven(text: str, symbol: str) -> dict[str, Any]:
    made, marked, _ = marked_text(text, symbol, Auto.of("all"), Weaving())
    with tempfile.TemporaryDirectory() as folder:
        path, ptxas = Path(folder) / "woven.ptx", find_tool("ptxas")
        # XLA may have run a newer one.
        version = subprocess.run([ptxas, "--version"], capture_output=True, text=True, check=True).stdout
        path.write_text(lowered_for(made.text, version.partition("release ")[2]))
        command = [ptxas, "-v", "-arch=sm_90a", str(path), "-o", "/dev/null"]
        done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = read_kernels(done.stderr)[symbol]
    sites = sorted({site.region for site in marked.sites[symbol]})
    return {"registers": found.registers, "spills": found.spills, "sites": sites}


if __name__ == "__main__":
    print(json.dumps(compiled(sys.argv[3])))
