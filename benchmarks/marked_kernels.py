"""How many kernels of a public library automatic marks reach, and what they add to compiling. Needs no GPU.

    PYTHONPATH=src python -m benchmarks.marked_kernels liger|fla|FILE.py [--auto all] [--warm] [--every N] [--out F]

Calls the library with tensors that claim to be on an H200, collects what it asks Triton to compile, and compiles each
request plain and as a profile does, in a process of its own. Needs Triton, a CPU build of torch and the
library (`pip install --no-deps liger-kernel`, `pip install --no-deps flash-linear-attention fla-core einops`). A file
calls another library: it defines `run(hold)`, and passes each call to `hold.run(name, call)`. Prints one JSON document;
`--out` keeps a JSON row per kernel. Times are processor time, ptxas included, so that other work on the machine changes
them little; wall-clock times are in the rows.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from benchmarks.lib.compile_requests import Request, Requests

LIMIT_S = 600
RUNGS = {
    "only the lifetime": "lives", "outermost loops are marked": "loops", "only its body is": "body",
    "are not marked": "fewer classes",
}  # fmt: skip


def measure(request: Request, auto: str | bool, warm: bool = False) -> dict[str, Any]:
    """Compile one kernel plain (twice, the first warms up the process) and with automatic marks. With `warm`, warplens
    has marked and woven something before, as in a process that has recorded another kernel."""
    for _ in range(2):
        unmarked, plain = _compiled(request)
    if warm:
        _warm_up(unmarked)
    kernel, marked = _compiled(request, auto, unmarked)
    woven = getattr(kernel.metadata, "warplens", None)
    notes = (getattr(kernel.metadata, "warplens_remarks", None) or {"notes": []})["notes"]
    rung = next((name for words, name in RUNGS.items() if any(words in note for note in notes)), "all")
    return {
        "kernel": request.kernel, "key": request.key, "plain": plain, "marked": marked, "notes": notes,
        "rung": rung if woven else "unmarked", "regions": len(woven["regions"]) if woven else 0,
    }  # fmt: skip


def _warm_up(plain: Any) -> None:
    """Import and run once what marks and weaves, on the plain kernel's code."""
    from warplens.auto.ptx import mark_ptx
    from warplens.auto.rules import Auto
    from warplens.auto.ttgir import mark_ttgir
    from warplens.weave.weaver import weave
    from warplens.weave.weaving import ParamBuffer

    mark_ttgir(plain.asm["ttgir"], Auto.of("stores"))
    weave(mark_ptx(plain.asm["ptx"], Auto(coarse="body")).text, buffer=ParamBuffer(-1))


def _compiled(request: Request, auto: str | bool = False, plain: Any = None) -> tuple[Any, dict[str, float]]:
    """The kernel, or the woven twin of `plain`, and what compiling took: seconds of the processor, seconds that passed,
    runs of ptxas."""
    import triton

    from warplens.frontends.triton.frontend import recipe
    from warplens.frontends.triton.weaving_compiler import WeavingCompiler
    from warplens.options import Options

    with ExitStack() as stack:
        compiler = WeavingCompiler(recipe(Options(auto=auto)))
        stack.callback(compiler.install())
        ptxas = stack.enter_context(mock.patch.object(subprocess, "run", side_effect=subprocess.run))
        begin, used = time.perf_counter(), _processor_s()
        if plain is None:
            kernel = triton.compile(request.source, target=request.target, options=request.options)
        else:
            kernel = compiler.twin(plain)
        took = {"cpu_s": _processor_s() - used, "wall_s": time.perf_counter() - begin, "ptxas": ptxas.call_count}
        return kernel, took


def _processor_s() -> float:
    """Seconds of the processor that this process and its finished children have used."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _in_child(request: Request, auto: str | bool, warm: bool = False) -> dict[str, Any]:
    """Measure in a forked process: a crash or a hang costs this kernel alone."""
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)

    def work() -> None:
        with tempfile.TemporaryDirectory() as folder:
            os.environ |= {"TRITON_CACHE_DIR": folder, "TRITON_ALWAYS_COMPILE": "1"}
            try:
                send.send(measure(request, auto, warm))
            except Exception as error:
                send.send({"kernel": request.kernel, "key": request.key, "error": f"{type(error).__name__}: {error}"})

    child = context.Process(target=work)
    child.start()
    send.close()
    row = {"kernel": request.kernel, "key": request.key, "error": "the process ended or took too long"}
    try:
        if receive.poll(LIMIT_S):
            row = receive.recv()
    except EOFError:
        pass
    child.kill()
    child.join()
    return row


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Count the rungs, and relate the compile times."""
    good = [row for row in rows if "error" not in row]
    cost = [(row["marked"]["cpu_s"], row["plain"]["cpu_s"]) for row in good]
    ratios = sorted(marked / plain for marked, plain in cost)
    runs = [row["marked"]["ptxas"] for row in good]
    return {
        "kernels": len(rows),
        "errors": [row["kernel"] for row in rows if "error" in row],
        "rungs": dict(Counter(row["rung"] for row in good)),
        "with_regions": sum(row["regions"] > 0 for row in good),
        "compile_ratio": {
            "median": round(statistics.median(ratios), 3),
            "p90": round(ratios[int(0.9 * len(ratios))], 3),
            "most": round(ratios[-1], 3),
            "sum": round(sum(one[0] for one in cost) / sum(one[1] for one in cost), 3),
            "ptxas": [round(statistics.fmean(runs), 2), max(runs)],
        }
        if ratios
        else {},
    }


def _calls_of(path: str) -> Any:
    """The module of a file that calls a library."""
    found = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", help="liger, fla, or a file that calls another library")
    parser.add_argument("--auto", default=True, help="classes to mark [default: those of a bare --auto]")
    parser.add_argument("--warm", action="store_true", help="measure in processes that have marked a kernel before")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="measure every N-th kernel [default: 1]")
    parser.add_argument("--out", type=Path, help="write a JSON row per kernel to this file")
    given = parser.parse_args()
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")

    from benchmarks.lib import fake_cuda

    fake_cuda.install()
    from benchmarks.lib.library_calls import collect

    requests = Requests()
    requests.install()
    if given.library.endswith(".py"):
        _calls_of(given.library).run(SimpleNamespace(run=requests.collect))
    else:
        collect(given.library, requests)
    rows = []
    for request in list(requests.found.values())[:: given.every]:
        rows.append(_in_child(request, given.auto, given.warm))
        print(f"{len(rows)}: {json.dumps(rows[-1])[:200]}", file=sys.stderr)
        if given.out is not None:
            given.out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    print(json.dumps({"library": given.library, **summary(rows), "calls_that_failed": requests.failed}, indent=1))


if __name__ == "__main__":
    main()
