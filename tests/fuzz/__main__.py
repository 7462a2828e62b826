"""`python -m tests.fuzz TARGET --cases N --seed S`: feed damaged input to one part of warplens, and count the outcomes.

A target is a module `tests/fuzz/TARGET_target.py` with `run_case(random) -> str`, which returns the kind of outcome and
raises if the input caused anything but a result or a WarplensError. Each case has a seed of its own, which is printed
with a failure, so that `--seed SEED --cases 1` repeats it.
"""

from __future__ import annotations

import argparse
import importlib
import random
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

SLOW_SECONDS = 10.0
"""A case that takes longer is reported as a hang."""


def targets() -> list[str]:
    """The names of all targets."""
    return sorted(path.name.removesuffix("_target.py") for path in Path(__file__).parent.glob("*_target.py"))


def fuzz(target: str, cases: int, seed: int) -> tuple[Counter[str], list[int]]:
    """Run the cases with seeds from `seed` on; return the outcomes and the seeds of the failures."""
    run_case = importlib.import_module(f"tests.fuzz.{target}_target").run_case
    outcomes: Counter[str] = Counter()
    failures: list[int] = []
    for number in range(seed, seed + cases):
        began = time.process_time()
        try:
            outcomes[run_case(random.Random(number))] += 1
        except Exception:
            failures.append(number)
            print(f"seed {number}:\n{traceback.format_exc()}", file=sys.stderr)
        if (seconds := time.process_time() - began) > SLOW_SECONDS:
            failures.append(number)
            print(f"seed {number}: took {seconds:.1f} s", file=sys.stderr)
    return outcomes, failures


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("target", choices=targets())
    parser.add_argument("--cases", type=int, default=1000, help="number of cases [default: 1000]")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first case [default: 0]")
    options = parser.parse_args()
    outcomes, failures = fuzz(options.target, options.cases, options.seed)
    for outcome, count in outcomes.most_common():
        print(f"{count:8d} {outcome}")
    print(f"{len(failures):8d} failures" + (f", seeds {failures[:20]}" if failures else ""))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
