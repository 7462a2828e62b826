"""Time each analysis over a large trace and print one JSON document.

PYTHONPATH=src python -m benchmarks.analyses [SPANS]
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from tests.support.synthetic_capture import make_capture
from warplens.analyse.critical_path import critical_path
from warplens.analyse.diff import diff
from warplens.analyse.duration_shapes import duration_shapes
from warplens.analyse.findings import findings
from warplens.analyse.imbalance import imbalance
from warplens.analyse.overlap import overlap
from warplens.analyse.ramp import ramp
from warplens.analyse.sm_clock import sm_clock
from warplens.analyse.waits import waits
from warplens.analyse.waves import waves
from warplens.decode import decode
from warplens.trace.model import Trace

ANALYSES: dict[str, Callable[..., Any]] = {
    "imbalance": imbalance,
    "waves": waves,
    "overlap": overlap,
    "waits": waits,
    "critical_path": critical_path,
    "ramp": ramp,
    "modes": duration_shapes,
    "clock": sm_clock,
}


def seconds_per_analysis(spans: int = 5_000_000) -> dict[str, float]:
    """Seconds of each analysis by itself, on a trace fresh from the decoder, and of all findings together; `diff` is
    of two such traces.

    The third region counts as a wait, so that matching waits to producers has work to do.
    """
    capture = make_capture(spans)
    out = {}
    for name, analyse in ANALYSES.items():
        options = {"waits": "^inner$"} if name not in ("waves", "modes", "clock") else {}
        out[name] = _timed(lambda trace, a=analyse, o=options: a(trace, **o), decode(capture))
    other = decode(make_capture(spans, seed=1))
    out["diff"] = _timed(lambda trace: diff(trace, other), decode(capture))
    out["findings"] = _timed(lambda trace: findings(trace, waits_like="^inner$"), decode(capture))
    return out


def _timed(work: Callable[[Trace], Any], trace: Trace) -> float:
    gc.collect()
    start = time.perf_counter()
    work(trace)
    return round(time.perf_counter() - start, 3)


if __name__ == "__main__":
    print(json.dumps(seconds_per_analysis(int(sys.argv[1]) if len(sys.argv) > 1 else 5_000_000), indent=1))
