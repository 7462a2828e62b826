"""Registers of marked kernels, as ptxas counts them: no GPU is needed.

    PYTHONPATH=src python -m benchmarks.registers [sm_80 sm_90a sm_100a] [--include FOLDER]
    PYTHONPATH=src python -m benchmarks.registers --triton [sm_80 sm_90a sm_100a]

Every CUDA kernel with direct marks is compiled without them (-DWARPLENS=0), with them, and with a ring. Prints one JSON
document: registers, and for each loop with marks its instructions and how many of them store a record.
`--include` measures another version of the headers. Needs nvcc, and cuobjdump and nvdisasm beside it or in the path.
`--triton` prints the table of the Triton examples instead: plain, as ptxas takes the woven kernel without a limit, as a
profile has it made, how many registers that adds, and bytes spilled. Needs triton, and nothing else.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
HERE = ROOT / "benchmarks" / "kernels"
KERNELS: dict[str, tuple[Path | str, ...]] = {
    "clock reads alone, one pair": (HERE / "micro.cu", "-DDESIGN=0", "-DPAIRS=1"),
    "one pair of marks": (HERE / "micro.cu", "-DDESIGN=1", "-DPAIRS=1"),
    "four pairs of marks": (HERE / "micro.cu", "-DDESIGN=1", "-DPAIRS=4"),
    "64 fmas": (HERE / "chain.cu", "-DLENGTH=64"),
    "fp32 GEMM": (HERE / "sgemm.cu",),
    "mma.sync 128x128x32": (HERE / "gemm.cu", "-DBK=32"),
    "mma.sync 128x128x64": (HERE / "gemm.cu", "-DBK=64"),
    "wgmma 128x128x64": (HERE / "wgmma.cu",),
    "wgmma 128x256x64": (HERE / "wgmma.cu", "-DBN=256"),
    "examples/cuda/matmul.cu": (ROOT / "examples" / "cuda" / "matmul.cu",),
    "examples/findings/kernels.cu": (ROOT / "examples" / "findings" / "kernels.cu",),
}
MODES = {"unmarked": ("-DWARPLENS=0",), "marked": (), "ring": ("-DWARPLENS_RING=1",)}


def output(*command: Any) -> str:
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True).stdout


def marked_loops(instructions: str) -> list[dict[str, int]]:
    """Each loop that holds record stores: how many instructions, and how many of these."""
    labels: dict[str, int] = {}
    lines: list[str] = []
    found = []
    for line in instructions.splitlines():
        if label := re.match(r"\s*(\.L\w+):", line):
            labels[label[1]] = len(lines)
        elif instruction := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", line):
            lines.append(instruction[1])
            back = re.search(r"\bBRA\b.*\((\.L\w+)\)", instruction[1])
            body = lines[labels[back[1]] :] if back and back[1] in labels else []
            if stores := sum("STG.E.EF.64" in line for line in body):
                found.append({"instructions": len(body), "records": stores})
    return found


def measure(arch: str, include: Path, source: tuple[Path | str, ...], options: tuple[str, ...]) -> dict[str, Any]:
    """What ptxas made of each kernel of one source."""
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "k.cubin"
        compiler = ("nvcc", "-std=c++17", f"-arch={arch}", f"-I{include}", f"-I{HERE}", "-cubin")
        output(*compiler, "-o", cubin, *source, *options)
        usage = output("cuobjdump", "-res-usage", cubin)
        parts = output("nvdisasm", "-c", cubin).split(".section\t.text.")[1:]
    loops = {part.split(",")[0]: marked_loops(part) for part in parts}
    return {
        name: {"registers": int(registers), "local_bytes": int(local), "loops": loops.get(name, [])}
        for name, registers, local in re.findall(r"Function (\S+):\s+REG:(\d+).*?LOCAL:(\d+)", usage)
    }


def triton_rows(arch: str) -> list[str]:
    """The examples for one architecture, as rows of a Markdown table."""
    from tests.support.triton_examples import jobs
    from warplens.frontends.triton.requirement import triton_version
    from warplens.weave.weaving import Weaving

    capability, rows = int(arch.strip("sma_")), []
    for job in jobs(capability):
        if capability >= 100 and triton_version() < (3, 7) and job.name not in ("vector_add", "softmax"):
            continue  # Triton 3.6 refuses marks in the loops it pipelines for Blackwell
        plain, made = job.woven(capability, Weaving())
        _, free = job.woven(capability, Weaving(limit=False))
        before, after = plain.registers, made.resources
        cells = before, free.resources.registers, after.registers, f"{after.registers - before:+}", after.spills
        rows.append(f"| {arch} {job.name} | " + " | ".join(map(str, cells)) + " |")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("arch", nargs="*", default=["sm_80", "sm_90a", "sm_100a"])
    parser.add_argument("--triton", action="store_true", help="the Triton examples")
    parser.add_argument("--include", type=Path, default=ROOT / "src" / "warplens" / "include")
    chosen = parser.parse_args()
    if chosen.triton:
        print("| kernel | plain | woven, no limit | woven | added | spilled bytes |\n|---|---|---|---|---|---|")
        print("\n".join(row for arch in chosen.arch for row in triton_rows(arch)))
        return
    table = {
        arch: {
            kernel: {mode: measure(arch, chosen.include, source, options) for mode, options in MODES.items()}
            for kernel, source in KERNELS.items()
            if arch == "sm_90a" or not kernel.startswith("wgmma")
        }
        for arch in chosen.arch
    }
    print(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()
