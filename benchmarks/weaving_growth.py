"""How the time of parsing, marking and weaving grows with the size of a kernel; a part of `make bench`.

`python benchmarks/weaving_growth.py` prints it alone: for each step and shape of code the seconds at each size, and the
exponent of the growth between the smallest and the largest.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.support import large_ptx
from warplens.auto.ptx import mark_ptx
from warplens.auto.rules import Auto
from warplens.auto.ttgir import mark_ttgir
from warplens.ptx.tree import parse
from warplens.weave.weaver import weave
from warplens.weave.weaving import POLICIES, Weaving

SIZES = (1000, 3000, 10_000)
"""Pairs of begin and end marks, or units of code for the rules."""
_ALL = Auto.of("all", ["range=big.cu:5-100000", "other=big.py:5-100000"], most=10**9)
_MARKED = ("straight", "many_blocks", "early_returns", "loops", "functions", "kernels", "values")

Step = Callable[[str], object]


def cases(every: bool) -> dict[str, tuple[str, Step]]:
    """By name, the shape of the code and the step; only one shape per step unless `every` is true."""
    found: dict[str, tuple[str, Step]] = {}
    for number, policy in enumerate(POLICIES):
        shapes = _MARKED if every else (_MARKED[number % len(_MARKED)],)
        for shape in shapes:
            found[f"weave {policy} {shape}"] = (shape, _weaver(Weaving(store=policy)))
    for shape in _MARKED if every else ("straight",):
        found[f"parse {shape}"] = (shape, parse)
    for shape in ("straight", "many_blocks") if every else ("straight",):
        found[f"weave spread {shape}"] = (shape, _weaver(Weaving(store="spread")))
    found["weave auto barriers"] = ("barriers", _weaver(Weaving()))
    for shape in ("one_register", "recomputed"):
        found[f"weave lean {shape}"] = (shape, _weaver(Weaving(lean=True)))
    for shape in ("unmarked", "unmarked_straight"):
        found[f"mark_ptx {shape}"] = (shape, lambda text: mark_ptx(text, _ALL))
    found["mark_ttgir"] = ("ttgir", lambda text: mark_ttgir(text, _ALL))
    return found


def _weaver(how: Weaving) -> Step:
    return lambda text: weave(text, how=how)


def growth(sizes: Sequence[int] = SIZES, every: bool = False, repeats: int = 2) -> dict[str, dict[str, Any]]:
    """Seconds of processor time at each size, and the exponent between the first and the last."""
    result: dict[str, dict[str, Any]] = {}
    for name, (shape, step) in cases(every).items():
        seconds = [_fastest(step, getattr(large_ptx, shape)(size), repeats) for size in sizes]
        exponent = math.log(seconds[-1] / seconds[0]) / math.log(sizes[-1] / sizes[0])
        result[name] = {"seconds": dict(zip(map(str, sizes), seconds, strict=True)), "exponent": exponent}
    return result


def _fastest(step: Step, text: str, repeats: int) -> float:
    times = []
    for _ in range(repeats):
        gc.collect()
        began = time.process_time()
        step(text)
        times.append(time.process_time() - began)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="comma-separated sizes")
    parser.add_argument("--every", action="store_true", help="measure every step on every shape of code")
    options = parser.parse_args()
    print(json.dumps(growth([int(size) for size in options.sizes.split(",")], options.every), indent=1))


if __name__ == "__main__":
    main()
