"""Run one of Triton's tutorials with fewer sizes, and write what it measured and what its tuners chose.

    python benchmarks/lib/tutorial.py TUTORIAL OUT.json BENCHMARKS SIZES [VALUE ...]

Of its benchmarks the first BENCHMARKS run, each with the sizes VALUE or, without any, with SIZES of its own. With 0
benchmarks, the tutorial only checks itself. What it found is written after each size.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import sys
import time
from typing import Any


def main(tutorial: str, out: str, benchmarks: int, sizes: int, values: list[int]) -> None:
    os.environ["MPLBACKEND"] = "Agg"
    from triton import testing
    from triton.runtime.autotuner import Autotuner

    found: dict[str, Any] = {"results": {}, "began": time.time()}
    run_one, run_all = testing.Mark._run, testing.Mark.run

    def write() -> None:
        tuners = [item for item in gc.get_objects() if isinstance(item, Autotuner)]
        found["chosen"] = {str(key): str(config) for one in tuners for key, config in one.cache.items()}
        with open(f"{out}.part", "w") as file:
            json.dump(found, file, default=str)
        os.replace(f"{out}.part", out)

    def some_sizes(mark: Any, bench: Any, *rest: Any, **named: Any) -> Any:
        step = -(-len(bench.x_vals) // sizes)
        table = found["results"].setdefault(bench.plot_name, {})
        for value in values or list(bench.x_vals)[step - 1 :: step]:
            bench.x_vals = [value]
            frame = run_one(mark, bench, *rest, **named)
            for column, measured in frame.to_dict("list").items():
                table.setdefault(column, []).extend(measured)
            write()
        return frame

    def some_benchmarks(mark: Any, *rest: Any, **named: Any) -> Any:
        if not benchmarks:
            return None
        if isinstance(mark.benchmarks, list):
            mark.benchmarks = mark.benchmarks[:benchmarks]
        return run_all(mark, *rest, **named)

    testing.Mark._run, testing.Mark.run = some_sizes, some_benchmarks
    sys.argv = [tutorial]
    try:
        runpy.run_path(tutorial, run_name="__main__")
        found["ended"] = time.time()
    finally:
        write()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), [int(value) for value in sys.argv[5:]])
