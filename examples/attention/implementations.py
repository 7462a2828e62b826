"""Call any attention of this folder, or PyTorch's: `IMPLEMENTATIONS[name](q, k, v, causal)`.

Tensors are (batch, heads, length, head size), contiguous, on the GPU. Importing this needs neither torch nor a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
HEAD_SIZES = (64, 128)
ELEMENTS = {"fp32": "float", "fp16": "half_t", "bf16": "bfloat_t"}


def torch_dtype(name: str) -> Any:
    import torch

    return {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[name]


def dtype_of(tensor: Any) -> str:
    return next(name for name in ELEMENTS if torch_dtype(name) == tensor.dtype)


@cache
def module(source: str, head: int, dtype: str) -> Any:
    """Compile a CUDA source of this folder for one head size and type."""
    import warplens.cuda as wlcu

    options = (f"-DHEAD={head}", f"-DELEMENT={ELEMENTS[dtype]}", f"--include-path={HERE}")
    return wlcu.compile(HERE / source, options=options)


def launch(source: str, name: str, grid: Any, block: int, like: Any, *arguments: Any, shared: int = 0) -> None:
    """Launch a kernel compiled for the head size and type of the tensor `like`, on torch's stream."""
    import torch

    kernel = module(source, like.shape[-1], dtype_of(like))[name]
    kernel.launch(grid, block, *arguments, shared=shared, stream=torch.cuda.current_stream())


def naive(q: Any, k: Any, v: Any, causal: bool) -> Any:
    """Run the naive kernel, which writes every score to memory and reads it back."""
    import torch

    batch, heads, length, head = q.shape
    out = torch.empty_like(q)
    scores = torch.empty(batch * heads * length * length, dtype=torch.float32, device=q.device)
    arguments = (q, k, v, out, scores, length, 1 / math.sqrt(head), int(causal))
    launch("naive.cu", "naive", (length, batch * heads), head, q, *arguments)
    return out


def tiled(q: Any, k: Any, v: Any, causal: bool) -> Any:
    """Run the tiled kernel: keys and values in shared memory, two passes, no tensor cores."""
    return _by_tiles("tiled", 256, lambda head, _: 4 * (128 * (head + 1) + 64 * 65), q, k, v, causal)


def flash(q: Any, k: Any, v: Any, causal: bool) -> Any:
    """Run the flash kernel: one pass with an online softmax on the tensor cores."""
    return _by_tiles("flash", 128, lambda head, size: 4 * 64 * (head + 8) * size, q, k, v, causal)


def _by_tiles(name: str, block: int, shared: Callable[[int, int], int], q: Any, k: Any, v: Any, causal: bool) -> Any:
    import torch

    batch, heads, length, head = q.shape
    out = torch.empty_like(q)
    grid = (-(-length // 64), batch * heads)
    arguments = (q, k, v, out, length, 1 / math.sqrt(head), int(causal))
    launch(f"{name}.cu", name, grid, block, q, *arguments, shared=shared(head, q.element_size()))
    return out


def triton_flash(q: Any, k: Any, v: Any, causal: bool) -> Any:
    """Run the Triton flash kernel."""
    import torch
    from triton_flash import run

    return run(q, k, v, torch.empty_like(q), causal=causal)


def sdpa(q: Any, k: Any, v: Any, causal: bool) -> Any:
    """Run PyTorch's attention with its default backend."""
    import torch

    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


def _backend(name: str) -> Callable[..., Any]:
    def call(q: Any, k: Any, v: Any, causal: bool) -> Any:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        with sdpa_kernel(getattr(SDPBackend, name)):
            return sdpa(q, k, v, causal)

    return call


IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {
    "naive": naive,
    "tiled": tiled,
    "flash": flash,
    "triton_flash": triton_flash,
    "sdpa": sdpa,
    "sdpa_cudnn": _backend("CUDNN_ATTENTION"),
    "sdpa_flash": _backend("FLASH_ATTENTION"),
    "sdpa_efficient": _backend("EFFICIENT_ATTENTION"),
}
ANY_DTYPE = ("naive", "tiled", "sdpa", "sdpa_efficient")
"""Implementations that also support fp32; the others use the tensor cores and need fp16 or bf16."""


def flops(batch: int, heads: int, length: int, head: int, causal: bool) -> float:
    """Count two products of 2 * head operations for every unmasked pair of query and key."""
    pairs = length * (length + 1) / 2 if causal else length * length
    return 4.0 * batch * heads * pairs * head


def bytes_moved(batch: int, heads: int, length: int, head: int, size: int) -> float:
    """Return the minimum traffic: queries, keys and values read once, the result written once."""
    return 4.0 * batch * heads * length * head * size


def random_inputs(batch: int, heads: int, length: int, head: int, dtype: str, scale: float = 1.0) -> tuple[Any, ...]:
    """Return the same numbers for the same sizes, so that all implementations get the same inputs."""
    import torch

    made = torch.Generator(device="cuda").manual_seed(length * head + heads)
    shape = (batch, heads, length, head)
    wide = (torch.randn(shape, generator=made, device="cuda", dtype=torch.float32) for _ in range(3))
    return tuple((scale * each).to(torch_dtype(dtype)) for each in wide)


def float64(q: Any, k: Any, v: Any, causal: bool) -> Any:
    """Compute the result in double precision on the GPU, head by head so that the scores fit into memory."""
    import torch

    out = torch.empty(*q.shape[:-2], q.shape[-2], v.shape[-1], dtype=torch.float64, device=q.device)
    hidden = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).triu(1) if causal else None
    for index in torch.cartesian_prod(*(torch.arange(size) for size in q.shape[:-2])).tolist():
        one = tuple(index)
        scores = q[one].double() @ k[one].double().T / math.sqrt(q.shape[-1])
        if hidden is not None:
            scores.masked_fill_(hidden, -math.inf)
        out[one] = scores.softmax(-1) @ v[one].double()
    return out
