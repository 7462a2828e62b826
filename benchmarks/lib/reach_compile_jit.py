"""Public examples of Pallas and Helion, compiled without a GPU for benchmarks/reach.py.

Pallas: the kernels in JAX's own wheel (jax.experimental.pallas.ops.gpu), compiled by XLA for an H100 that is not there.
Helion: the examples of its repository, whose folder $HELION_EXAMPLES names, by the way of a profile (TTGIR).
"""

from __future__ import annotations

import gzip
import importlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.lib.compile_requests import Request, Requests
from tests.support.xla_target import H100

Row = dict[str, Any]


def pallas_examples() -> Iterator[tuple[str, str]]:
    """Each example's kernels, as the ptxas in front of XLA kept their PTX."""
    os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"
    import jax
    import jax.numpy as jnp
    from jax.experimental import topologies

    from warplens.frontends import jax_xla
    from warplens.profiling.profile import Profile

    jax_xla.why_not = lambda: ""  # type: ignore[assignment]
    target = topologies.get_topology_desc(platform="cuda", target_config=H100, topology="1x1x1")
    place = jax.sharding.SingleDeviceSharding(target.devices[0])

    def array(*shape: int, dtype: Any = jnp.float16) -> Any:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=place)

    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        stop = jax_xla.start(Profile(auto="all"))
        for name, (function, given) in _pallas_calls(array).items():
            try:
                jax.jit(function).trace(*given).lower(lowering_platforms=("cuda",)).compile()
            except Exception as error:
                print(f"{name}: {str(error).splitlines()[0] if str(error) else error!r}", file=sys.stderr)
            for path in sorted((Path(folder) / "warplens" / "ptx").iterdir()):
                yield name, gzip.decompress(path.read_bytes()).decode()
                path.unlink()
        if stop is not None:
            stop()


def _pallas_calls(array: Callable[..., Any]) -> dict[str, tuple[Callable[..., Any], list[Any]]]:
    import jax.numpy as jnp

    ops = "jax.experimental.pallas.ops.gpu"
    attention, layer_norm, rms_norm, softmax, attention_mgpu, hopper_matmul = (
        importlib.import_module(f"{ops}.{name}")
        for name in ("attention", "layer_norm", "rms_norm", "softmax", "attention_mgpu", "hopper_matmul_mgpu")
    )
    # There is no device to ask.
    hopper_matmul.get_num_sms = lambda: 132
    attention_mgpu.cuda_versions = SimpleNamespace(cuda_runtime_get_version=lambda: 12090)
    heads = [array(2, 1024, 4, 64)] * 3
    row = array(4096, dtype=jnp.float32)
    tuned = attention_mgpu.TuningConfig(block_q=64, block_kv=64, max_concurrent_steps=2)
    tiles = hopper_matmul.TuningConfig(tile_m=128, tile_n=128, tile_k=64, max_concurrent_steps=4)
    return {
        "Triton: softmax": (softmax.softmax, [array(1024, 4096)]),
        "Triton: rms_norm": (rms_norm.rms_norm, [array(8, 1024, 4096, dtype=jnp.float32), row, row]),
        "Triton: layer_norm": (layer_norm.layer_norm, [array(8, 1024, 4096, dtype=jnp.float32), row, row]),
        "Triton: attention": (lambda q, k, v: attention.mha(q, k, v, segment_ids=None), heads),
        "Mosaic: attention": (lambda q, k, v: attention_mgpu.attention(q, k, v, tuned), heads),
        "Mosaic: attention, pipeline emitter": (
            lambda q, k, v: attention_mgpu.attention_with_pipeline_emitter(q, k, v, tuned), heads
        ),
        "Mosaic: matmul": (lambda a, b: hopper_matmul.matmul(a, b, None, tiles), [array(1024, 1024)] * 2),
    }  # fmt: skip


def helion_examples() -> Iterator[tuple[str, Row]]:
    """A row for each kernel, woven as Triton kernels are."""
    import torch
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    folder = os.environ.get("HELION_EXAMPLES", "")
    if not folder:
        raise RuntimeError("set HELION_EXAMPLES to the examples of Helion's repository")
    sys.path.insert(0, str(Path(folder).parent))
    driver.set_active(_NoDevice(GPUTarget("cuda", 90, 32)))
    requests, found = Requests(), dict[str, str]()
    requests.install()

    def half(*shape: int) -> Any:
        return torch.zeros(*shape, dtype=torch.float16)

    calls: dict[str, list[Any]] = {
        "add.add": [half(1024, 1024)] * 2,
        "softmax.softmax": [half(1024, 2048)],
        "softmax.softmax_two_pass": [half(1024, 2048)],
        "matmul.matmul": [half(1024, 1024)] * 2,
        "sum.sum_kernel": [half(1024, 2048)],
        "rms_norm.rms_norm_fwd": [half(1024, 2048), half(2048)],
        "layer_norm.layer_norm_fwd": [half(1024, 2048), [2048], half(2048), half(2048)],
        "attention.attention": [half(2, 8, 1024, 64)] * 3,
    }
    for name, given in calls.items():
        module, _, function = name.partition(".")

        def call(module: str = module, function: str = function, given: list[Any] = given) -> None:
            kernel = getattr(importlib.import_module(f"examples.{module}"), function)
            bound = kernel.bind(tuple(given))
            bound.compile_config(bound.config_spec.default_config())(*given)

        requests.collect(name, call)
        found.update({key: name for key in requests.found if key not in found})
    for name, problem in requests.failed.items():
        print(f"{name}: {problem}", file=sys.stderr)
    for key, request in requests.found.items():
        yield found[key], _woven(request)


class _NoDevice:
    """The driver of a machine without a GPU."""

    def __init__(self, target: Any) -> None:
        self.get_current_target = lambda: target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def _woven(request: Request) -> Row:
    """Registers and spills of a Triton kernel without marks and with those of a profile."""
    plain, marked = _compiled(request), None
    row: Row = {"kernel": request.kernel, "registers": plain[1].registers, "spills": plain[1].spills}
    try:
        marked = _compiled(request, plain[0].asm["cubin"])
    except Exception as error:
        return {**row, "refused": str(error).splitlines()[0]}
    woven = getattr(marked[0].metadata, "warplens", None)
    notes = (getattr(marked[0].metadata, "warplens_remarks", None) or {"notes": []})["notes"]
    if woven is None:
        return {**row, "refused": "; ".join(notes)}
    return {
        **row, "registers_parameter": marked[1].registers, "spills_parameter": marked[1].spills,
        "sites": len(woven["regions"]), "note": "; ".join(notes), "regions": sorted(woven["regions"].values()),
    }  # fmt: skip


def _compiled(request: Request, plain: bytes | None = None) -> tuple[Any, Any]:
    import triton

    from warplens.frontends.triton.frontend import recipe
    from warplens.frontends.triton.weaving_compiler import WeavingCompiler
    from warplens.options import Options
    from warplens.weave.fit.ptxas_output import read_cubin

    with ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        os.environ |= {"TRITON_CACHE_DIR": folder, "TRITON_ALWAYS_COMPILE": "1"}
        if plain is not None:
            compiler = WeavingCompiler(recipe(Options(auto=True)))
            stack.callback(compiler.install())
            stack.enter_context(compiler.weaving(plain))
        kernel = triton.compile(request.source, target=request.target, options=request.options)
        return kernel, read_cubin(kernel.asm["cubin"])
