"""Triton's own tutorials under `warplens run --auto`: what tutorial 03 prints and what its tuner chooses, plain and
profiled, and how large the traces of 02, 05 and 06 are.

Their sources are python/tutorials of https://github.com/triton-lang/triton at the release that is installed. Most of
the time goes into compilers, which use one core each. So everything is compiled first, by all tutorials at once, and
that is when the traces are made of which only the size is asked. The runs that are timed come after that, alone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MATMUL, SIZES = "03-matrix-multiplication", ("1024", "2048", "4096")
_LAST_S = 8.0
"""What is left for a profile to end after its program was asked to."""


@dataclass(frozen=True)
class Run:
    """One run of a tutorial: how many of its benchmarks, of how many sizes or of which."""

    name: str
    profiled: bool
    shown: tuple[str, ...]
    most_s: float
    environment: tuple[tuple[str, str], ...] = ()


FIRST = (
    Run(MATMUL, False, ("0", "1"), 60),
    Run("02-fused-softmax", True, ("1", "12"), 60),
    Run("05-layer-norm", True, ("1", "6"), 60),
    # With this, the tutorial tries one configuration instead of 21, which take a minute to compile.
    Run("06-fused-attention", True, ("1", "2"), 60, (("PYTEST_VERSION", "0"),)),
)
"""At once, to fill the compilers' cache."""
TIMED = tuple(Run(MATMUL, profiled, ("1", "3", *SIZES * 8), 40) for profiled in (False, True, False, True))
"""One after the other, while there is time. Each times every size eight times: one time in a few is host-bound."""
_LEAST_S = 15.0
"""A timed run that has less than this is not begun."""


class Started:
    """A tutorial that runs in a process of its own, as it is or under `warplens run --auto` with its defaults."""

    def __init__(self, run: Run, sources: Path, folder: Path, cache: Path) -> None:
        self.run, self.folder = run, folder
        folder.mkdir(parents=True)
        script = Path(__file__).with_name("tutorial.py")
        self._out, self._trace = folder / "tutorial.json", folder / "tutorial.warplens"
        program = [str(script), str(sources / f"{run.name}.py"), str(self._out), *run.shown]
        options = ["-m", "warplens", "run", "--auto", "-o", str(self._trace), "--force"] if run.profiled else []
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "TRITON_CACHE_DIR": str(cache),
            "MPLBACKEND": "Agg",
            **dict(run.environment),
        }
        self._began = time.perf_counter()
        with open(folder / "stdout", "w") as out, open(folder / "stderr", "w") as err:
            self._process = subprocess.Popen(
                [sys.executable, *options, *program], env=environment, stdout=out, stderr=err, cwd=folder
            )

    def result(self, seconds: float) -> dict[str, Any]:
        """Wait so long and no longer, and return what there is then."""
        stopped = None
        for sign, wait in ((None, max(seconds - _LAST_S, 0.1)), (signal.SIGTERM, _LAST_S), (signal.SIGKILL, 5.0)):
            if sign is not None:
                stopped = sign.name
                self._process.send_signal(sign)
            try:
                self._process.wait(wait)
                break
            except subprocess.TimeoutExpired:
                continue
        out, err = ((self.folder / name).read_text(errors="replace") for name in ("stdout", "stderr"))
        failed = bool(self._process.returncode) or stopped is not None
        return {
            "profiled": self.run.profiled,
            "code": self._process.returncode,
            **({"stopped after its time by": stopped} if stopped else {}),
            "seconds": time.perf_counter() - self._began,
            "trace_bytes": _size(self._trace),
            "stdout": out[-1500:] if self.run.profiled or failed else "",
            "stderr": err[-20000 if failed else -1500 :],
            **(json.loads(self._out.read_text()) if self._out.exists() else {}),
        }


def _size(trace: Path) -> int | None:
    """The bytes of a trace, which is a folder where the program had child processes."""
    if not trace.exists():
        return None
    return sum(one.stat().st_size for one in ([trace] if trace.is_file() else trace.rglob("*")) if one.is_file())


def run_tutorials(sources: Path, folder: Path, seconds: float) -> dict[str, Any]:
    """Run them within so many seconds; `folder` is empty."""
    missing = sorted({run.name for run in (*FIRST, *TIMED) if not (sources / f"{run.name}.py").exists()})
    if missing:
        return {"not measured": f"{sources} lacks {', '.join(missing)}"}
    end, cache, found = time.monotonic() + seconds, folder / "cache", dict[str, list[dict[str, Any]]]()

    def keep(started: Started, most_s: float) -> None:
        made = started.result(min(most_s, end - time.monotonic()))
        found.setdefault(f"{started.run.name}{'' if started.run in TIMED else ', first run'}", []).append(made)
        brief = {key: value for key, value in made.items() if key not in ("stdout", "stderr", "chosen")}
        kind = "profiled" if started.run.profiled else "plain"
        print(started.run.name, kind, json.dumps(brief, default=str)[:700], flush=True)

    first = [Started(run, sources, folder / f"first-{at}", cache) for at, run in enumerate(FIRST)]
    until = time.monotonic() + min(max(run.most_s for run in FIRST), seconds * 0.6)
    for started in first:
        keep(started, until - time.monotonic())
    for at, run in enumerate(TIMED):
        if end - time.monotonic() > _LEAST_S:
            keep(Started(run, sources, folder / f"timed-{at}", cache), run.most_s)
    return dict(found)
