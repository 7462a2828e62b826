"""Run all pairs, each in a process of its own: a kernel that traps or hangs does not stop the others."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.truth.pair import Pair
from warplens.runner.nsight_compute import ncu_command

ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = ("torch", "triton", "cupy-cuda12x", "cupy-cuda13x", "cuda-bindings", "numpy")


def run_all(pairs: Sequence[Pair], out: Path, *, at_once: int, seconds: float, ncu: bool) -> int:
    """Write the traces and truth.json; return the number of pairs that failed."""
    out.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    waiting, running, codes = list(pairs), dict[str, tuple[subprocess.Popen[bytes], Any]](), dict[str, int]()
    while waiting or running:
        late = time.monotonic() - begin > seconds
        while waiting and len(running) < at_once and not late:
            pair = waiting.pop(0)
            log = (out / f"{pair.name}.log").open("wb")
            command = [sys.executable, "-m", "benchmarks.truth", "--pair", pair.name, "--out", str(out)]
            running[pair.name] = subprocess.Popen(command, cwd=ROOT, env=_environment(), stdout=log, stderr=log), log
        for name, (process, log) in list(running.items()):
            if late and process.poll() is None:
                process.kill()
                process.wait()
            if process.poll() is None:
                continue
            log.close()
            del running[name]
            codes[name] = process.returncode
            print(f"{time.monotonic() - begin:6.1f} s  {name}: {_summary(out, name, process.returncode)}", flush=True)
        if late:
            waiting.clear()
        time.sleep(0.1)
    document = {"context": _context(), "pairs": {pair.name: _found(out, pair) for pair in pairs}}
    _write(out, document)
    if ncu:
        for pair in pairs:
            if pair.ncu and time.monotonic() - begin < seconds:
                document["pairs"][pair.name]["ncu"] = _nsight_compute(pair, out)
                print(f"{time.monotonic() - begin:6.1f} s  {pair.name}: ncu", flush=True)
        _write(out, document)
    return sum(1 for pair in pairs if codes.get(pair.name, 1))


def _write(out: Path, document: dict[str, Any]) -> None:
    (out / "truth.json").write_text(json.dumps(document, indent=1) + "\n")


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}


def _found(out: Path, pair: Pair) -> dict[str, Any]:
    path = out / f"{pair.name}.json"
    found = json.loads(path.read_text()) if path.exists() else {"errors": {"run": "it did not finish; see the log"}}
    own = {"language": pair.language, "cause": pair.cause, "regions": list(pair.regions), "change": pair.change}
    return own | found


def _summary(out: Path, name: str, code: int) -> str:
    path = out / f"{name}.json"
    if not path.exists():
        return f"exit code {code}, no result; see {name}.log"
    found = json.loads(path.read_text())
    taken = " -> ".join(f"{one['median_us']:.1f}" for one in found.get("times", {}).values())
    gain = f", gain {found['gain']:.1%}" if "gain" in found else ""
    failed = "".join(f"; {step} FAILED: {problem[:120]}" for step, problem in found["errors"].items())
    spent = ", ".join(f"{step} {seconds} s" for step, seconds in found["seconds"].items())
    return f"{taken} us{gain} ({spent}){failed}"


def _nsight_compute(pair: Pair, out: Path) -> dict[str, str]:
    """Write the raw and the source page of one launch of each version."""
    report = out / f"{pair.name}.ncu-rep"
    program = [sys.executable, "-m", "benchmarks.truth", "--pair", pair.name, "--launch"]
    try:
        command = ncu_command(program, report, kernels=pair.kernel, launches=len(pair.versions))
        subprocess.run(command, cwd=ROOT, env=_environment() | {"WARPLENS": "0"}, timeout=90, check=True,
                       stdout=subprocess.DEVNULL)  # fmt: skip
        for number, version in enumerate(pair.versions):
            for page in ("raw", "source"):
                asked = ["--page", page, "--csv", "--launch-skip", str(number), "--launch-count", "1"]
                told = subprocess.run([command[0], "--import", str(report), *asked],
                                      capture_output=True, text=True, timeout=60, check=True)  # fmt: skip
                (out / f"{pair.name}.{version}.ncu.{page}.csv").write_text(told.stdout)
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"[:500]}
    return {"pages": "raw, source"}


def _context() -> dict[str, Any]:
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    asked = ["nvidia-smi", "--query-gpu=name,driver_version,clocks.max.sm", "--format=csv,noheader"]
    try:
        device = subprocess.run(asked, capture_output=True, text=True, timeout=20).stdout.strip()
    except OSError:
        device = "unknown"
    return {
        "device": device,
        "python": platform.python_version(),
        "versions": versions,
        "date": datetime.date.today().isoformat(),
        "command": "python -m benchmarks.truth",
    }
