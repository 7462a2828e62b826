"""How many kernels of PTX files are marked: `python benchmarks/marked_nvcc_kernels.py FILES`, .ptx or .cu.

A kernel counts as marked if the automatic marks find something in it, it can be woven, and ptxas assembles the result.
Needs no GPU. Prints one JSON document: for each file the number of kernels, and the reasons of those that run plain.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from warplens.auto.rules import Auto
from warplens.errors import WarplensError
from warplens.frontends.intercept.woven_module import marked_text
from warplens.ptx.tree import parse
from warplens.weave.weaving import Weaving


def ptx_of(path: Path, arch: str, folder: Path) -> str:
    """The PTX of a file, compiled if it is CUDA C++."""
    if path.suffix == ".ptx":
        return path.read_text()
    made = folder / "made.ptx"
    subprocess.run(["nvcc", "-ptx", f"-arch={arch}", "-lineinfo", "-std=c++17", path, "-o", made], check=True)
    return made.read_text()


def measure(text: str, auto: Auto, folder: Path) -> dict[str, Any]:
    """Mark each kernel of a module by itself, as an interceptor does."""
    module = parse(text)
    marked, shared, reasons = 0, 0, Counter[str]()
    for entry in module.entries:
        try:
            woven, _, variables = marked_text(text, entry.name, auto, Weaving())
        except WarplensError as error:
            reasons[re.sub(r"variable [\w$]+", "variable ...", str(error))] += 1
            continue
        if problem := _rejected(woven.text, entry.name, folder):
            reasons[f"ptxas: {problem}"] += 1
            continue
        marked += 1
        shared += bool(variables)
    variables_declared = sum(item.space == "global" for item in module.declarations)
    return {
        "kernels": len(module.entries), "marked": marked, "marked, take over variables": shared,
        "global variables in the module": variables_declared, "plain": dict(reasons),
    }  # fmt: skip


def _rejected(text: str, kernel: str, folder: Path) -> str:
    """What ptxas says about a text that it does not assemble; empty if it does."""
    path = folder / "woven.ptx"
    path.write_text(text)
    target = re.search(r"^\.target\s+(\w+)", text, re.MULTILINE)
    arch = target[1] if target else "sm_90"
    done = subprocess.run(
        ["ptxas", f"-arch={arch}", "-e", kernel, path, "-o", "/dev/null"], capture_output=True, text=True
    )
    return done.stderr.partition("\n")[0] if done.returncode else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, help="PTX files, or CUDA sources")
    parser.add_argument("--arch", default="sm_90", help="architecture for CUDA sources [default: sm_90]")
    parser.add_argument("--auto", default="", help="classes of marks [default: those of --auto]")
    options = parser.parse_args()
    auto = Auto.of(options.auto or True)
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        for path in options.files:
            result[path.name] = measure(ptx_of(path, options.arch, Path(name)), auto, Path(name))
    total = {key: sum(one[key] for one in result.values()) for key in ("kernels", "marked")}
    print(json.dumps({"files": result, "total": total}, indent=1))


if __name__ == "__main__":
    main()
