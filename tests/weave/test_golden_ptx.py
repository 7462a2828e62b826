"""Real PTX of every producer with marks sprinkled over it: what is woven still assembles and computes the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.support.golden_ptx import GOLDEN, assemble, sprinkle
from warplens import simulate
from warplens.record.layout import HEADER, HEADER_BYTES, Kind, split_word0
from warplens.weave.weaver import Woven, weave
from warplens.weave.weaving import ParamBuffer, SymbolBuffer, Weaving, capacity_of, shift_for

NVCC = ("nvcc_kernels", "nvcc_kernels_lineinfo", "nvcc_kernels_debug", "nvcc12_kernels", "nvrtc12_kernels",
        "nvrtc13_kernels")  # fmt: skip
GRID, SLOTS = 5, 4000


@pytest.mark.parametrize("full", ["stop", "ring"])
@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.ptx")), ids=lambda path: path.stem)
def test_ptxas_takes_every_producers_woven_ptx(path: Path, full: str, tmp_path: Path) -> None:
    text = sprinkle(path.read_text())
    woven = weave(text, buffer=SymbolBuffer(), how=Weaving(full=full))
    assert sum(woven.entries.values()) >= text.count("// @warplens ") - 10, "all but what no kernel reaches"
    assert weave(woven.text, buffer=SymbolBuffer()) == woven
    plain, marked = (
        assemble(content, path.stem, tmp_path).lower().count("warning") for content in (path.read_text(), woven.text)
    )
    assert marked <= plain


def run_vector_add(run: Callable[..., None], memory: simulate.GlobalMemory) -> int:
    a = np.arange(GRID * 64, dtype=np.float32)
    arguments = [memory.alloc(a), memory.alloc(a * 2), memory.alloc(a.nbytes)]
    run("vector_add", GRID, 64, [*arguments, a.size - 7])
    return arguments[2]


def run_softmax(run: Callable[..., None], memory: simulate.GlobalMemory) -> int:
    a = np.sin(np.arange(GRID * 200, dtype=np.float32))
    arguments = [memory.alloc(a), memory.alloc(a.nbytes)]
    run("softmax", GRID, 256, [*arguments, 200])
    return arguments[1]


def run_divergent(run: Callable[..., None], memory: simulate.GlobalMemory) -> int:
    a = (np.arange(GRID * 64, dtype=np.int32) * 7) % 23
    arguments = [memory.alloc(a), memory.alloc(a.nbytes)]
    run("divergent", GRID, 64, [*arguments, a.size])
    return arguments[1]


def run_reduce(run: Callable[..., None], memory: simulate.GlobalMemory) -> int:
    a = np.ones(GRID * 64, np.float32)
    arguments = [memory.alloc(a), memory.alloc(4)]
    run("reduce", GRID, 64, [*arguments, a.size], shared=512)
    return arguments[1]


CASES = {"vector_add": (run_vector_add, 2), "softmax": (run_softmax, 8), "divergent": (run_divergent, 2),
         "reduce": (run_reduce, 2)}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", NVCC)
def test_nvcc_kernels_compute_the_same_and_record_alike_under_every_policy(name: str, case: str) -> None:
    launch, warps = CASES[case]
    text = (GOLDEN / f"{name}.ptx").read_text()
    plain = simulate.GlobalMemory()
    result = launch(lambda *a, **k: simulate.run(text, *a, memory=plain, **k), plain)
    expected = plain.read(result, np.uint32, 64 if case != "reduce" else 1)
    seen = []
    for store in ("now", "late", "end", "defer", "spread"):
        woven = weave(sprinkle(text), buffer=SymbolBuffer(), how=Weaving(store=store, aligned=True))
        memory = simulate.GlobalMemory(64 << 20)
        shift = shift_for(SLOTS, "stop", woven.slack)
        buffer = memory.alloc(GRID * warps << shift, align=1 << shift)
        symbols = {"warplens_buffer": buffer | shift}

        def run(*a: object, woven: Woven = woven, **k: object) -> None:
            simulate.run(woven.text, *a, memory=memory, symbols=symbols, **k)  # noqa: B023

        result = launch(run, memory)
        np.testing.assert_array_equal(memory.read(result, np.uint32, expected.size), expected)
        raw = memory.read(buffer, np.uint8, GRID * warps << shift).reshape(GRID * warps, -1)
        seen.append([_records(row, capacity_of(shift, "stop", woven.slack)) for row in raw])
    assert all(records == seen[0] for records in seen[1:])
    assert all(seen[0]), "every warp recorded"


@pytest.mark.parametrize("version", ["triton", "triton37", "triton38", "triton39"])
def test_a_matmul_of_every_triton_computes_the_same_and_records_each_step(version: str) -> None:
    """Its own marks, not sprinkled ones, and the buffer in the parameter that Triton has for it."""
    m, n, k, warps = 64, 32, 96, 4
    text = (GOLDEN / f"{version}_matmul_sm80.ptx").read_text()
    woven = weave(text, buffer=ParamBuffer(), how=Weaving(aligned=True))
    a, b = (np.sin(np.arange(rows * columns)).astype(np.float16) for rows, columns in ((m, k), (k, n)))
    shift = shift_for(64, "stop", woven.slack)
    results = []
    for source in (text, woven.text):
        memory = simulate.GlobalMemory()
        buffer = memory.alloc((m // 32) * warps << shift, align=1 << shift)
        arguments = [memory.alloc(a), memory.alloc(b), memory.alloc(4 * m * n), m, n, k, 0, buffer | shift]
        simulate.run(source, "matmul", (m // 32, n // 32), 32 * warps, arguments, memory=memory, shared=8192)
        results.append(memory.read(arguments[2], np.uint32, m * n))
    np.testing.assert_array_equal(*results)
    raw = memory.read(buffer, np.uint8, (m // 32) * warps << shift).reshape((m // 32) * warps, -1)
    tracks = [[split_word0(word) for word in _records(row, 64)] for row in raw]
    marks = [(kind, woven.regions[region]) for kind, region, _ in tracks[0]]
    # The compiler's pipelining may move a load's marks past a product's, but never drops or repeats one.
    assert Counter(marks) == {(kind, name): k // 32 for kind in (Kind.BEGIN, Kind.END) for name in ("load", "dot")}
    assert tracks.count(tracks[0]) == len(tracks) == (m // 32) * warps


def _records(row: np.ndarray, capacity: int) -> list[int]:
    """The first words of a track whose clocks run forward from its start to its exit."""
    header = row[:HEADER_BYTES].view(HEADER)[0]
    assert header["state"] == 1
    assert header["written"] <= capacity
    slots = row[HEADER_BYTES : HEADER_BYTES + int(header["written"]) * 8].view(np.uint32).reshape(-1, 2)
    assert set(np.unique(slots[:, 0] & 7)) <= {int(Kind.BEGIN), int(Kind.END)}
    start = int(header["start_clock"])
    clocks = [0, *[(int(clock) - start) % 2**32 for clock in slots[:, 1]], int(header["exit_clock"]) - start]
    assert clocks == sorted(clocks)
    return [int(word) for word in slots[:, 0]]
