"""Automatic marks under an overhead budget of 5 % on kernels of PyTorch (Inductor, FlexAttention), Liger-Kernel,
flash-linear-attention and this repository: the slowdown of each weaving that was tried, and the share of warp time that
regions cover. Needs a GPU.

    PYTHONPATH=src python -m benchmarks.overhead_budget --out DIR [--cases own torch] [--case NAME]
    PYTHONPATH=src python -m benchmarks.overhead_budget --out DIR --cases liger fla --libraries FOLDER
    PYTHONPATH=src python -m benchmarks.overhead_budget --table DIR ...  # the tables of docs/results/overhead_budget.md

Each case runs under `wl.profile(auto=True, overhead=0.05, launches=10, skip="cold", trace_bytes=64_000_000)`, which is
what `warplens run --auto` asks for, and the attention of examples/triton with its own marks. Once the profile has
decided, the case runs on with every other launch recorded, and CUPTI measures the slowdown independently
(benchmarks/lib/alternating_launches.py). Results are kept case by case in DIR/overhead_budget.json.

FOLDER has the libraries, which need nothing but torch and Triton; a GPU machine may have no network:

    pip install --no-deps --no-compile --target FOLDER \\
        liger-kernel==0.8.5 fla-core==0.6.0 flash-linear-attention==0.6.0 einops==0.8.2

Of their autotuned kernels the middle configuration is taken, because tuning takes minutes of compilation.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.lib.alternating_launches import AlternatingLaunches, key_of
from benchmarks.lib.library_runs import LIBRARIES, Shapes, take_middle_configurations

BUDGET = 0.05
MOST_ROUNDS, AT_ONCE = 16, 10
"""Calls of a case until the profile has decided about all of its kernels: the host waits for the device after each
round."""
ALTERNATING = 42
"""Calls of a case while every other launch is recorded."""
LAUNCHES, TRACE_BYTES = 10, 64_000_000
LEAST_US = 5.0
"""Kernels that are shorter are counted apart: a record of each warp costs a tenth of their time."""
LEAST_COVERED = 0.8
HAND_MARKED = "attention, hand marks"
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
    from warplens.launch.timing import TIMED_LAUNCHES
    from warplens.record.capture import OVERHEAD_BUDGET, SAMPLED, VARIANT
    from warplens.record.cost_keys import SLOWDOWN_MEASURED, TIMED_PLAIN, TIMED_RECORDED

    for _ in range(3):
        run()
    torch.cuda.synchronize()
    started = time.perf_counter()
    watched = AlternatingLaunches()
    options: Any = {"overhead": BUDGET, "launches": LAUNCHES, "skip": "cold", "trace_bytes": TRACE_BYTES}
    with watched.watching(), wl.profile(auto=auto or None, **options) as profile:
        for _ in range(MOST_ROUNDS):
            for _ in range(AT_ONCE):
                run()
            torch.cuda.synchronize()
            if watched.are_decided(min(LAUNCHES, TIMED_LAUNCHES)):
                break
        independent = watched.measure(run, ALTERNATING)
    spent = time.perf_counter() - started
    rows: dict[str, Any] = {}
    for info in profile.trace.meta.launches:
        budget = info.extra.get(OVERHEAD_BUDGET, {})
        cupti = independent.get(key_of(info.kernel, info.extra.get(VARIANT, {})))
        rows[f"{info.kernel} {info.grid}"] = {
            "slowdown": info.cost.get(SLOWDOWN_MEASURED),
            "launches": [int(info.cost.get(key, 0)) for key in (TIMED_PLAIN, TIMED_RECORDED)],
            "cupti": None if cupti is None else {**asdict(cupti), "ratio": cupti.ratio},
            "covered": info.covered.get("median"),
            "tried": budget.get("tried", []),
            "step": budget.get("step", 1),
            "omitted": budget.get("omitted", []),
            "lives": budget.get("lives", False),
            "sampled": info.extra.get(SAMPLED),
            "us": (info.end_ns - info.begin_ns) / 1000 if cupti is None else cupti.plain_us,
        }
    return {"kernels": rows, "notes": profile.notes, "seconds": round(spent, 1)}


def table(folders: Sequence[Path]) -> str:
    """The table of one or several runs, and how many kernels meet the targets."""
    lines, rows = [], []
    for folder in folders:
        found = json.loads((folder / "overhead_budget.json").read_text())
        lines += [f"{found['device']}, torch {found['torch']}, triton {found['triton']}, {found['date']}.", ""]
        lines.append(
            "| case | kernel | µs | all marks | profile | launches | CUPTI | launches | recorded | left out | covered |"
        )
        lines.append("|---|---|---|---|---|---|---|---|---|---|---|")
        for name, case in found["cases"].items():
            for kernel, row in case.get("kernels", {}).items():
                lines.append(f"| {' | '.join(_cells(name, kernel, row))} |")
                rows.append(row)
            if "problem" in case:
                lines.append(f"| {name} | {case['problem']} | | | | | | | | | |")
        lines.append("")
    for title, some in (
        (f"{LEAST_US:g} µs and longer", [row for row in rows if row["us"] >= LEAST_US]),
        (f"shorter than {LEAST_US:g} µs", [row for row in rows if row["us"] < LEAST_US]),
    ):
        lines.append(f"- {title}: {said(counts(some))}")
    return "\n".join(lines)


def _cells(name: str, kernel: str, row: dict[str, Any]) -> tuple[str, ...]:
    tried, cupti = row["tried"], row.get("cupti")
    first = f"{tried[0]['slowdown']:.3f}" if tried and tried[0]["step"] == 1 else "-"
    share = "all blocks" if row["step"] == 1 else f"1 block in {row['step']}"
    left = "all marks" if row.get("lives") else f"{len(row['omitted'])} regions" if row["omitted"] else "-"
    measured = row.get("launches", [0, 0])
    return (
        name,
        kernel.partition(" ")[0][:48],
        f"{row['us']:.1f}",
        first,
        "-" if row["slowdown"] is None else f"{row['slowdown']:.3f}",
        f"{measured[0]} + {measured[1]}",
        "-" if cupti is None else f"{cupti['ratio']:.3f}",
        "-" if cupti is None else f"{cupti['plain']} + {cupti['recorded']}",
        share,
        left,
        "-" if row["covered"] is None else f"{100 * row['covered']:.0f} %",
    )


def counts(rows: Sequence[dict[str, Any]]) -> dict[str, int]:
    """How many kernels there are, and how many meet each target; a slowdown that is not known meets none."""

    def within(ratio: float | None) -> bool:
        return ratio is not None and ratio <= 1 + BUDGET

    by_profile = [within(row["slowdown"]) for row in rows]
    by_cupti = [within((row.get("cupti") or {}).get("ratio")) for row in rows]
    covered = [row["covered"] is not None and row["covered"] >= LEAST_COVERED for row in rows]
    return {
        "kernels": len(rows),
        "profile": sum(by_profile),
        "cupti": sum(by_cupti),
        "covered": sum(covered),
        "all": sum(map(all, zip(by_profile, by_cupti, covered, strict=True))),
    }


def said(found: dict[str, int]) -> str:
    return (
        f"{found['kernels']} kernels; "
        f"at most {1 + BUDGET:g} by the profile {found['profile']}, by CUPTI {found['cupti']}; "
        f"at least {LEAST_COVERED:.0%} covered {found['covered']}; all three {found['all']}"
    )


def cases_of(groups: Sequence[str]) -> dict[str, Callable[[], Run]]:
    """The cases of some groups. Those of the libraries take turns, so that a run that is cut short has some of each."""
    found: dict[str, Callable[[], Run]] = {}
    if "own" in groups:
        found |= {HAND_MARKED: hand_marked, **triton_cases()}
    if "torch" in groups:
        found |= inductor_cases()
    libraries = [list(LIBRARIES[name](Shapes()).items()) for name in groups if name in LIBRARIES]
    for turn in itertools.zip_longest(*libraries):
        found |= dict(filter(None, turn))
    if libraries:
        take_middle_configurations()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write DIR/overhead_budget.json")
    parser.add_argument(
        "--table", type=Path, nargs="+", metavar="DIR", help="print the tables of earlier results; needs no GPU"
    )
    parser.add_argument("--seconds", type=float, default=200, help="no case is begun after this many seconds")
    parser.add_argument("--case", nargs="*", default=[], help="only cases whose name contains one of these")
    parser.add_argument(
        "--cases", nargs="+", choices=("own", "torch", *LIBRARIES), default=["own", "torch"],
        help="groups of cases [default: own torch]",
    )  # fmt: skip
    parser.add_argument("--libraries", type=Path, metavar="FOLDER", help="where liger_kernel and fla are")
    options = parser.parse_args()
    if options.table:
        print(table(options.table))
        return
    started = time.perf_counter()
    if options.libraries:
        sys.path.insert(0, str(options.libraries.resolve()))
    import torch
    import triton

    report: dict[str, Any] = {
        "device": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__,
        "date": time.strftime("%Y-%m-%d"), "budget": BUDGET, "cases": {},
    }  # fmt: skip
    for name, make in cases_of(options.cases).items():
        if options.case and not any(part in name for part in options.case):
            continue
        if time.perf_counter() - started > options.seconds:
            print(f"{name}: no time left", file=sys.stderr, flush=True)
            continue
        try:
            case = profiled(make(), auto=name != HAND_MARKED)
        except Exception as error:
            case = {"problem": f"{type(error).__name__}: {str(error)[:300]}"}
        report["cases"][name] = case
        print(name, f"after {time.perf_counter() - started:.0f} s:", json.dumps(case)[:600], flush=True)
        torch.cuda.empty_cache()
        if options.out:
            options.out.mkdir(parents=True, exist_ok=True)
            (options.out / "overhead_budget.json").write_text(json.dumps(report, indent=1) + "\n")
    if options.out and report["cases"]:
        print(table([options.out]))


if __name__ == "__main__":
    main()
