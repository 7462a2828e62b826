"""Run every kernel of kernels.cu and check that the expected finding comes first.

python examples/findings/run.py [--out FOLDER] [NAME ...]     Needs a GPU, CuPy and warplens[cuda]

Prints one line per case and exits with 1 if a case gives another finding. The traces are written to FOLDER.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import warplens as wl
from warplens.analyse.findings import findings

sys.path.insert(0, str(Path(__file__).resolve().parent))
from expected import CASES, problem_of

SOURCE = Path(__file__).with_name("kernels.cu")
ALONE = 120 << 10
"""Bytes of shared memory per block, so that only one block fits on an SM."""


class Bench:
    """Hold the lookup tables and launch the kernels, one method per kernel."""

    def __init__(self) -> None:
        import cupy

        import warplens.cuda as wlcu

        self.np = cupy
        self.module = wlcu.compile(SOURCE)
        self.sms = cupy.cuda.runtime.getDeviceProperties(0)["multiProcessorCount"]
        self.out = cupy.zeros(1 << 16, cupy.float32)
        # A linear congruential step visits every entry once before it repeats.
        self.small = self._cycle(1 << 16)
        self.large = self._cycle(1 << 26)

    def _cycle(self, size: int) -> Any:
        index = self.np.arange(size, dtype=self.np.int64)
        return ((index * 1664525 + 1013904223) % size).astype(self.np.int32)

    def rows(
        self, rounds: list[int], *, threads: int = 32, steps: int = 2, length: int = 200, alone: bool = True
    ) -> None:
        given = self.np.array(rounds, dtype=self.np.int32)
        arguments = (self.small, given, steps, length, self.out)
        self.module["rows"].launch(len(rounds), threads, *arguments, shared=ALONE if alone else 0)

    def lookups(self, misses: int) -> None:
        self.module["lookups"].launch(self.sms, 32, self.small, self.large, 100, misses, self.out, shared=ALONE)

    def copies(self, ahead: int) -> None:
        self.module["copies"].launch(self.sms, 128, self.large, 40, ahead, 300, self.out, shared=ALONE)

    def handoff(self) -> None:
        self.module["handoff"].launch(self.sms, 128, self.small, 40, 4, 400, self.out, shared=ALONE)


def launches(bench: Bench) -> dict[str, Callable[[], None]]:
    sms = bench.sms
    return {
        "balanced": lambda: bench.rows([40] * sms, alone=False, threads=128, steps=1, length=800),
        "skewed": lambda: bench.rows([40 if i % 33 else 200 for i in range(sms)], alone=False, threads=128, steps=1),
        "tail": lambda: bench.rows([20] * (2 * sms + 4), steps=1),
        "small grid": lambda: bench.rows([40] * (sms // 4), steps=1),
        "serial": lambda: bench.rows([60] * sms, steps=2, length=140),
        "hidden": lambda: bench.rows([30] * (16 * sms), steps=2, length=140, alone=False),
        "thrashing": lambda: bench.lookups(1),
        "cached": lambda: bench.lookups(0),
        "stalled": lambda: bench.copies(1),
        "double buffered": lambda: bench.copies(4),
        "handoff": bench.handoff,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("findings"))
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    import cupy

    if not cupy.is_available():
        sys.exit("this example needs a GPU")
    options.out.mkdir(parents=True, exist_ok=True)
    bench = Bench()
    bad = 0
    for name, launch in launches(bench).items():
        if options.names and name not in options.names:
            continue
        launch()  # compile and warm up the caches
        with wl.profile(options.out / f"{name.replace(' ', '_')}.warplens") as profile:
            launch()
        found = findings(profile.trace)
        problem = problem_of(CASES[name], found)
        bad += bool(problem)
        top = f"{found[0].kind}: {found[0].what}" if found else "nothing"
        print(f"{'WRONG' if problem else 'ok':<6}{name:<16}{problem or ''} {top}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
