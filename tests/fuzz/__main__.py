"""`python -m tests.fuzz TARGET --cases N --seed S`: run one fuzz target, or list them."""

from __future__ import annotations

import argparse
import time
from importlib import import_module

TARGETS = ("captures", "ncu", "ptx", "torch", "traces")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--cases", type=int, default=1000, help="number of cases [default: 1000]")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first case [default: 1]")
    options = parser.parse_args()
    started = time.monotonic()
    import_module(f"tests.fuzz.{options.target}").run(options.cases, options.seed)
    seconds = time.monotonic() - started
    print(f"{options.target}: {options.cases:,} cases from seed {options.seed} passed in {seconds:.1f} s")


if __name__ == "__main__":
    main()
