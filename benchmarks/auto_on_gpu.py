"""Automatic marks on ordinary programs: same results, what they cost each kernel, and how much of it they explain.

Run on a machine with a GPU: python benchmarks/auto_on_gpu.py --out results.json
Each program runs plain, under `warplens run --auto`, and once per rule set in a process that also asks CUPTI for the
kernels' times. Nothing in the programs knows of it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

PROGRAMS = {
    "fused_attention": ["examples/auto/fused_attention.py", "--repeat", "20"],
    "cupy_script": ["examples/auto/cupy_script.py"],
    "transformer_block": ["examples/auto/transformer_block.py", "--steps", "12"],
}
RULES = ("none", "default", "all")
WARM_UP = 2
"""Launches of each kernel that do not count: the first ones load code and fill caches."""


def child(rules: str, target: str, program: Sequence[str]) -> None:
    """Run the program here, with CUPTI's times of every kernel and, unless `none`, with automatic marks."""
    from warplens import decode, frontends
    from warplens.runner.activity import Activity
    from warplens.runner.program import Program, execute
    from warplens.session import Profile

    activity, captures = Activity(), []
    original: Callable[..., Any] = decode.decode

    def keep(capture: Any, *rest: Any, **options: Any) -> Any:
        captures.append(capture)
        return original(capture, *rest, **options)

    decode.decode = keep  # type: ignore[assignment]
    result: dict[str, Any] = {"rules": rules}
    activity.start()
    run = Program(program[0], tuple(program[1:]))
    if rules == "none":
        result["exit_code"] = execute(run).code
    else:
        profile = Profile(None, auto=True if rules == "default" else rules)
        try:
            with profile:
                stop = frontends.watch(lambda library, error: profile.note(library, str(error)))
                result["exit_code"] = execute(run).code
                stop()
                activity.stop()
        finally:
            result["notes"] = profile.notes
            result["seen"] = profile.seen
        result["kernels"] = explained(profile.trace, captures[0])
    activity.stop()
    result["times"] = activity.times
    result["problem"] = activity.problem
    Path(target).write_text(json.dumps(result))


def explained(trace: Any, capture: Any) -> dict[str, Any]:
    """How much of each warp's life its regions cover, per kernel."""
    from warplens.analyse.lives import Lives
    from warplens.record.layout import HEADER, HEADER_BYTES, TRACK_MAGIC

    lives = Lives.of(trace)
    own = np.add.reduceat(lives.own, lives.first)
    who = np.stack([lives.per_track(name) for name in ("launch", "block", "warp")], 1)
    covered = {tuple(key): float(cycles) for key, cycles in zip(who.tolist(), own, strict=True)}
    shares: dict[str, list[float]] = {}
    for number, launch in enumerate(capture.launches):
        raw = np.asarray(launch.raw).reshape(-1, launch.stride)[:, :HEADER_BYTES]
        headers = np.ascontiguousarray(raw).view(HEADER).reshape(-1)
        for header in headers[headers["magic"] == TRACK_MAGIC]:
            life = int(header["exit_clock"]) - int(header["start_clock"])
            part = covered.get((number, int(header["block"]), int(header["warp"])), 0.0)
            shares.setdefault(launch.kernel, []).append(part / max(life, 1))
    lost = trace.meta.losses.records_lost
    regions = {kernel: sorted({row.region for row in trace.select(kernel=kernel).stats()}) for kernel in trace.kernels}
    return {
        kernel: {
            "warps": len(values),
            "covered_min": min(values),
            "covered_p5": float(np.percentile(values, 5)),
            "covered_median": statistics.median(values),
            "covered_mean": statistics.fmean(values),
            "regions": regions.get(kernel, []),
            "records_lost_in_trace": lost,
        }
        for kernel, values in shares.items()
    }


def step(name: str, command: Sequence[str], env: dict[str, str], limit: float) -> dict[str, Any]:
    begin = time.perf_counter()
    try:
        done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=limit)
        code, out, err = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired as late:
        code, out, err = -1, str(late.stdout or "")[-2000:], f"longer than {limit} s: {str(late.stderr or '')[-3000:]}"
    seconds = time.perf_counter() - begin
    print(f"{name}: code {code}, {seconds:.1f} s", flush=True)
    if code:
        print((err or out)[-3000:], flush=True)
    return {"code": code, "seconds": seconds, "stdout": out, "stderr": err[-6000:]}


