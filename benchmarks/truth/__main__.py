"""Measure and record the truth set, or score the findings on what was recorded.

    PYTHONPATH=src python -m benchmarks.truth --out FOLDER [--set 1|2|...|10] [--only NAME ...] [--ncu] [--tar FILE]
    PYTHONPATH=src python -m benchmarks.truth --score FOLDER [FOLDER ...] [--page docs/results/answers.md]
    PYTHONPATH=src python -m benchmarks.truth --score FOLDER FOLDER ... --leave-one-out

The first needs a GPU, torch, triton and CuPy; it takes about three minutes. It writes the traces of both versions with
hand-written marks (FOLDER/NAME.broken.warplens) and with automatic ones (NAME.broken.auto.warplens), the raw bytes of
all of them to FOLDER/raw, and the times of the plain kernels to truth.json. The second runs anywhere.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from benchmarks.truth.sets import EVERY, SETS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="Folder for the traces and truth.json.")
    parser.add_argument(
        "--score", type=Path, nargs="+", metavar="FOLDER", help="Score the findings on the traces of these folders."
    )
    parser.add_argument("--page", type=Path, help="With --score: also write the table to this Markdown file.")
    parser.add_argument(
        "--leave-one-out", action="store_true", help="With --score: tune the intervals on all sets but one, for each."
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="Run only these pairs [default: all].")
    parser.add_argument("--set", type=int, choices=range(1, len(SETS) + 1), default=1, help="Which set [default: 1].")
    parser.add_argument("--ncu", action="store_true", help="Also run Nsight Compute on the pairs that ask for it.")
    parser.add_argument("--tar", type=Path, help="Also write the traces and pages to FILE.part-00, ... of 15 MB each.")
    parser.add_argument("--seconds", type=float, default=230, help="Stop after this time [default: 230].")
    parser.add_argument("--at-once", type=int, default=min(os.cpu_count() or 1, 12), help="Processes at a time.")
    parser.add_argument("--pair", help=argparse.SUPPRESS)
    parser.add_argument("--launch", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    known = {pair.name: pair for pair in EVERY}
    unknown = {*(options.only or ()), *filter(None, [options.pair])} - set(known)
    if unknown:
        parser.error(f"no pair {unknown.pop()!r}; there are {', '.join(known)}")
    if options.score and options.leave_one_out:
        from benchmarks.truth.leave_one_out import leave_one_out

        print(*leave_one_out(options.score), sep="\n")
        return 0
    if options.score:
        from benchmarks.truth.score import main as score

        return score(options.score, options.page)
    if options.launch:
        from benchmarks.truth.one_pair import launch_once

        launch_once(known[options.pair])
        return 0
    if options.out is None:
        parser.error("give --out FOLDER, or --score FOLDER")
    out = options.out.resolve()
    if options.pair:
        from benchmarks.truth.one_pair import main as one

        return one(known[options.pair], out)
    from benchmarks.truth.run_all import run_all

    chosen = [known[name] for name in options.only] if options.only else [*SETS.values()][options.set - 1]
    failed = run_all(chosen, out, at_once=options.at_once, seconds=options.seconds, ncu=options.ncu)
    if options.tar:
        from benchmarks.truth.pieces import write_pieces

        write_pieces(out, options.tar)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
