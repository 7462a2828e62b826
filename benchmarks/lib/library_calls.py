"""Calls into public libraries of Triton kernels, forward and backward, in the shapes of a small language model."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from benchmarks.lib.compile_requests import Requests

BATCH, TIME, HEADS, WIDTH, HIDDEN, WORDS = 2, 512, 4, 128, 4096, 32000


def tensor(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(*shape).to(dtype).requires_grad_(True)


def decay(*shape: int) -> torch.Tensor:
    return torch.nn.functional.logsigmoid(torch.randn(*shape)).requires_grad_(True)


def _both_ways(call: Callable[[], Any]) -> None:
    made = call()
    outputs = [one for one in (made if isinstance(made, tuple) else (made,)) if isinstance(one, torch.Tensor)]
    differentiable = [one for one in outputs if one.requires_grad]
    torch.autograd.backward(differentiable, [torch.ones_like(one) for one in differentiable])


def collect(library: str, requests: Requests) -> None:
    """Make the calls of one library."""
    for name, call in LIBRARIES[library]():
        requests.collect(name, partial(_both_ways, call))


def _liger() -> Iterator[tuple[str, Callable[[], Any]]]:
    ops = importlib.import_module("liger_kernel.ops")
    tokens, full = tensor(BATCH, TIME, HIDDEN), torch.float32
    logits, words = tensor(256, WORDS), torch.randint(0, WORDS, (256,))
    rows, probabilities = tensor(512, HIDDEN, dtype=full), torch.rand(512, HIDDEN)
    angles = torch.randn(1, TIME, 128)
    wide = (tensor(BATCH, TIME, 11008), tensor(BATCH, TIME, 11008))
    calls: dict[str, tuple[Any, ...]] = {
        "RMSNorm": (tokens, tensor(HIDDEN), 1e-6, 0.0, "llama", True),
        "LayerNorm": (tokens, tensor(HIDDEN), tensor(HIDDEN), 1e-6),
        "CrossEntropy": (logits, words, None, -100, 0.0, 0.0, "mean", None, False),
        "Rope": (tensor(BATCH, 32, TIME, 128), tensor(BATCH, 8, TIME, 128), angles, angles),
        "SiLUMul": wide,
        "GELUMul": wide,
        "Softmax": (tensor(BATCH * TIME, 4096),),
        "Sparsemax": (tensor(BATCH * TIME, 1024), -1),
        "DyT": (tokens, tensor(1), tensor(HIDDEN), tensor(HIDDEN)),
        "GroupNorm": (tensor(BATCH, 64, 1024), tensor(64), tensor(64), 64, 8, 1e-5),
        "KLDivLoss": (rows, probabilities, "batchmean", False, 1e-10),
        "JSD": (rows, probabilities, None, 0.5, -100),
        "TVDLoss": (rows, probabilities, None, "batchmean", -100),
        "ReLUSquared": (tokens,),
        "PolyNorm": (tokens, tensor(3), tensor(1), 1e-6, True),
        "FusedAddRMSNorm": (tokens, tokens, tensor(HIDDEN), 1e-6, 0.0, "llama", True),
        "FusedLinearCrossEntropy": (tensor(512, 512), tensor(WORDS, 512), torch.randint(0, WORDS, (512,))),
        "FusedNeighborhoodAttention": (*(tensor(1, 8, 256, 64) for _ in range(3)), 7, 1),
    }  # fmt: skip
    for name, arguments in calls.items():
        if (function := getattr(ops, f"Liger{name}Function", None)) is not None:
            yield name, partial(function.apply, *arguments)


def _fla() -> Iterator[tuple[str, Callable[[], Any]]]:
    heads = (BATCH, TIME, HEADS)
    q, k, v, g = tensor(*heads, WIDTH), tensor(*heads, WIDTH), tensor(*heads, WIDTH), decay(*heads, WIDTH)
    gate, beta = decay(*heads), torch.rand(*heads).to(torch.bfloat16).requires_grad_(True)
    flat, weight = tensor(BATCH * TIME, 512), tensor(512)
    calls: dict[str, tuple[Any, ...]] = {
        "ops.gla.chunk_gla": (q, k, v, g),
        "ops.gla.fused_recurrent_gla": (q, k, v, g),
        "ops.simple_gla.chunk_simple_gla": (q, k, v, gate),
        "ops.simple_gla.parallel_simple_gla": (q, k, v, gate),
        "ops.retention.chunk_retention": (q, k, v),
        "ops.retention.parallel_retention": (q, k, v),
        "ops.delta_rule.chunk_delta_rule": (q, k, v, beta),
        "ops.delta_rule.fused_recurrent_delta_rule": (q, k, v, beta),
        "ops.gated_delta_rule.chunk_gated_delta_rule": (q, k, v, gate, beta),
        "ops.kda.chunk_kda": (q, k, v, g, beta),
        "ops.linear_attn.chunk_linear_attn": (q, k, v),
        "ops.linear_attn.fused_chunk_linear_attn": (q, k, v),
        "ops.gsa.chunk_gsa": (q, k, v, tensor(*heads, 64), decay(*heads, 64)),
        "ops.hgrn.chunk_hgrn": (tensor(BATCH, TIME, 512), decay(BATCH, TIME, 512)),
        "ops.rwkv6.chunk_rwkv6": (q, k, v, g, tensor(HEADS, WIDTH)),
        "ops.rwkv7.chunk_rwkv7": (q, g, k, v, tensor(*heads, WIDTH), tensor(*heads, WIDTH)),
        "ops.based.parallel_based": (tensor(*heads, 16), tensor(*heads, 16), v),
        "ops.forgetting_attn.parallel_forgetting_attn": (q, k, v, gate),
        "ops.attn.parallel_attn": (q, k, v),
        "ops.lightning_attn.chunk_lightning_attn": (q, k, v, 0, 12),
        "ops.generalized_delta_rule.chunk_dplr_delta_rule": (q, k, v, tensor(*heads, WIDTH), tensor(*heads, WIDTH), g),
        "ops.mesa_net.chunk_mesa_net": (q, k, v, gate, beta, torch.rand(HEADS, WIDTH)),
        "modules.layernorm.layer_norm": (flat, weight, tensor(512)),
        "modules.fused_norm_gate.rms_norm_gated": (flat, tensor(BATCH * TIME, 512), weight, None),
        "modules.l2norm.l2_norm": (q,),
        "modules.activations.swiglu": (flat, tensor(BATCH * TIME, 512)),
        "modules.token_shift.token_shift": (tensor(BATCH, TIME, 512),),
        "modules.fused_cross_entropy.cross_entropy_loss": (tensor(256, 4096), torch.randint(0, 4096, (256,))),
    }
    for path, arguments in calls.items():
        module, _, name = path.rpartition(".")
        yield path, partial(_call, f"fla.{module}", name, arguments)


def _call(module: str, name: str, arguments: tuple[Any, ...]) -> Any:
    return getattr(importlib.import_module(module), name)(*arguments)


LIBRARIES = {"liger": _liger, "fla": _fla}
