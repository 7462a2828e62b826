"""Slowdown of woven Triton kernels by how records reach memory and by which blocks record. Needs a GPU.

    PYTHONPATH=src python -m benchmarks.store_variants --out DIR
    PYTHONPATH=src python -m benchmarks.store_variants --table DIR     # the tables of docs/results/disturbance.md

Kernels: the five of triton_overhead.py, the hand-marked attention of examples/triton, and two kernels with automatic
marks. Each kernel's variants are compiled by a process of their own first, all kernels at once. Then every variant runs
in turn; see `measure` in triton_overhead.py. DIR/store_variants.json holds the results, kernel by kernel.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from warplens.weave.weaving import Selection, Weaving

ROOT = Path(__file__).resolve().parent.parent
EVERY_BLOCK = 1 << 30
PLACES = {
    "store=late": Weaving(store="late"),
    "store=end": Weaving(store="end"),
    "store=spread": Weaving(store="spread"),
    "keep=0": Weaving(keep=0),
    "lean": Weaving(lean=True),
    "late addresses": Weaving(early=False),
}


def sampled(step: int, *, plain_copy: bool = True) -> Weaving:
    return Weaving(plain_copy=plain_copy, select=Selection(blocks=(0, EVERY_BLOCK, step)))


SAMPLED = {
    "1 block in 17, one body": sampled(17, plain_copy=False),
    "1 block in 17": sampled(17),
    "1 block in 31": sampled(31),
}
DEFAULT = {"default": Weaving()}


def cases() -> dict[str, tuple[Any, dict[str, Weaving], bool]]:
    """By label: how to launch a kernel, its variants, and whether its marks are automatic."""
    from benchmarks.triton_overhead import Kernel, kernels

    found: dict[str, tuple[Any, dict[str, Weaving], bool]] = {}
    for kernel in kernels():
        matrix = "gemm" in kernel.label
        found[kernel.label] = kernel, DEFAULT | (PLACES | SAMPLED if matrix else {}), False
    found["attention"] = attention_case(), DEFAULT | PLACES | SAMPLED, False
    for label, kernel in _automatic(Kernel).items():
        found[label] = kernel, DEFAULT | PLACES, True
    return found


def attention_case() -> Any:
    """The hand-marked attention of the examples."""
    import torch

    from benchmarks.triton_overhead import Kernel as kind

    sys.path.insert(0, str(ROOT / "examples" / "triton"))
    import attention as example

    heads, length, width = 32, 2048, 64
    q, k, v = (torch.randn(heads, length, width, device="cuda", dtype=torch.float16) for _ in range(3))
    out = torch.empty_like(q)

    def launch(mark: int) -> object:
        kernel = example.attention[(length // 128, heads)]
        return kernel(q, k, v, out, width**-0.5 * 1.44269504, length, 128, 64, width, num_warps=4, num_stages=3)

    return kind("attention", "attention", launch, out, 6 * length // 64 + 4, 10)


def _automatic(kind: Any) -> dict[str, Any]:
    from benchmarks.auto_on_gpu import cases as plain_cases

    found = {}
    for name in ("gemm", "flash_forward"):
        run, results = plain_cases()[name]()

        def launch(mark: int, run: Callable[[], Any] = run) -> object:
            return run()

        found[f"{name}, automatic marks"] = kind(name, name, launch, results[0], 4096, 10)
    return found


class Woven:
    """Runs launches under one weaving."""

    def __init__(self, how: Weaving, records: int, automatic: bool) -> None:
        self.how, self.records, self.automatic = how, records, automatic
        self.notes: dict[str, list[str]] = {}
        self.extra: dict[str, Any] = {}

    def __call__(self, launch: Callable[[int], object], count: int) -> None:
        from warplens.frontends.triton import frontend
        from warplens.profiling.profile import Profile

        profile = Profile(records_per_warp=self.records, auto=self.automatic)
        frontend.override = self.how
        stop = frontend.start(profile)
        try:
            for _ in range(count):
                launch(1)
        finally:
            stop()
            frontend.override = None
        self.extra = dict(profile.run._pending[-1][0].collect().extra) if profile.run._pending else {}
        self.notes = {name: list(notes) for name, notes in profile.notes.items()}
        profile.collect()


def modes_of(kernel: Any, variants: dict[str, Weaving], automatic: bool) -> dict[str, Any]:
    from benchmarks.triton_overhead import Plain

    woven = {name: Woven(how, kernel.records + 64, automatic) for name, how in variants.items()}
    return {"unmarked": Plain(1 if automatic or kernel.name == "attention" else 0), **woven}


def compile_all(label: str) -> None:
    """Launch every variant of one kernel once, which leaves it in Triton's cache."""
    kernel, variants, automatic = cases()[label]
    for name, mode in modes_of(kernel, variants, automatic).items():
        started = time.perf_counter()
        mode(kernel.launch, 1)
        print(f"  {label}: {name} compiled in {time.perf_counter() - started:.1f} s", file=sys.stderr, flush=True)


