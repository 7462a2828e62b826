"""What a mark costs on this GPU: the header, the ways it could have been written, and the field's designs, in one run.

    PYTHONPATH=src python -m benchmarks.cuda_overhead [--quick] [--json FILE]

Four tables: cycles per mark with nothing else in the loop (one begin/end pair per iteration, which the bars are judged
on, and four unrolled; the loop is in the floor and in every design), what binds them when all warps of an SM do nothing
but mark, cycles that a region adds to a chain of fmas, and the slowdown of tiled GEMMs with four regions per k-step.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.lib.gpu_programs import Memory, Program, WovenBuffer, buffer, context, median, timed
from warplens.weave.weaving import LaunchBuffer, Weaving

WOVEN = Weaving(store="spread", aligned=True)
"""How warplens.cuda weaves kernels whose warps are whole."""
NVCC = Weaving(store="spread")
"""How `warplens nvcc` weaves; whether warps are whole is checked when the kernel runs."""
SHAPES = {"1x32": (1, 32), "132x128": (132, 128), "528x256": (528, 256)}
RIVALS = {"atomic slot": 2, "counter in memory": 3, "fenced store": 4, "shared ring": 5}
STORES = {
    "": "st.global.cs.v2.u32",
    " .wb": "st.global.v2.u32",
    " .cg": "st.global.cg.v2.u32",
    " .wt": "st.global.wt.v2.u32",
}


def designs() -> dict[str, tuple[str, ...]]:
    table: dict[str, tuple[str, ...]] = {
        "floor: clock read": ("-DDESIGN=0",),
        "empty loop": ("-DDESIGN=7",),
        "warplens": ("-DDESIGN=1",),
        "warplens ring": ("-DDESIGN=1", "-DWARPLENS_RING=1"),
    }
    table |= {name: (f"-DDESIGN={number}",) for name, number in RIVALS.items()}
    for how in (*range(14), 15, 16):
        table[f"variant {how}"] = ("-DDESIGN=6", f"-DHOW={how}")
    for name, store in STORES.items():
        if name:
            table[f"variant 4{name}"] = ("-DDESIGN=6", "-DHOW=4", f'-DSTORE="{store}"')
    return table


SATURATED = {
    "132x256": (132, 256), "264x256": (264, 256), "33x1024": (33, 1024), "66x1024": (66, 1024), "132x1024": (132, 1024),
}  # fmt: skip
WIDTHS = {"4-byte store": 18, "8-byte store": 4, "8-byte store, same slot": 14, "16-byte store per pair": 11}


def binding(repeats: int) -> dict[str, Any]:
    """Cycles per mark by warps per SM, SMs and store width: the same with 33 and 66 SMs is a limit of the SM itself."""
    chosen = {"floor: clock read": ("-DDESIGN=0",), "warplens": ("-DDESIGN=1",)}
    chosen |= {name: ("-DDESIGN=6", f"-DHOW={how}") for name, how in WIDTHS.items()}
    result: dict[str, Any] = {name: micro(definitions, 1, repeats, SATURATED) for name, definitions in chosen.items()}
    for records in (128, 512, 2048):
        row = micro(("-DDESIGN=1",), 1, repeats, {"528x256": (528, 256)}, records)
        result[f"warplens, 528x256, {records} records per warp"] = row["528x256"]
    return result


def micro(
    definitions: tuple[str, ...],
    pairs: int,
    repeats: int,
    shapes: Mapping[str, tuple[int, int]] = SHAPES,
    records: int = 2048,
    how: Weaving | None = None,
) -> dict[str, Any]:
    """Cycles per mark for each shape: the median over warps, and the mean; and the kernel's registers. With `how`, its
    marks are woven as `warplens nvcc` does it."""
    program = Program("micro.cu", "micro", *definitions, f"-DPAIRS={pairs}", how=how, buffer=LaunchBuffer())
    result: dict[str, Any] = {"registers": program.registers, "local_bytes": program.local_bytes}
    for label, (grid, block) in shapes.items():
        warps = grid * block // 32
        iterations = records // 2 // pairs
        marks = 2 * pairs * iterations
        cycles = Memory(16 * warps)
        rival = definitions[0] in ("-DDESIGN=2", "-DDESIGN=3")
        memory = in_one_window((64 if rival else 8) * warps * (marks + 8) + (1 << 20))
        limit = 1 << 31 if definitions[0] == "-DDESIGN=2" else marks
        lent = buffer("micro", grid, block, marks)
        samples, means = [], []
        for repeat in range(repeats + 3):
            if rival:
                memory.clear()
            program.launch(
                grid, block, np.uint64(cycles.address), np.uint64(memory.address), np.uint32(limit),
                np.int32(iterations), np.uint64(lent.address), shared=block // 32 * 256 * 8,
            )  # fmt: skip
            if repeat >= 3:
                by_warp = cycles.read(np.uint64)[:warps] / marks
                samples.append(float(np.median(by_warp)))
                means.append(float(by_warp.mean()))
        result[label] = round(median(samples), 2)
        result[f"{label} mean"] = round(median(means), 2)
        if definitions[0] == "-DDESIGN=1":
            launch = lent.collect()
            written = launch.raw.reshape(-1, launch.stride)[:, 16:20].copy().view(np.uint32)
            assert (written == marks).all(), f"{label}: a warp wrote {written.min()} to {written.max()} of {marks}"
        else:
            lent.free()
    return result


def micro_woven(how: Weaving, pairs: int, repeats: int, records: int = 2048) -> dict[str, Any]:
    """The same loop with its marks woven into PTX. Marks side by side would share a clock read: they must not here."""
    program = Program("micro.cu", "micro", "-DDESIGN=1", f"-DPAIRS={pairs}", how=replace(how, fuse=False))
    return per_mark(program, pairs, repeats, records)


def per_mark(program: Program, pairs: int, repeats: int, records: int = 2048, counting: bool = True) -> dict[str, Any]:
    """Cycles per mark of that loop for each shape; `counting` says that its records are counted, and checks that."""
    result: dict[str, Any] = {"registers": program.registers, "local_bytes": program.local_bytes}
    for label, (grid, block) in SHAPES.items():
        warps = grid * block // 32
        iterations = records // 2 // pairs
        cycles, lent = Memory(16 * warps), WovenBuffer(program, warps, records + 8)
        samples = []
        for repeat in range(repeats + 3):
            program.launch(
                grid, block, np.uint64(cycles.address), np.uint64(0), np.uint32(0), np.int32(iterations),
                np.uint64(lent.pointer),
            )  # fmt: skip
            if repeat >= 3:
                samples.append(float(np.median(cycles.read(np.uint64)[:warps] / (2 * pairs * iterations))))
        result[label] = round(median(samples), 2)
        written = lent.written()
        fine = not counting or (written == 2 * pairs * iterations).all()
        assert fine, f"{label}: {written.min()} to {written.max()} records"
    return result


def in_one_window(size: int) -> Memory:
    """Memory that crosses no 4 GiB boundary, which the variants with a 32-bit write address need."""
    tried = [Memory(size)]
    while tried[-1].address >> 32 != tried[-1].address + size >> 32:
        tried.append(Memory(size))
    return tried[-1]


def chain(length: int, repeats: int) -> dict[str, Any]:
    """Cycles one region adds to `length` dependent fmas, per mark."""
    variants = {"off": "-DWARPLENS=0", "on": "-DWARPLENS=1"}
    programs = {name: Program("chain.cu", "chain", flag, f"-DLENGTH={length}") for name, flag in variants.items()}
    result: dict[str, Any] = {f"registers {name}": program.registers for name, program in programs.items()}
    n = 500
    for label, (grid, block) in SHAPES.items():
        warps = grid * block // 32
        cycles, x = Memory(8 * warps), Memory(4 * grid * block)
        lent = buffer("chain", grid, block, 2 * n)
        times: dict[str, list[float]] = {name: [] for name in programs}
        for repeat in range(repeats + 3):
            for name, program in programs.items():
                address = lent.address if name == "on" else 0
                program.launch(
                    grid, block, np.uint64(cycles.address), np.uint64(x.address), np.int32(n), np.uint64(address)
                )
                value = float(np.median(cycles.read(np.uint64))) / n
                if repeat >= 3:
                    times[name].append(value)
        off, on = median(times["off"]), median(times["on"])
        result[label] = {"off": round(off, 1), "on": round(on, 1), "added per mark": round((on - off) / 2, 2)}
        lent.collect()
    return result


@dataclass(frozen=True)
class Gemm:
    file: str
    depth: int
    shared: int
    dtype: Any
    transposed: bool = False
    definitions: tuple[str, ...] = ()
    columns: int = 128

    def grid(self, size: int) -> tuple[int, int]:
        return size // self.columns, size // 128


THREADS = 256
GEMMS = {
    "fp32 128x128x32": Gemm("sgemm.cu", 32, 2 * 2 * 32 * 128 * 4, np.float32, True),
    "mma.sync 128x128x32": Gemm("gemm.cu", 32, 3 * 256 * 32 * 2, np.float16, False, ("-DBK=32",)),
    "mma.sync 128x128x64": Gemm("gemm.cu", 64, 3 * 256 * 64 * 2, np.float16, False, ("-DBK=64",)),
    "mma.sync 128x128x64, product whole": Gemm(
        "gemm.cu", 64, 3 * 256 * 64 * 2, np.float16, False, ("-DBK=64", "-DWHOLE=1")
    ),
    "wgmma 128x128x64": Gemm("wgmma.cu", 64, 4 * 256 * 64 * 2 + 1024, np.float16),
    "wgmma 128x256x64": Gemm("wgmma.cu", 64, 4 * 384 * 64 * 2 + 1024, np.float16, False, ("-DBN=256",), 256),
}


@functools.cache
def operands(size: int, dtype: Any) -> tuple[Any, Any]:
    rng = np.random.default_rng(1)
    left, right = (rng.standard_normal((size, size), np.float32).astype(dtype) for _ in range(2))
    return left, right


def tracks_of(kind: Gemm, size: int, program: Program) -> WovenBuffer:
    """Room for all that a woven GEMM records."""
    return WovenBuffer(program, math.prod(kind.grid(size)) * THREADS // 32, 8 * (size // kind.depth) + 8)


def in_turn(
    kind: Gemm, size: int, programs: dict[str, Program], buffers: Mapping[str, int], repeats: int
) -> tuple[dict[str, list[float]], dict[str, np.ndarray[Any, Any]]]:
    """Microseconds of each program's launches, those of all programs interleaved, and the product that each made."""
    a, b = (Memory(matrix) for matrix in operands(size, kind.dtype))
    outputs = {name: Memory(4 * size * size) for name in programs}
    times: dict[str, list[float]] = {name: [] for name in programs}

    def run(name: str) -> None:
        matrices = [np.uint64(memory.address) for memory in (a, b, outputs[name])]
        rest = (*[np.int32(size)] * 3, np.uint64(buffers[name]))
        programs[name].launch(kind.grid(size), THREADS, *matrices, *rest, shared=kind.shared)

    for repeat in range(repeats + 5):
        for name in programs if repeat % 2 else reversed(programs):
            microseconds = timed(lambda name=name: run(name))
            if repeat >= 5:
                times[name].append(microseconds)
    return times, {name: output.read(np.float32).reshape(size, size) for name, output in outputs.items()}


