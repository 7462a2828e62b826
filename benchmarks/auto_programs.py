"""Automatic marks on ordinary programs: same results, what they cost each kernel, and how much of it they explain.

On a machine with a GPU:

    PYTHONPATH=src python -m benchmarks.auto_programs --out auto.json [--times-only] [--ncu FOLDER]

Each program runs plain and under `warplens run --auto`, in processes of their own, and their outputs are compared. Then
each program runs once per rule set, alone on the GPU and in a process of its own, and CUPTI is asked for the kernels'
times. Nothing in the programs knows of it. The first of these fills Inductor's cache for the others.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

PROGRAMS = {
    "cupy_script": ["examples/auto/cupy_script.py", "1024", "6"],
    "fused_attention": ["examples/auto/fused_attention.py", "--repeat", "6"],
    "transformer_block": ["examples/auto/transformer_block.py", "--steps", "6", "--batch", "4", "--length", "512"],
}
RULES = ("none", "default", "all")
RECORDED = 6
"""Launches of each kernel that are recorded."""
WARM_UP = 2
"""Launches of each kernel that do not count: the first ones load code, and size the buffers of the others."""


def child(target: str, name: str, rules: str) -> None:
    """Run the program here, and write CUPTI's times and what the regions explain."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        found = timed(rules, PROGRAMS[name])
    Path(target).write_text(json.dumps(found | {"printed": printed.getvalue()}))


def timed(rules: str, words: Sequence[str]) -> dict[str, Any]:
    from warplens.profiling.profile import Profile
    from warplens.runner.kernel_times import KernelTimes
    from warplens.runner.program import TargetProgram, execute

    activity = KernelTimes()
    program = TargetProgram(words[0], tuple(words[1:]))
    result: dict[str, Any] = {}
    activity.start()
    if rules == "none":
        result["exit_code"] = execute(program).code
        activity.stop()
    else:
        # Under `all` every kernel is to have its regions, also where they cost it room on the SM.
        asked: dict[str, Any] = {"auto": True} if rules == "default" else {"auto": rules, "least_occupancy": 0.0}
        profile = Profile(None, launches=RECORDED, whole_program=True, **asked)
        with profile:
            result["exit_code"] = execute(program).code
            activity.stop()
        result |= {"notes": profile.notes, "seen": profile.seen, **explained(profile.trace)}
    return result | {"times": activity.times, "problem": activity.problem}


def explained(trace: Any) -> dict[str, Any]:
    """Per kernel, how much of each warp's life its regions cover, and what the marks were estimated to cost it."""
    from warplens.record.cost_keys import SLOWDOWN

    found: dict[str, Any] = {}
    for kernel in trace.kernels:
        infos = [info for info in trace.meta.launches if info.kernel == kernel]
        covered = [info for info in infos if info.covered]
        estimates = [info.cost[SLOWDOWN] for info in infos if SLOWDOWN in info.cost]
        found[kernel] = {
            "launches": len(infos),
            "warps": sum(info.tracks for info in infos),
            "records_per_warp": max(info.extra.get("most_written", 0) for info in infos),
            "covered": {
                "least": min(info.covered["least"] for info in covered),
                "p5": min(info.covered["p5"] for info in covered),
                "median": statistics.median(info.covered["median"] for info in covered),
            }
            if covered
            else {},
            "estimate": statistics.median(estimates) if estimates else None,
        }
    return {"kernels": found, "records_lost": trace.meta.losses.records_lost}


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


def compared(name: str, work: Path, env: dict[str, str], limit: float) -> dict[str, Any]:
    """The program plain and under `warplens run --auto`, what each printed, and what the latter left in the caches."""
    caches = work / f"cache-{name}"
    env = env | {"TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"), "TRITON_CACHE_DIR": str(caches / "triton")}
    words, trace = PROGRAMS[name], work / f"{name}.warplens"
    found = {"program": words, "plain": step(f"{name} plain", [sys.executable, *words], env, limit)}
    before = cached(caches)
    options = ["-m", "warplens", "run", "--auto", "--launches", "3", "-o", str(trace)]
    found["auto"] = step(f"{name} auto", [sys.executable, *options, *words], env, limit)
    found["identical"] = found["plain"]["stdout"] == found["auto"]["stdout"] != ""
    found["new_in_caches"] = sorted(set(cached(caches)) - set(before))
    found["woven_in_caches"] = [file for file in cached(caches) if b"@warplens" in (caches / file).read_bytes()]
    print(f"{name}: identical {found['identical']}, {found['auto']['stdout'].splitlines()[-1:]}", flush=True)
    return found