def row_of(label: str, options: argparse.Namespace) -> dict[str, Any]:
    import torch

    from benchmarks.triton_overhead import measure

    kernel, variants, automatic = cases()[label]
    kernel.launch(0)
    torch.cuda.synchronize()
    expected = kernel.output.clone()
    modes = modes_of(kernel, variants, automatic)
    times = measure(kernel, modes, options.repeats, options.launches, options.seconds)
    row: dict[str, Any] = {"base_us": statistics.median(times["unmarked"]), "variants": {}}
    for name, values in times.items():
        ratios = sorted(value / base for value, base in zip(values, times["unmarked"], strict=True))
        kernel.output.zero_()
        modes[name](kernel.launch, 1)
        torch.cuda.synchronize()
        extra = getattr(modes[name], "extra", {})
        row["variants"][name] = {
            "slowdown": round(statistics.median(ratios), 4),
            "range": [round(ratios[0], 4), round(ratios[-1], 4)],
            "identical": bool(torch.equal(kernel.output, expected)),
            "notes": getattr(modes[name], "notes", {}),
            **{key: extra[key] for key in ("registers", "spills", "most_written", "store") if key in extra},
        }
    return row


def table(folder: Path) -> str:
    """The results as one Markdown table per kernel."""
    found = json.loads((folder / "store_variants.json").read_text())
    lines = [f"{found['device']}, torch {found['torch']}, triton {found['triton']}, {found['date']}.", ""]
    for label, row in found["kernels"].items():
        lines += [f"### {label} ({row['base_us']:.1f} µs unmarked)", ""]
        lines += ["| variant | slowdown | repeats | registers |", "|---|---|---|---|"]
        for name, one in sorted(row["variants"].items(), key=lambda item: item[1]["slowdown"]):
            low, high = one["range"]
            lines.append(f"| {name} | {one['slowdown']:.4f} | {low:.4f} to {high:.4f} | {one.get('registers', '')} |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, help="write DIR/store_variants.json")
    parser.add_argument("--table", type=Path, metavar="DIR", help="print the tables of earlier results; needs no GPU")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--launches", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=9, help="per kernel, after which no repeat is begun")
    parser.add_argument("--kernel", nargs="*", default=[], help="only kernels whose label contains one of these")
    parser.add_argument("--compile", metavar="LABEL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.table:
        print(table(options.table))
        return
    if options.compile:
        compile_all(options.compile)
        return
    import torch
    import triton

    labels = [label for label in cases() if not options.kernel or any(part in label for part in options.kernel)]
    command = [sys.executable, "-m", "benchmarks.store_variants", "--compile"]
    for process in [subprocess.Popen([*command, label], cwd=ROOT) for label in labels]:
        process.wait()
    report: dict[str, Any] = {
        "device": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__,
        "date": time.strftime("%Y-%m-%d"), "kernels": {},
    }  # fmt: skip
    for label in labels:
        try:
            row = report["kernels"][label] = row_of(label, options)
        except Exception as error:
            print(f"{label}: {error!r}", file=sys.stderr, flush=True)
            continue
        print(f"{label}: {row['base_us']:.1f} us", file=sys.stderr)
        for name, one in sorted(row["variants"].items(), key=lambda item: item[1]["slowdown"]):
            print(
                f"    {one['slowdown']:.4f} {one['range']} {name} {one.get('registers', '')}",
                file=sys.stderr,
                flush=True,
            )
        if options.out:
            options.out.mkdir(parents=True, exist_ok=True)
            (options.out / "store_variants.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
