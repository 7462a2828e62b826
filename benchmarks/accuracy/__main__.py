"""Measure how right durations and placements are on this GPU, or write the page about it.

    PYTHONPATH=src python -m benchmarks.accuracy --out FOLDER [--minute] [--parts NAME ...] [--runs NAME ...]
    PYTHONPATH=src python -m benchmarks.accuracy --page FOLDER [--to docs/results/accuracy.md]

The first needs a GPU, torch and triton, and takes about three minutes; a kernel of a minute is extra. It writes
FOLDER/accuracy.json after each part, and after each of the long kernels. The second runs anywhere.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PARTS = ("languages", "long", "placement", "chains")


@dataclass(frozen=True)
class Choice:
    """What to measure: of the lengths which languages, of the long kernels which; None: all."""

    parts: Sequence[str] = PARTS
    languages: Sequence[str] | None = None
    runs: Sequence[str] | None = None
    minute: bool = False
    lock: bool = False


def parts(choice: Choice, result: dict[str, Any], say: Callable[[str], None]) -> dict[str, Callable[[], Any]]:
    """What to measure, by name."""
    from benchmarks.accuracy import every_language, long_kernels, one_warp
    from benchmarks.placement import measure

    runs = long_kernels.RUNS | (long_kernels.MINUTE if choice.minute else {})
    known = every_language.LANGUAGES
    languages, runs = _chosen(known, choice.languages), _chosen(runs, choice.runs)
    long: dict[str, Any] = {}

    def long_run() -> dict[str, Any]:
        result["long"] = long
        return long_kernels.measure(runs, say, long, choice.lock)

    return {
        "languages": lambda: every_language.measure(languages, say),
        "long": long_run,
        "placement": lambda: {"timer": measure("timer", 25, 3)},
        "chains": lambda: {form: one_warp.regions(one_warp.Chase(), form) for form in one_warp.FORMS},
    }


def _chosen(known: Mapping[str, Any], names: Sequence[str] | None) -> dict[str, Any]:
    """Return those of these names, all where none are given."""
    unknown = sorted(set(names or ()) - set(known))
    if unknown:
        raise SystemExit(f"unknown: {', '.join(unknown)}; there are: {', '.join(known)}")
    return {name: one for name, one in known.items() if names is None or name in names}


def run(out: Path, choice: Choice, raw: Path | None) -> int:
    import warplens.cuda as wlcu
    from benchmarks.accuracy import one_warp
    from benchmarks.lib.gpu_programs import context

    out.mkdir(parents=True, exist_ok=True)
    if raw:
        raw.mkdir(parents=True, exist_ok=True)
        one_warp.Run.folder = raw
    begin = time.monotonic()
    result: dict[str, Any] = {"context": context("python -m benchmarks.accuracy"), "failed": {}}

    def say(text: str) -> None:
        print(f"{time.monotonic() - begin:6.1f} s  {text}", flush=True)
        (out / "accuracy.json").write_text(json.dumps(result, indent=1) + "\n")

    wlcu.calibrate()
    for name, part in parts(choice, result, say).items():
        if name not in choice.parts:
            continue
        try:
            result[name] = part()
        except Exception as error:
            traceback.print_exc()
            result["failed"][name] = f"{type(error).__name__}: {error}"[:500]
        say(f"{name} done")
    return 1 if result["failed"] else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="Folder for accuracy.json.")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="What to measure [default: all].")
    parser.add_argument(
        "--languages", nargs="+", metavar="NAME", help="Of that part, which, such as 'CuTe woven' [default: all]."
    )
    parser.add_argument(
        "--runs", nargs="+", metavar="NAME", help="Of the long kernels, which, such as 'clock changes' [default: all]."
    )
    parser.add_argument("--minute", action="store_true", help="Also run a kernel of a minute.")
    parser.add_argument(
        "--lock-clocks", action="store_true", help="Change the clock by nvidia-smi, a setting of the GPU, not by load."
    )
    parser.add_argument("--raw", type=Path, metavar="FOLDER", help="Save the traces of the chains there.")
    parser.add_argument("--page", type=Path, metavar="FOLDER", help="Write the page from FOLDER/accuracy.json.")
    parser.add_argument("--to", type=Path, help="File for the page [default: standard output].")
    options = parser.parse_args()
    if options.page:
        from benchmarks.accuracy.page import page

        text = page(json.loads((options.page / "accuracy.json").read_text()))
        if options.to:
            options.to.write_text(text)
        else:
            print(text)
        return 0
    if options.out is None:
        parser.error("give --out FOLDER, or --page FOLDER")
    choice = Choice(options.parts, options.languages, options.runs, options.minute, options.lock_clocks)
    return run(options.out, choice, options.raw)


if __name__ == "__main__":
    sys.exit(main())
