"""Where the cost of woven marks comes from: what was woven into a loop is taken out of its machine code, kind by kind.

    PYTHONPATH=src python -m benchmarks.ablation [--static] [--json FILE]

Each kernel is woven, assembled by the toolkit's ptxas and changed in place: all else keeps its registers and schedule.

    off       the marks are comments
    clocks    clock reads in their place, each used once, and nothing else: the floor of whatever reads the clock there
    woven     as it is
    no wait   nothing waits for the store to have read its registers. A race by construction: the records are wrong
    no store  NOPs instead of the record stores
    nothing   NOPs instead of all that was woven into the loop: what is left is what marks did to ptxas's schedule

A NOP takes the issue slot of what it replaces, stalls for as long and waits for the same. Printed of the first three:
registers, the instructions of its hot loop, and the cycles for which they stall a warp (inner loops counted
once). On the GPU also cycles per mark of loops of nothing but marks (ptxas leaves no loop without them; their floor is
in cuda_overhead.py), and the slowdown of GEMMs against `off`, with its quartiles and whether the product has the same
bits. `--static` needs no GPU. Needs ptxas, and nvdisasm, which tells the line of PTX that an instruction comes from.
"""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.cuda_overhead import GEMMS, SHAPES, WOVEN, Gemm, in_turn, per_mark, tracks_of
from benchmarks.lib.gpu_programs import Loaded, Program, arch, context, marked_ptx, median
from benchmarks.lib.sass import Instruction, assemble, hot_loop
from warplens.weave.weaver import Woven, weave
from warplens.weave.weaving import ParamBuffer

ARCH, SIZE, REPEATS = "sm_90a", 4096, 80
MARKS = {"one pair of marks": 1, "four pairs of marks": 4}


class Variants(NamedTuple):
    """A kernel's cubins, and what can be said of its code."""

    woven: Woven
    cubins: dict[str, bytes]
    code: dict[str, Any]


def variants(what: Gemm | int) -> Variants:
    """Of a GEMM, or of a loop of so many pairs of marks: side by side these would share a clock read, and must not."""
    if isinstance(what, Gemm):
        how, plain = WOVEN, marked_ptx(what.file, ARCH, *what.definitions)
    else:
        how, plain = replace(WOVEN, fuse=False), marked_ptx("micro.cu", ARCH, "-DDESIGN=1", f"-DPAIRS={what}")
    woven = weave(plain, buffer=ParamBuffer(-1), how=how)
    off, on = assemble(plain, ARCH), assemble(woven.text, ARCH)
    loop = hot_loop(on.code)
    there, lines = {line.strip() for line in plain.splitlines()}, woven.text.splitlines()
    added = [one for one in loop if lines[one.line - 1].strip() not in there]
    stores = [one for one in added if "STG" in one.text]
    if not stores:
        raise SystemExit("no instruction comes from a woven store: is nvdisasm as new as ptxas?")
    waits = [(one, store.reads) for store in stores for one in waits_for(store, loop)]
    clocks = assemble(clocks_alone(plain), ARCH)
    cubins = {"off": off.cubin, "clocks": clocks.cubin, "woven": on.cubin} | {
        "no wait": on.changed([one.unwaiting(barrier) for one, barrier in waits]),
        "no store": on.changed([one.taken_out() for one in stores]),
        "nothing": on.changed([one.taken_out() for one in added]),
    }
    code = {"off": off.static(), "clocks": clocks.static(), "woven": on.static()}
    code |= {"woven in": [one.text for one in added]}
    return Variants(woven, cubins, code | {"waits for the store": [one.text for one, _ in waits]})


def clocks_alone(plain: str) -> str:
    """A clock read instead of each mark, one for marks side by side, as the weaver reads it."""
    marks = r"// @warplens [BEI] #\d+\n(?:\s*// (?:end|begin) inline asm\n|\s*// @warplens [BEI] #\d+\n)*"
    read = "mov.u32 %floor_c, %clock; xor.b32 %floor_s, %floor_s, %floor_c;\n"
    declared = "{\n\t.reg .b32 %floor_c, %floor_s;\n\t.reg .pred %floor_p;\n\tmov.b32 %floor_s, 0;\n"
    text, reads = re.subn(marks, read, plain)
    if not reads:
        raise SystemExit("no mark in the PTX")
    text = re.sub(r"(?m)^\{\n", lambda _: declared, text, count=1)
    return re.sub(r"(?m)^\s*ret;", "\tsetp.eq.u32 %floor_p, %floor_s, 0x9e3779b9;\n\t@%floor_p trap;\n\tret;", text)


def waits_for(store: Instruction, loop: list[Instruction]) -> list[Instruction]:
    """What waits in the loop until the store has read its registers. Nothing, where something else has set the same
    barrier before: that must be waited for still."""
    here, barrier = loop.index(store), store.reads
    users = [one for one in loop[here + 1 :] + loop[:here] if one.waits(barrier) or one.sets(barrier)]
    if not users or users[-1].sets(barrier):
        return []
    last = next((number for number, one in enumerate(users) if one.sets(barrier)), len(users))
    return [one for one in users[: last + 1] if one.waits(barrier)]


def time_marks(which: Variants, pairs: int) -> dict[str, Any]:
    timed = {name: cubin for name, cubin in which.cubins.items() if name not in ("off", "clocks")}
    programs = {name: Loaded(cubin, "micro", which.woven) for name, cubin in timed.items()}
    rows = {name: per_mark(one, pairs, 7, counting=name == "woven") for name, one in programs.items()}
    return {name: {shape: row[shape] for shape in SHAPES} for name, row in rows.items()}


def time_gemm(which: Variants, kind: Gemm) -> dict[str, Any]:
    programs: dict[str, Program] = {name: Loaded(cubin, "gemm", which.woven) for name, cubin in which.cubins.items()}
    tracks = tracks_of(kind, SIZE, programs["woven"])
    times, products = in_turn(kind, SIZE, programs, dict.fromkeys(programs, tracks.pointer), REPEATS)
    ratios = {name: np.divide(some, times["off"]) for name, some in times.items()}
    return {
        name: {
            "us": round(median(times[name]), 1),
            "slowdown": round(float(np.median(some)), 4),
            "quartiles": [round(float(q), 4) for q in np.quantile(some, (0.25, 0.75))],
            "same bits": np.array_equal(products[name].view(np.uint32), products["off"].view(np.uint32)),
        }
        for name, some in ratios.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--static", action="store_true", help="what needs no GPU")
    parser.add_argument("--json", type=Path, help="write the result here too")
    options = parser.parse_args()
    if not options.static and arch() != ARCH:
        raise SystemExit(f"the machine code is for {ARCH} and this GPU is {arch()}: only --static runs here")
    result: dict[str, Any] = {} if options.static else {"context": context("python -m benchmarks.ablation")}
    for name, what in (MARKS | GEMMS).items():
        which = variants(what)
        times = {} if options.static else time_gemm(which, what) if isinstance(what, Gemm) else time_marks(which, what)
        result[name] = {"code": which.code, "times": times}
        said = [f"    {key}: {json.dumps(value)}" for part in result[name].values() for key, value in part.items()]
        print(name, *said, sep="\n", flush=True)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
