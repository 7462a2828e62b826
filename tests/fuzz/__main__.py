"""`python -m tests.fuzz TARGET --cases N --seed S`: run one fuzz target, or list them."""

from __future__ import annotations

import argparse
import math
import sys
import time
from importlib import import_module

from tests.fuzz.harness import LIMIT, run_cases

TARGETS = ("captures", "kernels", "ncu", "ptx", "torch", "traces")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--cases", type=int, default=1000, help="number of cases [default: 1000]")
    parser.add_argument("--seed", type=int, default=1, help="seed of the cases [default: 1]")
    parser.add_argument("--first", type=int, default=0, help="number of the first case [default: 0]")
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after this time [default: no limit]")
    options = parser.parse_args()
    started = time.monotonic()
    target = import_module(f"tests.fuzz.{options.target}")
    limit = getattr(target, "LIMIT", LIMIT)
    outcome = run_cases(
        target.case, options.cases, options.seed, first=options.first, seconds=options.seconds, limit=limit
    )
    seconds = time.monotonic() - started
    names = f"{options.seed}:{options.first} to {options.seed}:{options.first + outcome.cases - 1}"
    print(f"{options.target}: {outcome.cases:,} cases, {names}, {outcome.failed:,} failed, in {seconds:.1f} s")
    if outcome.failed:
        sys.exit("\n\n".join(outcome.kinds.values()))


if __name__ == "__main__":
    main()
