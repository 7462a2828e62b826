"""Helion kernels for benchmarks/reach.py, which needs the source in a file: a softmax and a matrix product."""

from __future__ import annotations

from typing import Any

import helion
import helion.language as hl
import torch

import warplens as wl
from benchmarks.lib.reach_cases import RECORDED, TIMES, Row, described


@helion.kernel(config=helion.Config(block_sizes=[4], num_warps=4))
def softmax(x: torch.Tensor) -> torch.Tensor:
    n, _ = x.size()
    out = torch.empty_like(x)
    for tile in hl.tile(n):
        values = x[tile, :]
        exponents = torch.exp(values - torch.amax(values, dim=1, keepdim=True))
        out[tile, :] = exponents / torch.sum(exponents, dim=1, keepdim=True)
    return out


def _matmul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    m, k = x.size()
    _, n = y.size()
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = acc
    return out


CONFIGS = [helion.Config(block_sizes=[size, size, 64], num_warps=4) for size in (16, 32, 128)]


def tuned(*given: torch.Tensor) -> tuple[bytes, list[int]]:
    """Tune the product over three configurations, launch the winner, and say which one it was."""
    kernel = helion.kernel(_matmul, configs=CONFIGS, autotune_precompile=None, static_shapes=True)
    for _ in range(TIMES):
        result = kernel(*given)
    return _bytes(result), list(kernel.bind(given)._config.block_sizes)


def run_helion() -> Row:
    torch.manual_seed(0)
    x = torch.rand(2048, 1024, device="cuda")
    a, b = (torch.rand(1024, 1024, device="cuda", dtype=torch.float16) for _ in range(2))

    def run() -> tuple[bytes, bytes, list[int]]:
        for _ in range(TIMES):
            out = softmax(x)
        return (_bytes(out), *tuned(a, b))

    plain = run()
    with wl.profile(auto=True, launches=RECORDED) as profile:
        marked = run()
    row = described(profile.trace, profile, {"_helion_softmax": 2048 // 4 * 4})
    same = marked[:2] == plain[:2]
    chosen = {"plain": plain[2], "profiled": marked[2]}
    return {**row, "identical": same, "regions": sorted(profile.trace.regions), "chosen": chosen}


def _bytes(tensor: Any) -> bytes:
    return bytes(tensor.cpu().contiguous().view(torch.uint8).numpy().tobytes())
