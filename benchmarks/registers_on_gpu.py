"""Woven kernels with and without a limit on their registers: the same results, and how fast. Needs a GPU.

    PYTHONPATH=src python -m benchmarks.registers_on_gpu

The examples' vector addition, persistent matmul and attention, and attention with a mark where it costs the most
registers, each as it is, woven, and woven without a limit, interleaved in one run as `triton_overhead.py` does it. One
JSON document on stdout.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

import warplens.triton as wlt
from benchmarks.triton_overhead import Kernel, Plain, Woven, measure
from warplens.weave.weaving import Weaving

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "triton"))

import attention
import matmul
import vector_add


@triton.jit
def attention_scaled(q, k, v, out, scale, length, BM: tl.constexpr, BN: tl.constexpr, HEAD: tl.constexpr):
    head = tl.program_id(1).to(tl.int64) * length * HEAD
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    width = tl.arange(0, HEAD)
    query = tl.load(q + head + rows[:, None] * HEAD + width[None, :])
    top = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, HEAD), tl.float32)
    for start in range(0, length, BN):
        columns = start + tl.arange(0, BN)
        with wlt.region("qk"):
            keys = tl.load(k + head + columns[None, :] * HEAD + width[:, None])
            scores = tl.dot(query, keys) * scale
        with wlt.region("softmax"):
            higher = tl.maximum(top, tl.max(scores, axis=1))
            scores = tl.exp2(scores - higher[:, None])
            shrink = tl.exp2(top - higher)
            total = total * shrink + tl.sum(scores, axis=1)
            acc = acc * shrink[:, None]
            top = higher
        with wlt.region("pv"):
            values = tl.load(v + head + columns[:, None] * HEAD + width[None, :])
            acc = tl.dot(scores.to(values.dtype), values, acc)
    result = (acc / total[:, None]).to(out.dtype.element_ty)
    tl.store(out + head + rows[:, None] * HEAD + width[None, :], result)


def kernels() -> list[Kernel]:
    torch.manual_seed(0)
    n, heads, length, width = 4096, 32, 2048, 64
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty_like(a)
    q, k, v = (torch.randn(heads, length, width, device="cuda", dtype=torch.float16) for _ in range(3))
    out = torch.empty_like(q)
    x, y = torch.randn(2, 1 << 24, device="cuda")
    added = torch.empty_like(x)
    programs = torch.cuda.get_device_properties(0).multi_processor_count
    warps = {"num_warps": 4, "num_stages": 3}

    def add(_: int) -> object:
        return vector_add.vector_add[(x.numel() // 1024,)](x, y, added, x.numel(), 1024)

    def persistent(_: int) -> object:
        return matmul.persistent_matmul[(programs,)](a, b, c, n, n, n, programs, 128, 128, 64, **warps)

    def fused(kernel: Any) -> Callable[[int], object]:
        grid, scale = (length // 128, heads), width**-0.5 * 1.44269504
        return lambda _: kernel[grid](q, k, v, out, scale, length, 128, 64, width, **warps)

    return [
        Kernel("vector add", "vector_add", add, added, 16, 15),
        Kernel("persistent matmul", "persistent_matmul", persistent, c, 4096, 15),
        Kernel("attention", "attention", fused(attention.attention), out, 512, 15),
        Kernel("attention, a mark behind the scaling", "attention_scaled", fused(attention_scaled), out, 512, 15),
    ]


def row(kernel: Kernel, repeats: int, launches: int, seconds: float) -> dict[str, Any]:
    kernel.output.zero_()
    kernel.launch(0)
    expected = kernel.output.clone()
    woven = {"woven": Woven(Weaving(), kernel.records), "without a limit": Woven(Weaving(limit=False), kernel.records)}
    times = measure(kernel, {"plain": Plain(0), **woven}, repeats, launches, seconds)
    found: dict[str, Any] = {"base_us": statistics.median(times["plain"]), "repeats": len(times["plain"])}
    for name, mode in woven.items():
        kernel.output.zero_()
        mode(kernel.launch, 1)
        torch.cuda.synchronize()
        ratios = sorted(one / base for one, base in zip(times[name], times["plain"], strict=True))
        taken = mode.last.collect().extra
        found[name] = {
            "slowdown": [round(ratio, 4) for ratio in (statistics.median(ratios), ratios[0], ratios[-1])],
            "identical": bool(torch.equal(kernel.output, expected)),
            **{what: taken[what] for what in ("registers", "registers_plain", "spills") if what in taken},
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--launches", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=10, help="per kernel, after which no repeat is begun")
    options = parser.parse_args()
    report = {}
    for kernel in kernels():
        report[kernel.label] = row(kernel, options.repeats, options.launches, options.seconds)
        print(kernel.label, json.dumps(report[kernel.label]), file=sys.stderr)
    print(json.dumps({
        "benchmark": "registers_on_gpu",
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "kernels": report,
    }, indent=1))  # fmt: skip


if __name__ == "__main__":
    main()
