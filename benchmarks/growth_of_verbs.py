"""How the time of each verb grows with each dimension of a trace: processor seconds at three sizes, and the exponent.

    PYTHONPATH=src python -m benchmarks.growth_of_verbs [--shape WORD] [--verb WORD] [--scale X]

Verbs run in this process, on files, as the command line does. Pairs whose exponent is above 1.1 are listed at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import json
import math
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.lib.grown_shapes import CAPTURES, RANKS, ranks
from warplens.commands import main as warplens
from warplens.decode import decode

_BAR = 1.1
_TRIES = 3
_ENOUGH_S = 1.0
_SHORT_S = 0.1
"""Work that takes less at the largest size is not judged: what it takes at any size is most of it."""
VERBS: dict[str, list[str]] = {
    "info": ["info", "{trace}", "--json"],
    "stats": ["stats", "{trace}", "--json"],
    "stats --tree": ["stats", "{trace}", "--tree"],
    "stats --by sm": ["stats", "{trace}", "--by", "sm"],
    "stats --show waits": ["stats", "{trace}", "--show", "waits", "--show", "path", "--show", "roles"],
    "findings": ["findings", "{trace}"],
    "diff": ["diff", "{trace}", "{trace}"],
    "view --terminal": ["view", "{trace}", "--terminal", "--width", "100"],
    "report": ["report", "{trace}", "-o", "{folder}/out.html", "--force"],
    **{
        f"export {suffix}": ["export", "{trace}", "{folder}/out" + suffix, "--force"]
        for suffix in (".pftrace", ".json", ".json.gz", ".hatchet", ".csv", ".parquet", ".png", ".svg")
    },
}


def seconds_of(verb: str, trace: Path, folder: Path) -> float:
    """The fastest of some runs, in processor seconds."""
    arguments = [part.format(trace=trace, folder=folder) for part in VERBS[verb]]
    tries: list[float] = []
    while len(tries) < _TRIES and sum(tries) < _ENOUGH_S:
        gc.collect()
        said = io.StringIO()
        begin = time.process_time()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = warplens(arguments)
        tries.append(time.process_time() - begin)
        if code not in (0, 3):
            raise SystemExit(f"`warplens {' '.join(arguments)}` exited with {code}: {said.getvalue()[-400:]}")
    return min(tries)


def growth(shape: str = "", verb: str = "", scale: float = 1.0) -> dict[str, dict[str, object]]:
    """Of each verb, by each dimension: the seconds at each size and the exponent between the first and the last."""
    sizes_of = {name: sizes for name, (sizes, _) in CAPTURES.items()} | {"ranks": RANKS}
    found: dict[str, dict[str, object]] = {}
    for name, all_sizes in sizes_of.items():
        if shape not in name:
            continue
        sizes = [max(int(size * scale), 8) for size in all_sizes]
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            traces = [make_trace_file(name, size, folder / f"{size}.warplens") for size in sizes]
            for one in VERBS:
                if verb not in one:
                    continue
                seconds_of(one, traces[0], folder)  # what is imported once
                took = [seconds_of(one, trace, folder) for trace in traces]
                exponent = math.log(took[-1] / took[0]) / math.log(sizes[-1] / sizes[0])
                found[f"{one}, by {name}"] = {"sizes": sizes, "seconds": took, "exponent": exponent}
                print(f"{one}, by {name}: {took} {exponent:.2f}", file=sys.stderr, flush=True)
    return found


def make_trace_file(name: str, size: int, path: Path) -> Path:
    """A file in which one dimension has this size."""
    if name == "ranks":
        return ranks(size, path)
    return decode(CAPTURES[name][1](size)).save(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", default="", help="measure only dimensions with this word in their name")
    parser.add_argument("--verb", default="", help="measure only verbs with this word in their name")
    parser.add_argument("--scale", type=float, default=1.0, help="multiply all sizes")
    given = parser.parse_args()
    measured = growth(given.shape, given.verb, given.scale)
    steep = [
        name
        for name, one in measured.items()
        if one["exponent"] > _BAR and one["seconds"][-1] > _SHORT_S  # type: ignore[operator,index]
    ]
    print(json.dumps({"growth": measured, "steep": steep}, indent=1))
