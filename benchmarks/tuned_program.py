"""An autotuned program as it is and under `warplens run --auto`: the speed it prints, and what its tuner chooses.

    PYTHONPATH=src python -m benchmarks.tuned_program --out tuned.json

Needs a GPU, torch and Triton. The program times a matrix product over several sizes with `triton.testing.do_bench`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PROGRAM = """
import json, sys, torch, triton, triton.language as tl

CONFIGS = [
    triton.Config({"BM": bm, "BN": bn, "BK": bk}, num_warps=warps, num_stages=stages)
    for bm, bn, bk, warps, stages in [
        (128, 256, 64, 8, 3), (64, 256, 32, 4, 4), (128, 128, 32, 4, 4), (128, 64, 32, 4, 4), (64, 128, 32, 4, 4),
        (128, 32, 32, 4, 4), (64, 32, 32, 2, 5),
    ]
]

@triton.autotune(configs=CONFIGS, key=["M", "N", "K"])
@triton.jit
def product(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    pa, pb = a + rm[:, None] * K + rk[None, :], b + rk[:, None] * N + rn[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        acc = tl.dot(tl.load(pa), tl.load(pb), acc)
        pa += BK
        pb += BK * N
    tl.store(c + rm[:, None] * N + rn[None, :], acc.to(c.dtype.element_ty))

found = {}
for n in (1024, 2048, 4096):
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty(n, n, device="cuda", dtype=torch.float16)
    grid = lambda meta: (n // meta["BM"], n // meta["BN"])
    product[grid](a, b, c, n, n, n)
    ms = triton.testing.do_bench(lambda: product[grid](a, b, c, n, n, n), quantiles=[0.5])
    found[n] = {"tflops": 2 * n**3 / ms / 1e9, "config": str(product.best_config), "sum": float(c.float().sum())}
json.dump(found, open(sys.argv[1], "w"))
"""


def run(folder: Path, profiled: bool, number: int) -> dict[str, Any]:
    """Run the program in a process of its own, with a Triton cache of its own."""
    script, out = folder / "tuned.py", folder / f"out{number}{profiled}.json"
    script.write_text(PROGRAM)
    command = [sys.executable, str(script), str(out)]
    if profiled:
        options = ["--auto", "-o", str(folder / "t.warplens"), "--force"]
        command = [sys.executable, "-m", "warplens", "run", *options, str(script), str(out)]
    environment = {**os.environ, "TRITON_CACHE_DIR": str(folder / f"cache{number}{profiled}")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=folder, check=False)
    result = {"code": done.returncode, "stderr": done.stderr[-1500:], "stdout": done.stdout[-2500:] if profiled else ""}
    sizes = json.loads(out.read_text()) if out.exists() else {}
    trace = folder / "t.warplens"
    return result | {"sizes": sizes, "trace_bytes": trace.stat().st_size if profiled and trace.exists() else 0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", default="tuned.json")
    parser.add_argument("--repeats", type=int, default=2)
    options = parser.parse_args()
    target = Path(options.out).resolve()
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        for number in range(options.repeats):
            runs += [{"profiled": profiled, **run(Path(name), profiled, number)} for profiled in (False, True)]
    target.write_text(json.dumps(runs, indent=1))
    for one in runs:
        shown = {size: (round(row["tflops"], 1), row["config"]) for size, row in one["sizes"].items()}
        print("profiled" if one["profiled"] else "plain", one["code"], one["trace_bytes"], shown)
    print(runs[-1]["stdout"], runs[-1]["stderr"])


if __name__ == "__main__":
    main()
