"""Under `all` the regions account for a warp's life: of kernels that live long, and of those that live for a load."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cuda_compilers import NVDISASM, sass
from tests.support.marked_ptx import EVERYTHING, GOLDEN, GUARDED, clean, run, source, walk
from warplens import simulate
from warplens.auto.ptx import mark_ptx, mark_unmarked_code
from warplens.auto.rules import Auto
from warplens.decode import decode
from warplens.ptx import tree
from warplens.record.capture import Capture, Launch
from warplens.record.layout import Kind
from warplens.record.track_writer import TrackWriter
from warplens.weave.weaver import weave
from warplens.weave.weaving import SymbolBuffer

BAR = 0.9
NVCC = {
    "vector_add": (4, 128, (np.float32,) * 3, 500), "softmax": (5, 256, (np.float32,) * 2, 200),
    "tiled_matmul": (4, (16, 16), (np.float32,) * 3, 64), "divergent": (4, 64, (np.int32,) * 2, 256),
    "reduce": (4, 64, (np.float32,) * 2, 256),
}  # fmt: skip


@pytest.mark.parametrize("kernel", NVCC)
@pytest.mark.parametrize("name", ["nvcc_kernels", "nvcc_kernels_lineinfo", "nvcc_kernels_debug"])
def test_regions_account_for_the_life_of_each_warp(name: str, kernel: str) -> None:
    grid, block, types, last = NVCC[kernel]
    memory = simulate.GlobalMemory(64 << 20)
    places = [memory.alloc((np.arange(4096) % 23).astype(kind)) for kind in types]
    _, trace = run(source(name), kernel, grid, block, [*places, last], memory, shared=512)
    clean(trace)
    (info,) = trace.meta.launches
    assert info.covered["least"] >= BAR, (kernel, info.covered)
    assert info.covered["least"] <= info.covered["median"] <= 1


OTHERS = {
    "triton_softmax": ("softmax", 5, 128, [200, 0, 0]), "gluon_row_sum": ("row_sum", 5, 128, [200, 0, 0]),
    "triton_reduce": ("reduce", 3, 128, [2000, 0, 0]), "cute_saxpy": ("", 8, 128, [1000]),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_so_it_is_for_the_ptx_of_other_compilers(name: str) -> None:
    kernel, grid, block, rest = OTHERS[name]
    text, memory = source(name), simulate.GlobalMemory(64 << 20)
    places = [memory.alloc(np.ones(4096, np.float32)) for _ in range(2)]
    _, trace = run(text, kernel or tree.parse(text).entries[0].name, grid, block, [*places, *rest], memory, shared=512)
    clean(trace)
    assert trace.meta.launches[0].covered["least"] >= BAR


def jumps(body: list[Any], counter: list[int], leave: str | None, next_: str | None) -> str:
    """PTX of nested statements; `leave` and `next_` are the labels of the loop around."""
    text = ""
    for kind, bit, inner in body:
        counter[0] += 1
        here, mine = f"$L{counter[0]}", f"%r{20 + counter[0]}"
        text += f"\t.loc 1 {3 + counter[0] % 7} 0\n"
        if kind == "work":
            text += "\tadd.u32 %r5, %r5, 3;\n\txor.b32 %r5, %r5, %r2;\n" * (bit + 1)
        elif kind == "load":
            text += "\tld.global.u32 %r6, [%rd3];\n\tadd.u32 %r5, %r5, %r6;\n"
        elif kind in ("if", "else"):
            text += f"\tadd.u32 %r7, %r5, %r2;\n\tand.b32 %r7, %r7, {1 << bit};\n\tsetp.eq.u32 %p1, %r7, 0;\n"
            text += f"\t@%p1 bra {here}_else;\n{jumps(inner, counter, leave, next_)}"
            if kind == "else":
                text += f"\tbra {here}_end;\n{here}_else:\n{jumps(inner[:1], counter, leave, next_)}{here}_end:\n"
            else:
                text += f"{here}_else:\n"
        elif kind == "loop":
            text += f"\tmov.u32 {mine}, 0;\n{here}_top:\n{jumps(inner, counter, here + '_out', here + '_next')}"
            text += f"{here}_next:\n\tadd.u32 {mine}, {mine}, 1;\n\tsetp.lt.u32 %p1, {mine}, {bit + 1};\n"
            text += f"\t@%p1 bra {here}_top;\n{here}_out:\n"
        else:
            target = {"break": leave, "continue": next_}.get(kind)
            if kind == "return" or target:
                way = f"bra {target}" if target else "ret"
                text += f"\tand.b32 %r7, %r5, {1 << bit};\n\tsetp.eq.u32 %p1, %r7, 0;\n\t@%p1 bra {here}_stay;\n"
                text += "\tst.global.u32 [%rd4], %r5;\n" * (not target) + f"\t{way};\n{here}_stay:\n"
    return text


LEAF = st.tuples(
    st.sampled_from(["work", "load", "break", "continue", "return"]), st.integers(0, 3), st.just([])
)  # fmt: skip
BODIES = st.recursive(
    st.lists(LEAF, min_size=1, max_size=3),
    lambda inner: st.lists(
        st.one_of(LEAF, st.tuples(st.sampled_from(["if", "else", "loop"]), st.integers(0, 3), inner)),
        min_size=1,
        max_size=3,
    ),
    max_leaves=12,
)


@settings(max_examples=40, deadline=None)
@given(BODIES, st.booleans())
def test_any_control_flow_is_covered_nested_and_computes_the_same(body: list[Any], lines: bool) -> None:
    start = (
        "\tmov.u32 %r2, %tid.x;\n\tmul.wide.u32 %rd5, %r2, 4;\n\tadd.s64 %rd3, %rd1, %rd5;\n"
        "\tadd.s64 %rd4, %rd2, %rd5;\n\tld.global.u32 %r5, [%rd3];\n\tadd.u32 %r5, %r5, 1;\n"
    )
    counter = [0]
    text = start + jumps(body, counter, None, None) + "\tst.global.u32 [%rd4], %r5;"
    text = GUARDED.replace("%r<9>", f"%r<{30 + counter[0]}>").replace("BODY", text)
    text = text + '.file 1 "some.cu"\n' if lines else re.sub(r"\t\.loc[^\n]*\n", "", text)
    data, out = np.arange(64, dtype=np.uint32) * 7, []
    filled = mark_unmarked_code(mark_ptx(text, Auto.of("loads,loops")).text)
    for marked in ("", text, filled):
        memory = simulate.GlobalMemory(16 << 20)
        a, b = memory.alloc(data), memory.alloc(np.zeros(64, np.uint32))
        if marked:
            _, trace = run(marked, "k", 1, 64, [a, b, 0], memory)
            clean(trace)
            # In the other, what passes between blocks is in no region.
            assert marked is filled or trace.meta.launches[0].covered["least"] >= BAR
        else:
            simulate.run(text, "k", 1, 64, [a, b, 0], memory=memory)
        out.append(memory.read(b, np.uint32, 64))
    np.testing.assert_array_equal(out[0], out[1])
    np.testing.assert_array_equal(out[0], out[2])


def test_a_branch_is_a_region_of_its_own_line_and_lines_side_by_side_share_a_clock() -> None:
    marked = mark_ptx(source("nvcc_kernels_lineinfo"), Auto.of("lines"), lambda name: name == "vector_add")
    found = [
        f"{letter} {name}" if letter else i.opcode for letter, name, i in walk(marked, "vector_add") if letter or i
    ]
    before, branch = "line kernels.cu:20", "line kernels.cu:21"
    assert found[0] == f"B {before}", "from the kernel's first instruction"
    assert found[found.index(f"E {before}") + 1] == f"B {branch}"
    assert found[found.index(f"B {branch}") + 1] == "bra", "the jump is inside"
    assert found[-2:] == [f"E {branch}", "ret"]
    assert len([word for word in found if word[:2] in ("B ", "E ")]) == 4, "its line is not marked again inside"


def test_the_cap_leaves_the_lines_that_hold_most() -> None:
    text, written = source("nvcc_kernels_lineinfo"), (GOLDEN / "kernels.cu").read_text().splitlines()
    loops = {f"line kernels.cu:{number}" for number, line in enumerate(written, 1) if "for (" in line}
    others = sum(site.kind != "lines" for site in mark_ptx(text, EVERYTHING).sites["softmax"])
    few = mark_ptx(text, Auto.of("all", most=others + 2)).sites["softmax"]
    kept = {site.region for site in few if site.kind == "lines"}
    assert len(kept) == 2
    assert kept <= loops, "loops with all that is in them"


@pytest.mark.skipif(NVDISASM is None or shutil.which("ptxas") is None, reason="needs ptxas and nvdisasm")
@pytest.mark.parametrize("name", ["nvcc_kernels_lineinfo", "numba_tiled_lineinfo", "nvcc_gemm_lineinfo"])
def test_no_code_is_left_between_the_tracks_clocks_and_the_first_and_last_region(name: str, tmp_path: Path) -> None:
    """In SASS: the track's first and last clock read, all 64 bits of it, are those of the first and the last region."""
    text = source(name)
    entry = tree.parse(text).entries[0].name
    woven = weave(mark_ptx(text, EVERYTHING, lambda kernel: kernel == entry).text, buffer=SymbolBuffer())
    (tmp_path / "all.ptx").write_text(woven.text)
    subprocess.run(["ptxas", "-arch=sm_90a", "all.ptx", "-o", "all.cubin"], cwd=tmp_path, check=True)
    lines = sass((tmp_path / "all.cubin").read_bytes(), tmp_path, entry)
    clocks = [number for number, line in enumerate(lines) if "SR_CLOCKLO" in line]
    assert clocks[1] > clocks[0] + 2, "behind the first are the global timer and the kernel's own code"
    assert clocks[-1] > clocks[-2] + 1, "between the last two is the kernel's own code"
    assert ".32" not in lines[clocks[-1]]


