"""Every front end on one machine: what compiled, what was woven, what ran, what was refused and why.

    PYTHONPATH=src python -m benchmarks.reach run --out DIR [CASE...]   on a GPU: records, bit identity and slowdown
    PYTHONPATH=src python -m benchmarks.reach compile --out DIR         without one: registers and spills of examples
    PYTHONPATH=src python -m benchmarks.reach hooks --out DIR           without one: ns that the hooks add to a launch
    PYTHONPATH=src python -m benchmarks.reach table DIR...              docs/results/reach.md from the JSON files

Each case runs in a process of its own and writes its row to DIR/reach.json; `--list` shows them. About 3 minutes.
"""

from __future__ import annotations

import argparse
import datetime
import faulthandler
import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.lib import (
    hook_cost,
    reach_jit,  # noqa: F401  its cases register themselves
)
from benchmarks.lib.reach_cases import CASES, LIMIT_S, SLOW_CASES, NotHere, run_case
from benchmarks.lib.reach_compile import compile_all
from benchmarks.lib.reach_table import write_table


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("run", "compile", "case"):
        one = verbs.add_parser(verb)
        one.add_argument("cases", nargs="*")
        one.add_argument("--out", type=Path, required=True)
        one.add_argument("--list", action="store_true")
    verbs.add_parser("hooks").add_argument("--out", type=Path, required=True)
    verbs.add_parser("table").add_argument("folders", nargs="+", type=Path)
    given = parser.parse_args(arguments)
    if given.verb == "table":
        print(write_table(given.folders))
        return 0
    if given.verb == "hooks":
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "hooks.json").write_text(json.dumps({**_machine(), **hook_cost.measure()}))
        return 0
    if given.list:
        print("\n".join(f"{name:20} {what}" for name, (what, _) in CASES.items()))
        return 0
    given.out = given.out.resolve()
    given.out.mkdir(parents=True, exist_ok=True)
    if given.verb == "case":
        return _one(given.cases[0], given.out)
    name = "compiled.json" if given.verb == "compile" else "reach.json"

    def write(rows: list[dict[str, Any]]) -> None:
        (given.out / name).write_text(json.dumps({**_machine(), "rows": rows}, indent=1))

    if given.verb == "compile":
        write(compile_all(given.out, given.cases))
    else:
        _all(given.cases or list(CASES), given.out, write)
    print(f"wrote {given.out / name}")
    return 0


def _one(name: str, out: Path) -> int:
    # A case that hangs says where, to the file that keeps what it writes to standard error.
    faulthandler.dump_traceback_later(SLOW_CASES.get(name, LIMIT_S) - 10)
    try:
        print(json.dumps(CASES[name][1](out)))
    except NotHere as reason:
        print(json.dumps({"not_here": str(reason)}))
    return 0


def _all(names: list[str], out: Path, write: Callable[[list[dict[str, Any]]], None]) -> None:
    """Run cases; what was measured is written after each."""
    rows: list[dict[str, Any]] = []
    for name in names:
        print(f"{name} ...", file=sys.stderr, flush=True)
        start = time.monotonic()
        rows.append({**run_case(name, out), "seconds": round(time.monotonic() - start, 1)})
        row = rows[-1]
        said = row.get("problem") or row.get("not_here") or f"identical {row['identical']}, complete {row['complete']}"
        slow = [k["slowdown"] for k in row.get("kernels", {}).values() if k.get("slowdown")]
        said += f", slowdown {', '.join(f'{one:.3f}' for one in slow)}" if slow else ""
        print(f"{name}: {said} ({row['seconds']} s)", file=sys.stderr, flush=True)
        write(rows)


def _machine() -> dict[str, Any]:
    from warplens.driver.gpu_names import gpu_names
    from warplens.version import __version__

    return {
        "date": datetime.date.today().isoformat(), "warplens": __version__, "python": platform.python_version(),
        "gpus": gpu_names() or [],
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