def cached(folder: Path) -> dict[str, int]:
    """What lies in the caches of torch and Triton."""
    return {str(file.relative_to(folder)): file.stat().st_size for file in folder.rglob("*") if file.is_file()}


def measure(name: str, program: Sequence[str], work: Path, limit: float) -> dict[str, Any]:
    caches = work / f"cache-{name}"
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor")}
    env |= {"TRITON_CACHE_DIR": str(caches / "triton")}
    saved = {kind: work / f"{name}-{kind}.bin" for kind in ("plain", "auto", "again")}

    def run(kind: str, *words: str) -> dict[str, Any]:
        return step(f"{name} {kind}", [sys.executable, *words, *program, "--save", str(saved[kind])], env, limit)

    found: dict[str, Any] = {"program": list(program)}
    found["plain"] = run("plain")
    before = cached(caches)
    trace = work / f"{name}.warplens"
    found["auto"] = run("auto", "-m", "warplens", "run", "--auto", "--json", "-o", str(trace))
    found["new_in_caches"] = sorted(set(cached(caches)) - set(before))
    found["woven_in_caches"] = [file for file in cached(caches) if b"@warplens" in (caches / file).read_bytes()]
    found["again"] = run("again")
    bytes_of = {kind: file.read_bytes() if file.exists() else None for kind, file in saved.items()}
    found["identical"] = bytes_of["plain"] is not None and len(set(bytes_of.values())) == 1
    found["output_bytes"] = len(bytes_of["plain"] or b"")
    for rules in RULES:
        target = work / f"{name}-{rules}.json"
        words = [sys.executable, __file__, "--child", rules, str(target), *program]
        found[rules] = step(f"{name} {rules}", words, env, limit)
        if target.exists():
            found[rules]["result"] = json.loads(target.read_text())
    found["slowdown"] = slowdown(found)
    print(f"{name}: identical {found['identical']}, slowdown {json.dumps(found['slowdown'])}", flush=True)
    return found


def slowdown(found: dict[str, Any]) -> dict[str, Any]:
    """Per kernel and rule set: the median of CUPTI's times over that of the plain run's."""
    times = {rules: found[rules].get("result", {}).get("times", {}) for rules in RULES}
    out: dict[str, Any] = {}
    for kernel, plain in times["none"].items():
        base = statistics.median(plain[WARM_UP:] or plain)
        row: dict[str, Any] = {"plain_ns": base, "launches": len(plain)}
        for rules in RULES[1:]:
            marked = times[rules].get(kernel)
            if marked and kernel in found[rules].get("result", {}).get("kernels", {}):
                row[rules] = statistics.median(marked[WARM_UP:] or marked) / base
        if len(row) > 2:
            out[kernel] = row
    return out


def nsight(folder: Path, work: Path, limit: float) -> dict[str, Any]:
    """One small kernel under Nsight Compute by `warplens run --ncu`, and the pages its report reads back as."""
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    trace = work / "ncu.warplens"
    program = ["examples/auto/fused_attention.py", "--heads", "4", "--length", "512", "--repeat", "1"]
    options = ["--auto", "--kernels", "causal_attention", "--launches", "1", "--ncu", "--json", "-o", str(trace)]
    done = step("ncu", [sys.executable, "-m", "warplens", "run", *options, *program], env, limit)
    for page in ("raw", "details", "source"):
        words = ["ncu", "--import", str(trace.with_suffix(".ncu-rep")), "--page", page, "--csv"]
        read = step(f"ncu {page}", words, env, limit)
        (folder / f"ncu_{page}.csv").write_text(read["stdout"])
    return done


def main() -> None:
    if "--child" in sys.argv[1:2]:
        child(sys.argv[2], sys.argv[3], sys.argv[4:])
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="auto.json")
    parser.add_argument("--only", default=",".join(PROGRAMS))
    parser.add_argument("--limit", type=float, default=90, help="seconds that one process may take")
    parser.add_argument("--ncu", help="also write Nsight Compute's pages to this folder")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        if options.ncu:
            results["ncu"] = nsight(Path(options.ncu), Path(folder), options.limit)
        for name in options.only.split(","):
            if (ROOT / PROGRAMS[name][0]).exists():
                results[name] = measure(name, PROGRAMS[name], Path(folder), options.limit)
            Path(options.out).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
