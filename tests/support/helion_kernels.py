"""Helion kernels, and its tuner on a clock that is not there."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import helion
import helion.language as hl
import pytest
import torch

from tests.support.fake_gpu import FakeGpu


@helion.kernel(config=helion.Config(block_sizes=[64, 64, 32], num_warps=4))
def matmul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    m, k = x.size()
    _, n = y.size()
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])  # matmul's line
        out[tile_m, tile_n] = acc
    return out


@helion.kernel(config=helion.Config(block_sizes=[4], num_warps=4))
def softmax(x: torch.Tensor) -> torch.Tensor:
    n, _ = x.size()
    out = torch.empty_like(x)
    for tile in hl.tile(n):
        values = x[tile, :]  # softmax's line
        exponents = torch.exp(values - torch.amax(values, dim=1, keepdim=True))
        out[tile, :] = exponents / torch.sum(exponents, dim=1, keepdim=True)
    return out


@helion.kernel(config=helion.Config(block_sizes=[64], num_warps=1))
def scale(x: torch.Tensor) -> torch.Tensor:
    (n,) = x.size()
    out = torch.empty_like(x)
    for tile in hl.tile(n):
        out[tile] = x[tile] * 2  # scale's line
    return out


CALLS: dict[str, Callable[[], Any]] = {
    "matmul": lambda: matmul(torch.zeros(128, 128, dtype=torch.float16), torch.zeros(128, 128, dtype=torch.float16)),
    "softmax": lambda: softmax(torch.zeros(64, 128)),
    "scale": lambda: scale(torch.zeros(256)),
}


def line_of(name: str) -> int:
    """The line of this file that a kernel's comment marks."""
    source = inspect.getsource(inspect.getmodule(line_of)).splitlines()  # type: ignore[arg-type]
    return next(number for number, line in enumerate(source, 1) if line.endswith(f"# {name}'s line"))


@dataclass
class Tuned:
    chosen: list[int]
    times: list[list[float]] = field(default_factory=list)


def tune(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> Tuned:
    """Tune over three block sizes and launch once. Fewer blocks are better, but a woven kernel with few blocks pays
    most for its marks."""
    tuned = Tuned([])

    def bench(fn: Callable[[], Any], *given: Any, **options: Any) -> float:
        first = len(gpu.fired)
        for _ in range(5):
            fn()
        blocks = [(one.grid[0], "@woven" in one.ptx) for one in gpu.fired[first:]]
        tuned.times.append([count + (40 / count if woven else 0) for count, woven in blocks])
        return float(sorted(tuned.times[-1])[2])

    monkeypatch.setattr("helion.autotuner.base_search.do_bench", bench)
    monkeypatch.setattr("helion.autotuner.benchmark_provider.do_bench", bench, raising=False)
    configs = [helion.Config(block_sizes=[size], num_warps=1) for size in (32, 64, 128)]
    kernel = helion.kernel(
        scale.fn, configs=configs, autotune_precompile=None, autotune_accuracy_check=False,
        autotune_benchmark_subprocess=False, autotune_cache="LocalAutotuneCache", autotune_log_level=0,
    )  # fmt: skip
    argument = torch.zeros(256)
    kernel.reset()
    kernel(argument)
    tuned.chosen = list(kernel.bind((argument,))._config.block_sizes)  # type: ignore[union-attr]
    return tuned
