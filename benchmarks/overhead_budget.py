"""Automatic marks under an overhead budget of 5 % on kernels of PyTorch (Inductor, FlexAttention) and of this
repository: the slowdown of each weaving that was tried, and the share of warp time that regions cover. Needs a GPU.

    PYTHONPATH=src python -m benchmarks.overhead_budget --out DIR
    PYTHONPATH=src python -m benchmarks.overhead_budget --table DIR     # the table of docs/results/overhead_budget.md

Each case runs under `wl.profile(auto=True, overhead=0.05, launches=10)`, the options of `warplens run --auto`, and the
attention of examples/triton with its own marks. Results are kept case by case in DIR/overhead_budget.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BUDGET = 0.05
ROUNDS, AT_ONCE = 12, 10
"""The launches of a case: the host waits for the device after each round."""
Run = Callable[[], Any]


def inductor_cases() -> dict[str, Callable[[], Run]]:
    """Functions that torch.compile makes kernels of."""
    import torch
    import torch.nn.functional as F

    def tensor(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)

    def compiled(function: Any, *arguments: Any) -> Run:
        made = torch.compile(function, dynamic=False)
        return lambda: made(*arguments)

    def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        left, right = x.chunk(2, -1)
        return x * cos + torch.cat((-right, left), -1) * sin

    def flex() -> Run:
        from torch.nn.attention.flex_attention import flex_attention

        q, k, v = (tensor(4, 16, 2048, 64) for _ in range(3))
        return compiled(lambda a, b, c: flex_attention(a, b, c), q, k, v)

    def flex_backward() -> Run:
        from torch.nn.attention.flex_attention import flex_attention

        q, k, v = (tensor(2, 16, 2048, 64).requires_grad_() for _ in range(3))
        made = torch.compile(lambda a, b, c: flex_attention(a, b, c), dynamic=False)
        return lambda: made(q, k, v).sum().backward()

    size = (8192, 4096)
    return {
        "rms norm": lambda: compiled(lambda x, w: F.rms_norm(x, (4096,), w), tensor(*size), tensor(4096)),
        "layer norm": lambda: compiled(
            lambda x, w, b: F.layer_norm(x, (4096,), w, b), tensor(*size), tensor(4096), tensor(4096)
        ),
        "softmax": lambda: compiled(lambda x: torch.softmax(x.float(), -1), tensor(*size)),
        "swiglu": lambda: compiled(lambda a, b: F.silu(a) * b, tensor(*size), tensor(*size)),
        "gelu": lambda: compiled(lambda x, b: F.gelu(x + b), tensor(*size), tensor(4096)),
        "rope": lambda: compiled(rope, tensor(8, 32, 2048, 64), tensor(2048, 64), tensor(2048, 64)),
        "cross entropy": lambda: compiled(
            lambda x, y: F.cross_entropy(x.float(), y),
            tensor(4096, 32000),
            torch.randint(32000, (4096,), device="cuda"),
        ),
        "column sum": lambda: compiled(lambda x: x.float().sum(0), tensor(*size)),
        "flex attention": flex,
        "flex attention, backward": flex_backward,
    }


def triton_cases() -> dict[str, Callable[[], Run]]:
    from benchmarks.auto_on_gpu import cases

    return {name: lambda make=make: make()[0] for name, make in cases().items()}


def hand_marked() -> Run:
    from benchmarks.store_variants import attention_case

    launch = attention_case().launch
    return lambda: launch(1)


def profiled(run: Run, auto: bool) -> dict[str, Any]:
    """Run a case under the budget; what became of each of its kernels."""
    import torch

    import warplens as wl
    import warplens.triton
    from warplens.record.capture import OVERHEAD_BUDGET, SAMPLED

    for _ in range(3):
        run()
    torch.cuda.synchronize()
    started = time.perf_counter()
    with wl.profile(auto=auto or None, overhead=BUDGET, launches=10, skip="cold") as profile:
        for _ in range(ROUNDS):
            for _ in range(AT_ONCE):
                run()
            torch.cuda.synchronize()
    spent = time.perf_counter() - started
    rows: dict[str, Any] = {}
    for info in profile.trace.meta.launches:
        budget = info.extra.get(OVERHEAD_BUDGET, {})
        rows[f"{info.kernel} {info.grid}"] = {
            "slowdown": info.cost.get("slowdown_measured"),
            "covered": info.covered.get("median"),
            "tried": budget.get("tried", []),
            "step": budget.get("step", 1),
            "omitted": budget.get("omitted", []),
            "sampled": info.extra.get(SAMPLED),
            "us": (info.end_ns - info.begin_ns) / 1000,
        }
    return {"kernels": rows, "notes": profile.notes, "seconds": round(spent, 1)}


def table(folder: Path) -> str:
    found = json.loads((folder / "overhead_budget.json").read_text())
    lines = [f"{found['device']}, torch {found['torch']}, triton {found['triton']}, {found['date']}.", ""]
    lines.append("| case | kernel | µs | all marks | now | recorded | left out | covered |")
    lines.append("|---|---|---|---|---|---|---|---|")
    for name, case in found["cases"].items():
        for kernel, row in case.get("kernels", {}).items():
            tried = row["tried"]
            first = f"{tried[0]['slowdown']:.3f}" if tried and tried[0]["step"] == 1 else "-"
            now = "-" if row["slowdown"] is None else f"{row['slowdown']:.3f}"
            share = "all blocks" if row["step"] == 1 else f"1 block in {row['step']}"
            covered = "-" if row["covered"] is None else f"{100 * row['covered']:.0f} %"
            left = f"{len(row['omitted'])} regions" if row["omitted"] else "-"
            cells = name, kernel.partition(" ")[0][:48], f"{row['us']:.0f}", first, now, share, left, covered
            lines.append(f"| {' | '.join(cells)} |")
        if "problem" in case:
            lines.append(f"| {name} | {case['problem']} | | | | | | |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, help="write DIR/overhead_budget.json")
    parser.add_argument("--table", type=Path, metavar="DIR", help="print the table of earlier results; needs no GPU")
    parser.add_argument("--seconds", type=float, default=200, help="no case is begun after this many seconds")
    parser.add_argument("--case", nargs="*", default=[], help="only cases whose name contains one of these")
    options = parser.parse_args()
    if options.table:
        print(table(options.table))
        return
    import torch
    import triton

    report: dict[str, Any] = {
        "device": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__,
        "date": time.strftime("%Y-%m-%d"), "budget": BUDGET, "cases": {},
    }  # fmt: skip
    cases = {"attention, hand marks": hand_marked, **triton_cases(), **inductor_cases()}
    started = time.perf_counter()
    for name, make in cases.items():
        if options.case and not any(part in name for part in options.case):
            continue
        if time.perf_counter() - started > options.seconds:
            print(f"{name}: no time left", file=sys.stderr, flush=True)
            continue
        try:
            case = profiled(make(), auto=name != "attention, hand marks")
        except Exception as error:
            case = {"problem": f"{type(error).__name__}: {str(error)[:300]}"}
        report["cases"][name] = case
        print(name, json.dumps(case)[:1500], flush=True)
        torch.cuda.empty_cache()
        if options.out:
            options.out.mkdir(parents=True, exist_ok=True)
            (options.out / "overhead_budget.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