def measured(name: str, work: Path, env: dict[str, str], limit: float) -> dict[str, Any]:
    """The program once per rule set; what one process could not do, the others still may."""
    out: dict[str, Any] = {}
    for rules in RULES:
        target = work / f"{name}-{rules}.json"
        done = step(f"{name} {rules}", [sys.executable, __file__, "--child", str(target), name, rules], env, limit)
        out[rules] = json.loads(target.read_text()) if target.exists() else {"failed": done["stderr"][-1500:]}
        out[rules]["seconds"] = done["seconds"]
        out[rules]["identical"] = out[rules].get("printed") == out["none"].get("printed")
    return out


def slowdown(times: dict[str, Any]) -> dict[str, Any]:
    """Per kernel and rule set: the median of CUPTI's times over that of the plain run's."""
    out: dict[str, Any] = {}
    for kernel, plain in times["none"].get("times", {}).items():
        base = statistics.median(plain[WARM_UP:] or plain)
        row: dict[str, Any] = {"plain_ns": base, "launches": len(plain)}
        for rules in RULES[1:]:
            recorded = times[rules].get("kernels", {})
            name = next((one for one in recorded if one == kernel or f"{one}<" in kernel or f"{one}(" in kernel), None)
            marked = times[rules].get("times", {}).get(kernel) if name else None
            if marked:
                ratio = statistics.median(marked[WARM_UP:RECORDED] or marked) / base
                row[rules] = {"slowdown": ratio, **recorded[name]}
        if len(row) > 2:
            out[kernel] = row
    return out


def lines(name: str, found: dict[str, Any]) -> list[str]:
    """What a person reads: one line per program and rule set, and a table of its kernels."""
    out = []
    for rules, one in found["times"].items():
        failed = one.get("failed", "").strip().splitlines()
        said = failed[-1] if failed else f"lost {one.get('records_lost', 0):,}, problem {one.get('problem') or 'none'}"
        out.append(f"{name} {rules}: {one['seconds']:.1f} s, identical {one['identical']}, {said}")
        unmarked = [f"{kernel}: {text}" for kernel, texts in one.get("notes", {}).items() for text in texts]
        out += [f"    {text}" for text in unmarked if "unmarked" in text or "not marked" in text]
    out.append("| kernel | plain µs | rules | slowdown | estimated | records per warp | least, p5, median covered |")
    for kernel, row in found["slowdown"].items():
        for rules in RULES[1:]:
            if rules in row:
                one = row[rules]
                shares = ", ".join(f"{share:.4f}" for share in one["covered"].values())
                estimate = "-" if one["estimate"] is None else f"{one['estimate']:.3f}"
                out.append(
                    f"| {kernel[:90]} | {row['plain_ns'] / 1000:.2f} | {rules} | {one['slowdown']:.3f} | {estimate} | "
                    f"{one['records_per_warp']} | {shares} |"
                )
    return out


def nsight(folder: Path, work: Path, env: dict[str, str], limit: float) -> dict[str, Any]:
    """One small kernel under Nsight Compute by `warplens run --ncu`, and the pages its report reads back as."""
    trace = work / "ncu.warplens"
    program = ["examples/auto/fused_attention.py", "--heads", "4", "--length", "512", "--repeat", "1"]
    options = ["--auto", "--kernels", "causal_attention", "--launches", "1", "--ncu", "--json", "-o", str(trace)]
    done = step("ncu", [sys.executable, "-m", "warplens", "run", *options, *program], env, limit)
    for page in ("raw", "details", "source"):
        words = ["ncu", "--import", str(trace.with_suffix(".ncu-rep")), "--page", page, "--csv"]
        (folder / f"ncu_{page}.csv").write_text(step(f"ncu {page}", words, env, limit)["stdout"])
    return done


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="auto.json")
    parser.add_argument("--only", default=",".join(PROGRAMS))
    parser.add_argument("--limit", type=float, default=90, help="seconds that one process may take")
    parser.add_argument("--ncu", help="also write Nsight Compute's pages to this folder")
    parser.add_argument("--times-only", action="store_true", help="only the times, not each program plain and marked")
    options = parser.parse_args()
    names = options.only.split(",")
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    results: dict[str, Any] = {name: {"program": PROGRAMS[name]} for name in names}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor() as pool:
        work = Path(folder)
        pages = pool.submit(nsight, Path(options.ncu), work, env, options.limit) if options.ncu else None
        if not options.times_only:
            found = pool.map(lambda name: compared(name, work, env, options.limit), names)
            results |= dict(zip(names, found, strict=True))
            env["TORCHINDUCTOR_CACHE_DIR"] = str(work / "cache-transformer_block" / "inductor")
        env.setdefault("TORCHINDUCTOR_CACHE_DIR", str(work / "inductor"))
        if pages is not None:
            results["ncu"] = pages.result()
        for name in names:
            results[name]["times"] = measured(name, work, env, options.limit)
            results[name]["slowdown"] = slowdown(results[name]["times"])
            print("\n".join(lines(name, results[name])), flush=True)
            Path(options.out).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
