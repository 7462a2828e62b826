"""The tables, traces and diagnoses of docs/results/attention.md.

    PYTHONPATH=src python -m benchmarks.attention -o FOLDER

Needs a GPU, torch and triton; takes about two minutes. Every step is a command line of its own, printed before it runs,
and a step that fails does not keep the others from running.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from contextlib import redirect_stdout
from pathlib import Path

from warplens.commands import main as warplens

BENCH, BROKEN = "examples/attention/bench.py", "examples/attention/broken/bench.py"
OURS = "naive,tiled,flash,triton_flash"
PEERS = "sdpa_cudnn,sdpa_flash,sdpa_efficient"
LARGE = ["--batch", "1", "--heads", "32", "--seq-len", "4096", "--head-dim", "128"]
ONE = ["--batch", "1", "--heads", "32", "--seq-len", "1024"]


def steps(folder: Path) -> dict[str, list[str]]:
    """Name and command line of each step; what it prints goes to FOLDER/NAME.txt."""
    broken, inside = str(folder / "broken"), str(folder / "inside")
    fast = ["--impl", f"flash,triton_flash,{PEERS}", "--head-dim", "64,128", "--causal", "false,true"]
    every = ["bench", BENCH, "--impl", f"{OURS},sdpa,sdpa_cudnn", "--quick", "--timeout", "1"]
    again = ["bench", BENCH, "--impl", "tiled,flash", "--seq-lengths", "512,1024", "--quick", "--force", "-o"]
    return {
        "broken": ["diagnose", BROKEN, "-o", broken, "--force"],
        "long": ["bench", BENCH, *fast, "--seq-lengths", "2048,4096,8192", "--quick", "-o", str(folder / "long.json")],
        "lengths": [*every, "-o", str(folder / "lengths.json")],
        "inside": ["diagnose", BENCH, "--impl", OURS, *ONE, "-o", inside, "--force"],
        "triton": ["diagnose", BENCH, "--impl", "triton_flash", *LARGE, "-o", inside, "--force"],
        "old": [*again, str(folder / "old.json")],
        "new": [*again, str(folder / "new.json")],
        "compare": ["bench", "--compare", str(folder / "old.json"), str(folder / "new.json")],
    }


def run(line: list[str]) -> int:
    """The command's exit code; a crash counts as a failure of this step alone."""
    try:
        return warplens(line)
    except Exception:
        traceback.print_exc()
        return 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=Path("attention-results"))
    parser.add_argument("steps", nargs="*", help="only these")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    known = steps(options.output)
    unknown = set(options.steps) - set(known)
    if unknown:
        parser.error(f"no step {unknown.pop()!r}; there are {', '.join(known)}")
    bad = 0
    for name, line in known.items():
        if options.steps and name not in options.steps:
            continue
        print(f"$ warplens {' '.join(line)}", flush=True)
        begin = time.perf_counter()
        with (options.output / f"{name}.txt").open("w") as out, redirect_stdout(out):
            code = run(line)
        print(f"  exit {code} after {time.perf_counter() - begin:.1f} s", flush=True)
        # The overflowing kernel is wrong on purpose; a comparison may find a change.
        bad += code not in (0, 3)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
