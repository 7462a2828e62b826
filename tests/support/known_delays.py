"""Launches of benchmarks/kernels/known_delays.cu of which it is known how much of a delay reaches the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.support.paths import ROOT

SOURCE = ROOT / "benchmarks" / "kernels" / "known_delays.cu"
KNOWN: dict[str, dict[str, Any]] = {
    "serial": {
        "kernel": "serial", "arguments": (192, 8, 16), "block": 128, "expected": {"first": 1.0, "second": 1.0},
    },
    "serial, 3 waves": {
        "kernel": "serial", "arguments": (96, 8, 16), "block": 128, "shared": 100 << 10, "blocks_per_sm": 6,
        "expected": {"first": 1.0, "second": 1.0},
    },
    "hidden": {
        "kernel": "sides", "arguments": (192, 6, 24, 6, 24), "block": 64, "expected": {"produce": 0.0, "consume": 1.0},
    },
    "balanced": {
        "kernel": "sides", "arguments": (192, 12, 24, 24, 12), "block": 64,
        "expected": {"produce": 0.5, "consume": 0.5},
    },
    "turns": {"kernel": "turns", "arguments": (48, 16), "block": 128, "expected": {"turn": 4.0}},
    "uneven": {
        "kernel": "uneven", "arguments": (192, 8), "block": 128, "expected": {"long block": 1.0, "short block": 0.0},
    },
}  # fmt: skip
"""By name: the kernel, its arguments, threads per block, and how much of a delay in each region reaches the end."""


def known_case(name: str, module: Any, sms: int) -> Callable[[], Any]:
    """A function that launches one of the kernels with known answers."""
    import torch

    case = KNOWN[name]
    blocks = sms * case.get("blocks_per_sm", 1)
    x = torch.empty(blocks * case["block"], device="cuda")
    arguments = [np.int32(value) for value in case["arguments"]]

    def run() -> Any:
        x.fill_(0.5)
        module[case["kernel"]].launch(
            blocks, case["block"], np.uint64(x.data_ptr()), *arguments, shared=case.get("shared", 0)
        )
        return x

    return run
