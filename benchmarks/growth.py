"""How time grows with the size of a trace: seconds at three sizes, and the exponent of the growth between them.

PYTHONPATH=src python -m benchmarks.growth
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from tests.support.builders import Span, make_trace
from tests.support.small_launches import small_launches
from warplens.analyse.region_tree import region_tree
from warplens.decode import decode
from warplens.trace.model import Trace

_REPEATS = 3


def growth(scale: float = 1.0) -> dict[str, dict[str, Any]]:
    """For each kind of work and size: processor seconds (the fastest of three) at three sizes, and the exponent."""
    launches = [max(int(size * scale), 8) for size in (500, 1000, 2000)]
    levels = [max(int(size * scale), 8) for size in (250, 500, 1000)]
    return {
        "decode of launches": _measured(launches, small_launches, decode),
        "tree of levels": _measured(levels, nested_levels, region_tree),
    }


def nested_levels(count: int) -> Trace:
    """A trace of 10 warps whose regions are nested this deep."""
    spans = [(at, 4 * count - 2 * at, warp) for warp in range(10) for at in range(count)]
    return make_trace([Span(f"level_{at % 7}", at, lasts, warp=warp, depth=at) for at, lasts, warp in spans])


def _measured(sizes: Sequence[int], make: Callable[[int], Any], work: Callable[[Any], Any]) -> dict[str, Any]:
    seconds = []
    for size in sizes:
        tries = []
        given = make(size)
        for _ in range(_REPEATS):
            begin = time.process_time()
            work(given)
            tries.append(time.process_time() - begin)
        seconds.append(min(tries))
    exponent = math.log(seconds[-1] / max(seconds[0], 1e-9)) / math.log(sizes[-1] / sizes[0])
    return {"sizes": list(sizes), "seconds": seconds, "exponent": exponent}


if __name__ == "__main__":
    print(json.dumps(growth(), indent=1))
