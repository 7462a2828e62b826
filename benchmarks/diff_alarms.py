"""How often `warplens diff` is wrong on real repeated runs. Needs a GPU.

    PYTHONPATH=src python -m benchmarks.diff_alarms [RUNS]

Every run is a profile of its own. All pairs of runs of the same kernels must come out SAME; pairs with a region that
does 5 % more work must come out SLOWER in that region and nowhere else. Prints one JSON document.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import warplens as wl
from warplens.analyse.diff import diff
from warplens.trace.model import Trace

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples" / "findings"))

_LAUNCHES = 6
_WORK = 400


def _profile(bench: Any, work: int) -> Trace:
    with wl.profile() as profile:
        for _ in range(_LAUNCHES):
            bench.rows([40] * (4 * bench.sms), threads=64, steps=2, length=work, alone=False)
    return profile.trace


def alarms(runs: int = 15) -> dict[str, Any]:
    """Verdicts over all pairs of runs, per region and per kernel, and how often an injected 5 % was found."""
    from run import Bench

    bench = Bench()
    _profile(bench, _WORK)
    same = [_profile(bench, _WORK) for _ in range(runs)]
    slower = [_profile(bench, round(1.05 * _WORK)) for _ in range(runs)]
    regions: Counter[str] = Counter()
    kernels: Counter[str] = Counter()
    wrong = 0
    for before, after in combinations(same, 2):
        found = diff(before, after)
        regions.update(f"{one.region} {one.verdict.value}" for one in found)
        kernels.update(one.verdict.value for one in found.kernels)
        wrong += any(one.verdict.value in ("FASTER", "SLOWER") for one in (*found.kernels, *found.regions))
    injected: Counter[str] = Counter()
    for before, after in zip(same, slower, strict=True):
        injected.update(f"{one.region} {one.verdict.value}" for one in diff(before, after))
    pairs = runs * (runs - 1) // 2
    return {
        "pairs": pairs,
        "launches_per_run": _LAUNCHES,
        "false_alarms": wrong,
        "false_alarm_rate": wrong / pairs,
        "regions": dict(regions),
        "kernels": dict(kernels),
        "injected_5_percent_in_work": dict(injected),
    }


if __name__ == "__main__":
    print(json.dumps(alarms(int(sys.argv[1]) if len(sys.argv) > 1 else 15), indent=1))
