"""Regions verified in machine code, against a second, independent count: Nsight Compute's executed instructions.

    PYTHONPATH=src python -m benchmarks.verify_on_gpu --out DIR [--case NAME ...] [--no-ncu] [--dry-run]

Four kernels are recorded: a Triton attention, a CUDA kernel with woven marks and with direct ones, and a CuPy kernel
that warplens marks by itself. Then the same program runs under `ncu --section SourceCounters`, and for each region

- the instructions that ncu lists in the region's address ranges are those that the verification counted, by class;
- ncu's executions of the region's begins are as many as the trace of that very launch has spans of the region.

Everything goes to DIR: the traces, the source page, the stalls per region, and `result.json` with a verdict per kernel.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import warplens as wl
from warplens.analyse.ncu_source import SourcePage, parse_source_pages
from warplens.analyse.region_counters import region_counters
from warplens.analyse.region_purity import verified_kernels
from warplens.driver.jit_linker import link_with_lines
from warplens.driver.libcuda import driver
from warplens.profiling.region_check import collected_codes
from warplens.sass.disassembly import SassInstruction
from warplens.sass.machine_code import MachineCode
from warplens.sass.numbered_lines import numbered_ptx
from warplens.sass.verified_regions import KernelVerification, RegionCode

ROOT = Path(__file__).resolve().parents[1]
CUDA = r"""
#include <warplens.cuh>
extern "C" __global__ void gpu_work(const float* a, float* b, int n, wl::Buffer prof) {
  wl::Kernel kernel(prof);
  __shared__ float tile[256];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = 0;
#pragma unroll 2
  for (int j = 0; j < n; ++j) {
    {
      WL_REGION("load");
      tile[threadIdx.x] = a[i + j * gridDim.x * blockDim.x];
    }
    {
      WL_REGION("wait");
      __syncthreads();
    }
    {
      WL_REGION("math");
      for (int k = 0; k < 16; ++k) sum = sum * tile[(threadIdx.x + k) & 255] + 1.0f;
    }
    __syncthreads();
  }
  b[i] = sum;
}
"""
CUPY = r"""
extern "C" __global__ void cupy_work(const float* a, float* b, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = 0;
  for (int j = 0; j < n; ++j) {
    float v = a[i + j * gridDim.x * blockDim.x];
    for (int k = 0; k < 8; ++k) sum = sum * v + __expf(sum);
    __syncthreads();
  }
  b[i] = sum;
}
"""
BLOCKS, THREADS, STEPS = 132, 256, 16


def attention(path: Path) -> None:
    """The Triton attention of the examples, with its hand-written marks."""
    import torch

    sys.path.insert(0, str(ROOT / "examples" / "attention"))
    import triton_flash

    q, k, v = (torch.randn(2, 8, 1024, 64, device="cuda", dtype=torch.float16) for _ in range(3))
    out = torch.empty_like(q)
    triton_flash.run(q, k, v, out)
    with wl.profile(path):
        triton_flash.run(q, k, v, out)


def cuda(path: Path, woven: bool) -> None:
    """A CUDA kernel that warplens compiles."""
    import torch

    import warplens.cuda as wlcu

    module = wlcu.compile(CUDA, name="gpu_work.cu", woven=woven)
    a = torch.randn(BLOCKS * THREADS * STEPS, device="cuda")
    b = torch.empty(BLOCKS * THREADS, device="cuda")
    with wl.profile(path):
        module["gpu_work"][BLOCKS, THREADS](a, b, np.int32(STEPS))


def cupy(path: Path) -> None:
    """A CuPy kernel without marks."""
    import cupy as cp

    kernel = cp.RawKernel(CUPY, "cupy_work")
    a, b = cp.random.rand(BLOCKS * THREADS * STEPS, dtype=cp.float32), cp.empty(BLOCKS * THREADS, cp.float32)
    with wl.profile(path, auto="all"):
        kernel((BLOCKS,), (THREADS,), (a, b, np.int32(STEPS)))


CASES: dict[str, Callable[[Path], None]] = {
    "attention": attention,
    "cuda_woven": lambda path: cuda(path, True),
    "cuda_direct": lambda path: cuda(path, False),
    "cupy": cupy,
}
KERNELS = "regex:^(triton_flash|gpu_work|cupy_work)"


def record(names: Sequence[str], folder: Path) -> dict[str, str]:
    """Run the cases; return what failed."""
    failed = {}
    for name in names:
        start = time.perf_counter()
        try:
            with collected_codes() as codes:
                CASES[name](folder / f"{name}.warplens")
            keep_code(folder / name, [code for _, code in codes.values()])
            print(f"{name}: recorded and verified in {time.perf_counter() - start:.1f} s", flush=True)
        except Exception as error:  # the other cases still tell something
            failed[name] = f"{type(error).__name__}: {error}"
            print(f"{name}: failed: {failed[name]}", flush=True)
    return failed


def keep_code(path: Path, codes: Sequence[MachineCode]) -> None:
    """Keep what the driver's compiler makes of each text, to look at where there is no GPU."""
    for number, code in enumerate(codes):
        if code.cubin is None:
            path.with_name(f"{path.name}.{number}.ptx").write_text(code.ptx)
            cubin = link_with_lines(driver(), numbered_ptx(code.ptx))
            path.with_name(f"{path.name}.{number}.cubin").write_bytes(cubin)