def test_time_in_two_regions_at_once_counts_once_and_time_in_none_not_at_all() -> None:
    tracks = []
    for warp, records in enumerate((
        [(Kind.ASYNC_BEGIN, 1, 100), (Kind.ASYNC_BEGIN, 2, 300), (Kind.ASYNC_END, 1, 400), (Kind.ASYNC_END, 2, 500)],
        [(Kind.BEGIN, 1, 0), (Kind.BEGIN, 2, 10), (Kind.END, 2, 990), (Kind.END, 1, 1000)],
        [(Kind.BEGIN, 1, 200), (Kind.END, 1, 300), (Kind.BEGIN, 1, 300), (Kind.END, 1, 600)],
    )):  # fmt: skip
        writer = TrackWriter(8, warp=warp)
        writer.start(5000, 5000)
        for kind, region, clock in records:
            writer.record(kind, region, 5000 + clock)
        writer.exit(6000, 6000)
        tracks.append(writer.to_bytes())
    launch = Launch("k", (1, 1, 1), (96, 1, 1), {1: "a", 2: "b"}, 8, np.concatenate(tracks))
    for native in (True, False):
        (info,) = decode(Capture([launch, launch]), native=native).meta.launches[1:]
        assert info.covered == {"least": 0.4, "p5": 0.4, "median": 0.4}
    # Each region is as long as the other's share of 1000 cycles: 400 (overlapping), 1000 (nested), 400 (side by side).
    (info,) = decode(Capture([launch])).select(warp=1).meta.launches
    assert info.covered["median"] == 0.4, "a launch's own number, whatever is selected of it"


def test_warps_that_lost_records_do_not_count() -> None:
    def track(warp: int, rounds: int) -> np.ndarray:
        writer = TrackWriter(4, warp=warp)
        writer.start(0, 0)
        for begin in range(0, 100 * rounds, 100):
            writer.record(Kind.BEGIN, 1, begin)
            writer.record(Kind.END, 1, begin + 90)
        writer.exit(100 * rounds, 100 * rounds)
        return writer.to_bytes()

    some = Launch("k", (1, 1, 1), (64, 1, 1), {1: "a"}, 4, np.concatenate([track(0, 2), track(1, 4)]))
    every = Launch("k", (1, 1, 1), (32, 1, 1), {1: "a"}, 4, track(0, 4))
    trace = decode(Capture([some, every]))
    assert trace.meta.losses.records_lost == 8
    assert [info.covered for info in trace.meta.launches] == [{"least": 0.9, "p5": 0.9, "median": 0.9}, {}]