def gemm(kind: Gemm, size: int, repeats: int) -> dict[str, Any]:
    """Slowdown of a GEMM, marked and unmarked runs interleaved, and whether both results are the same bits."""
    programs = {
        name: Program(kind.file, "gemm", f"-DWARPLENS={name == 'on':d}", *kind.definitions) for name in ("off", "on")
    }
    programs["woven"] = Program(kind.file, "gemm", *kind.definitions, how=WOVEN)
    programs["nvcc"] = Program(kind.file, "gemm", *kind.definitions, how=NVCC, buffer=LaunchBuffer())
    lent, of_nvcc = (buffer("gemm", kind.grid(size), THREADS, 8 * (size // kind.depth)) for _ in range(2))
    tracks = tracks_of(kind, size, programs["woven"])
    buffers = {"off": 0, "on": lent.address, "woven": tracks.pointer, "nvcc": of_nvcc.address}
    times, results = in_turn(kind, size, programs, buffers, repeats)
    left, right = operands(size, kind.dtype)
    rows = np.arange(7, size, size // 16)
    wide = right.astype(np.float32)
    exact = left[:, rows].T @ wide if kind.transposed else left[rows].astype(np.float32) @ wide.T
    ratios, woven, nvcc = (
        [on / off for on, off in zip(times[n], times["off"], strict=True)] for n in ("on", "woven", "nvcc")
    )
    launch, other = lent.collect(), of_nvcc.collect()
    written, by_nvcc = (one.raw.reshape(-1, one.stride)[:, 16:20].copy().view(np.uint32) for one in (launch, other))
    return {
        "off_us": round(median(times["off"]), 2),
        "on_us": round(median(times["on"]), 2),
        "tflops_off": round(2 * size**3 / median(times["off"]) / 1e6, 1),
        "slowdown": round(median(ratios), 4),
        "slowdown_quartiles": [round(float(q), 4) for q in np.quantile(ratios, (0.25, 0.75))],
        "woven_slowdown": round(median(woven), 4),
        "woven_quartiles": [round(float(q), 4) for q in np.quantile(woven, (0.25, 0.75))],
        "nvcc_slowdown": round(median(nvcc), 4),
        "nvcc_quartiles": [round(float(q), 4) for q in np.quantile(nvcc, (0.25, 0.75))],
        "registers_off": programs["off"].registers,
        "registers_on": programs["on"].registers,
        "registers_woven": programs["woven"].registers,
        "registers_nvcc": programs["nvcc"].registers,
        "local_bytes_on": programs["on"].local_bytes,
        "local_bytes_woven": programs["woven"].local_bytes,
        "bit_identical": all(
            bool(np.array_equal(results["off"].view(np.uint32), result.view(np.uint32))) for result in results.values()
        ),
        "largest_error": float(np.abs(results["on"][rows] - exact).max()),
        "records_per_warp": int(written.max()),
        "woven_records_per_warp": int(tracks.written().max()),
        "nvcc_records_per_warp": int(by_nvcc.max()),
        "region_names": sorted(launch.regions.values()),
        "nvcc_region_names": sorted(other.regions.values()),
    }


def bars(table: dict[str, dict[str, Any]], gemms: dict[str, dict[str, Any]]) -> dict[str, bool]:
    """The conditions the header is held to."""
    ours, floor = table["warplens"], table["floor: clock read"]
    woven = table["warplens, woven"]
    result = {f"at most 1.2 x floor, {shape}": ours[shape] <= 1.2 * floor[shape] for shape in ("1x32", "132x128")}
    result["at most 2 x floor, 528x256"] = ours["528x256"] <= 2 * floor["528x256"]
    result["woven: at most 2 x floor, 528x256"] = woven["528x256"] <= 2 * floor["528x256"]
    result["nvcc: at most 2 x floor, 528x256"] = table["warplens nvcc"]["528x256"] <= 2 * floor["528x256"]
    for rival in RIVALS:
        factor = 1 if rival == "shared ring" else 2
        result[f"{factor} x cheaper than {rival}"] = all(
            factor * ours[shape] <= table[rival][shape] for shape in SHAPES
        )
    for name, row in gemms.items():
        result[f"{name}: at most 1.02"] = row["slowdown"] <= 1.02
        result[f"{name}, woven: at most 1.02"] = row["woven_slowdown"] <= 1.02
        result[f"{name}, nvcc: at most 1.02"] = row["nvcc_slowdown"] <= 1.02
        result[f"{name}: at most 4 registers"] = row["registers_on"] - row["registers_off"] <= 4
        result[f"{name}, woven: at most 4 registers"] = row["registers_woven"] - row["registers_off"] <= 4
        result[f"{name}: bit-identical"] = row["bit_identical"]
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the header, the floor and the rivals only, few repeats")
    parser.add_argument(
        "--ours", action="store_true", help="no rivals and variants: the floor and warplens's own forms"
    )
    parser.add_argument("--gemms", default="", help="only those whose names hold one of these, between commas")
    parser.add_argument("--sizes", default="4096,2048", help="of the GEMMs")
    parser.add_argument("--json", help="write the result here too")
    options = parser.parse_args()
    repeats = 5 if options.quick else 15
    chosen = {k: v for k, v in designs().items() if not (options.quick and k.startswith("variant"))}
    if options.ours:
        chosen = {name: chosen[name] for name in ("floor: clock read", "warplens")}
    result: dict[str, Any] = {"context": context("python -m benchmarks.cuda_overhead"), "unit": "cycles per mark"}
    for pairs in (1, 4):
        key = f"{pairs} pairs per iteration"
        result[key] = {}
        for name, definitions in chosen.items():
            result[key][name] = micro(definitions, pairs, repeats)
            row = result[key][name]
            shown = "  ".join(f"{row[shape]:8.2f}" for shape in SHAPES)
            print(f"{key}  {name:22s} {shown}  {row['registers']} registers", file=sys.stderr, flush=True)
        places = {"": WOVEN} | ({} if options.quick else {f" {s}": Weaving(store=s) for s in ("now", "end", "defer")})
        for name, how in places.items():
            result[key][f"warplens, woven{name}"] = row = micro_woven(how, pairs, repeats)
            shown = "  ".join(f"{row[shape]:8.2f}" for shape in SHAPES)
            print(f"{key}  woven{name:17s} {shown}  {row['registers']} registers", file=sys.stderr, flush=True)
        apart = replace(NVCC, fuse=False)  # marks side by side would share a clock read: they must not here
        result[key]["warplens nvcc"] = row = micro(("-DDESIGN=1",), pairs, repeats, how=apart)
        shown = "  ".join(f"{row[shape]:8.2f}" for shape in SHAPES)
        print(f"{key}  {'warplens nvcc':22s} {shown}  {row['registers']} registers", file=sys.stderr, flush=True)
    if not options.ours:
        result["chain"] = {str(length): chain(length, repeats) for length in (16, 64, 256)}
        for length, row in result["chain"].items():
            print(f"chain {length}: {row}", file=sys.stderr, flush=True)
        result["what binds"] = binding(repeats)
    wanted = options.gemms.split(",")
    result["gemm"] = {}
    for name, kind in GEMMS.items():
        for size in map(int, options.sizes.split(",") if any(text in name for text in wanted) else ()):
            row = result["gemm"][f"{name}, {size}"] = gemm(kind, size, 20 if options.quick else 60)
            print(f"{name}, {size}: {row}", file=sys.stderr, flush=True)
    if not options.ours:
        result["bars"] = bars(result["1 pairs per iteration"], result["gemm"])
    text = json.dumps(result, indent=1)
    if options.json:
        with open(options.json, "w") as out:
            out.write(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