def under_ncu(names: Sequence[str], folder: Path) -> tuple[list[SourcePage], str]:
    """Run the cases once more under ncu; return its source pages, or why there are none."""
    tool = shutil.which("ncu")
    if tool is None:
        return [], "ncu is not on PATH"
    report = folder / "marked.ncu-rep"
    program = [sys.executable, "-m", "benchmarks.verify_on_gpu", "--record", "--out", str(folder)]
    cases = [word for name in names for word in ("--case", name)]
    command = [tool, "--section", "SourceCounters", "--clock-control", "none", "--import-source", "yes"]
    command += ["--kernel-name", KERNELS, "--launch-count", "24", "--force-overwrite", "--export", str(report)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([*command, *program, *cases], cwd=ROOT, env=environment, timeout=200)
    if done.returncode or not report.exists():
        return [], f"ncu exited with code {done.returncode}"
    for kind, name in (("sass", "source.csv"), ("cuda,sass", "lines.csv")):
        page = [tool, "--import", str(report), "--page", "source", "--csv", "--print-source", kind]
        (folder / name).write_text(subprocess.run(page, capture_output=True, text=True).stdout)
    return parse_source_pages((folder / "source.csv").read_text()), ""


def compare(trace: wl.Trace, pages: Sequence[SourcePage]) -> dict[str, Any]:
    """Compare each verified kernel of a trace with the page of its very code."""
    found: dict[str, Any] = {}
    for kernel, verified in verified_kernels(trace).items():
        for code in verified:
            page = next((one for one in pages if one.fingerprint == code.fingerprint), None)
            found[kernel] = {"problem": code.problem, "page": page is not None, "source": code.source}
            if page is not None and not code.problem:
                found[kernel]["regions"] = [_region(trace, kernel, one, page) for one in code.regions]
                found[kernel]["agrees"] = all(one["agrees"] for one in found[kernel]["regions"])
                found[kernel]["listed"] = len(page.rows)
                found[kernel]["warplens"] = code.own
    return found


def _region(trace: wl.Trace, kernel: str, region: RegionCode, page: SourcePage) -> dict[str, Any]:
    rows = {row.place: row for row in page.rows}
    inside = [rows[at] for start, end in region.ranges for at in range(start, end, 16) if at in rows]
    listed = Counter(_kind(row.text) for row in inside)
    begins = sum(rows[one.begin].executed for one in region.instances if one.begin in rows)
    spans = _spans(trace, kernel, region.region)
    by_class = all(listed[kind] >= count for kind, count in region.counts.items())
    same = len(inside) == region.inside + region.own and by_class
    return {
        "region": region.region,
        "instructions": region.inside + region.own,
        "ncu_instructions": len(inside),
        "counts": dict(region.counts),
        "ncu_counts": dict(listed),
        "spans": spans,
        "ncu_begins": begins,
        "purity": region.purity,
        "flag": region.flag,
        "agrees": bool(same and begins == spans),
    }


def _kind(text: str) -> str:
    words = text.split(None, 2) if text.startswith("@") else ["", *text.split(None, 1)]
    return SassInstruction(0, words[1] if len(words) > 1 else "", words[2] if len(words) > 2 else "").kind


def _spans(trace: wl.Trace, kernel: str, region: str) -> int:
    mine = trace.of_kind("span")
    for column, name in (("kernel", kernel), ("region", region)):
        codes, names = trace.codes(column)
        mine = mine & (codes == (names.index(name) if name in names else -1))
    return int(mine.sum())


def describe(code: KernelVerification) -> str:
    """One line per region."""
    rows = (
        f"  {one.region}: purity {one.purity:.3f}, {one.inside} inside, {one.own} own; {one.flag}"
        for one in code.regions
    )
    return "\n".join([f"{code.kernel}: {code.problem or code.source}", *rows])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--case", action="append", choices=list(CASES))
    parser.add_argument("--no-ncu", action="store_true")
    parser.add_argument("--record", action="store_true", help="Only record, as the run under ncu does.")
    parser.add_argument(
        "--dry-run", action="store_true", help="Compare pages and traces that are already in the folder."
    )
    given = parser.parse_args()
    names = given.case or list(CASES)
    given.out.mkdir(parents=True, exist_ok=True)
    if given.record:
        record(names, given.out)
        return 0
    start = time.perf_counter()
    failed: dict[str, str] = {}
    pages: list[SourcePage] = []
    why = ""
    if given.dry_run:
        pages = parse_source_pages((given.out / "source.csv").read_text())
    elif given.no_ncu or shutil.which("ncu") is None:
        failed, why = record(names, given.out), "without ncu"
    else:
        pages, why = under_ncu(names, given.out)
    result: dict[str, Any] = {"failed": failed, "ncu": why, "cases": {}}
    for name in names:
        path = given.out / f"{name}.warplens"
        if not path.exists():
            failed.setdefault(name, "no trace")
            continue
        trace = wl.load(path)
        for codes in verified_kernels(trace).values():
            print("\n".join(describe(one) for one in codes), flush=True)
        compared = compare(trace, pages)
        counters = region_counters(trace, pages).to_json() if pages else {}
        result["cases"][name] = {"compared": compared, "counters": counters}
        for kernel, one in compared.items():
            print(f"{name}: {kernel}: agrees with ncu: {one.get('agrees', 'not compared')}", flush=True)
    result["seconds"] = round(time.perf_counter() - start, 1)
    (given.out / "result.json").write_text(json.dumps(result, indent=1))
    print(f"wrote {given.out / 'result.json'} after {result['seconds']} s")
    good = [one.get("agrees") for case in result["cases"].values() for one in case["compared"].values()]
    return 0 if good and all(good) and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
