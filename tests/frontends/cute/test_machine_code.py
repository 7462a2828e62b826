"""What ptxas makes of marks in CuTe kernels: their order in SASS, registers, local memory."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

# The DSL reads the architecture that this sets when it is imported.
from tests.support.cute_gpu import compile_cute

# isort: split
from cutlass import Float16, Int32, cute
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream

import warplens as wl
import warplens.cute as wlc
from tests.support.cuda_compilers import needs_sass, sass, usage
from tests.support.cute_examples import example
from tests.support.cute_kernels import fake, run_add, run_chain, run_everything
from tests.support.fake_driver import fake_driver
from warplens.driver.kernel_arguments import Shape
from warplens.frontends.cute.compiled_code import machine_code
from warplens.frontends.intercept.interceptor import Interceptor, PlainKernel
from warplens.frontends.intercept.woven_module import Twin
from warplens.ptx.tree import parse
from warplens.record.layout import Kind, word0
from warplens.record.name_table import region_id
from warplens.sass.machine_code import verify_code

LEAST = 24
"""Registers below which ptxas cannot be asked to go for sm_90; it takes up to as many where that saves it a wait."""
pytestmark = needs_sass


def steps(instructions: list[str], words: dict[int, str], work: str) -> list[str]:
    """Marks by their record's word, clock reads (`c`), and instructions that match `work`, in order."""
    found = []
    for line in instructions:
        constant = re.search(r"(?:MOV|IMAD\.MOV\.U32|SEL)\S* R\d+, (?:RZ, ){0,2}0x([0-9a-f]+)(?:, !?P\d)?$", line)
        if constant and int(constant[1], 16) in words:
            found.append(words[int(constant[1], 16)])
        elif "CS2R.32" in line and "CLOCKLO" in line:
            found.append("c")
        elif match := re.search(work, line):
            found.append(match[0])
    return found


@pytest.fixture(scope="module")
def gemms() -> dict[bool, Any]:
    gemm = example("gemm")
    tensors = [make_fake_compact_tensor(Float16, (4096, 4096), stride_order=(1, 0), assumed_align=16) for _ in range(3)]
    return {on: compile_cute(gemm.run, *tensors, wlc.buffer(), make_fake_stream(), on) for on in (True, False)}


def test_a_gemm_gets_no_register_no_spill_and_no_second_product(gemms: dict[bool, Any], tmp_path: Path) -> None:
    marked, plain = (usage(gemms[on].__cubin__, tmp_path) for on in (True, False))
    assert marked["REG"] <= plain["REG"]
    assert marked["LOCAL"] == marked["STACK"] == 0
    counts = [sum("HGMMA" in line for line in sass(gemms[on].__cubin__, tmp_path)) for on in (True, False)]
    assert counts == [4, 4]


def test_a_gemms_products_and_copies_stand_between_their_marks(gemms: dict[bool, Any], tmp_path: Path) -> None:
    instructions = sass(gemms[True].__cubin__, tmp_path)
    work = r"HGMMA|UTMALDG|WARPGROUP\.DEPBAR\S* \S+ 0x1"
    text = " ".join(re.sub(r"DEPBAR.*", "wait", step) for step in steps(instructions, {}, work))
    assert "c UTMALDG UTMALDG c" in text
    assert "c HGMMA HGMMA HGMMA HGMMA WARPGROUP.wait c" in text


def test_an_add_reads_its_clock_around_loads_and_stores(tmp_path: Path) -> None:
    marked = compile_cute(run_add, fake(), fake(), fake(), True, wlc.buffer())
    plain = compile_cute(run_add, fake(), fake(), fake(), None, wlc.buffer())
    words = {
        word0(kind, region_id(name)): f"{kind.name[0]}{name[0]}"
        for kind in (Kind.BEGIN, Kind.END)
        for name in ("load", "store")
    }
    order = steps(sass(marked.__cubin__, tmp_path), words, r"LDG\.E|STG\.E desc|FADD")
    text = " ".join(step for step in order if step in ("c", "LDG.E", "STG.E desc", "FADD"))
    # The store's begin reads the clock behind the stores of the load, not with its end.
    assert "c LDG.E LDG.E c c FADD STG.E desc c" in text
    assert set(words.values()) <= set(order)
    cost = {on: usage(compiled.__cubin__, tmp_path) for on, compiled in ((True, marked), (False, plain))}
    assert cost[True]["LOCAL"] == cost[True]["STACK"] == 0
    assert cost[True]["REG"] <= max(cost[False]["REG"] + 4, LEAST)


@pytest.fixture(scope="module")
def vector_adds() -> dict[bool, Any]:
    run = example("vector_add").run
    tensors = [fake(1 << 20) for _ in range(3)]
    return {on: compile_cute(run, *tensors, wlc.buffer(), on) for on in (True, False)}


def test_a_loop_of_marks_takes_six_registers_and_no_memory(vector_adds: dict[bool, Any], tmp_path: Path) -> None:
    marked, plain = (usage(vector_adds[on].__cubin__, tmp_path) for on in (True, False))
    assert marked["LOCAL"] == marked["STACK"] == 0
    assert marked["REG"] <= plain["REG"] + 6


def test_a_begin_leaves_nothing_behind_its_clock_read(vector_adds: dict[bool, Any], tmp_path: Path) -> None:
    instructions = sass(vector_adds[True].__cubin__, tmp_path)
    (first,) = [at for at, line in enumerate(instructions) if line.startswith("LDG.E R")][:1]
    clock = max(at for at in range(first) if "CS2R.32" in instructions[at])
    assert instructions[clock + 1 : first] == []


def test_a_begin_reads_its_clock_into_a_register_of_the_last_store(
    vector_adds: dict[bool, Any], tmp_path: Path
) -> None:
    """There it waits until the marks before it have stored; in another, its region would."""
    instructions = sass(vector_adds[True].__cubin__, tmp_path)
    stores = [line for line in instructions if "STG.E.EF.64" in line]
    begins = [line for line in instructions if line.startswith("@P") and "CS2R.32" in line]
    assert len(begins) == 2
    (clock,) = {int(re.findall(r"R(\d+)", line)[0]) for line in begins}
    # A store of 64 bits names the first of its two registers; each end stores twice, its begin's record last.
    assert [int(re.findall(r"R(\d+)", line)[-1]) + 1 == clock for line in stores] == [False, True] * 2


def test_registers_do_not_grow_with_the_marks_of_a_loop(tmp_path: Path) -> None:
    """Words that ptxas makes ahead of a loop would hold two registers for each mark."""
    needs = {}
    for marked in (0, 1, 4, 12):
        compiled = compile_cute(run_chain, fake(1 << 20), Int32(3), marked, wlc.buffer())
        needs[marked] = usage(compiled.__cubin__, tmp_path)["REG"]
    assert max(needs.values()) <= needs[0] + 6
    assert needs[12] <= needs[1]


def test_every_kind_of_mark_fits_the_fewest_registers_ptxas_can_be_asked_for(tmp_path: Path) -> None:
    cost = usage(compile_cute(run_everything, fake(), fake(), Int32(4), Int32(4), wlc.buffer()).__cubin__, tmp_path)
    assert cost["LOCAL"] == cost["STACK"] == 0
    assert cost["REG"] <= LEAST


def test_an_anchor_reads_both_clocks_before_it_stores_either(tmp_path: Path) -> None:
    """Behind the store of the timer's value the clock read would wait for that."""
    compiled = compile_cute(run_everything, fake(), fake(), Int32(4), Int32(4), wlc.buffer())
    reads = steps(sass(compiled.__cubin__, tmp_path), {}, r"SR_GLOBALTIMERLO|STG")
    # The start's and the exit's are wide clock reads; the anchor's is between them.
    assert [reads[at + 1] for at, step in enumerate(reads) if step == "SR_GLOBALTIMERLO"][1] == "c"


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="needs ptxas")
def test_a_twin_that_spills_with_every_way_of_single_stores_spreads_them(
    vector_adds: dict[bool, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """ptxas makes the words of single stores ahead of the loop and would rather spill than make them where they are
    stored."""
    gpu = fake_driver(monkeypatch)
    text = vector_adds[False].__ptx__.partition("\0")[0]
    (symbol,) = (entry.name for entry in parse(text).entries)
    tried = []

    def resources(function: int) -> dict[str, int]:
        (tmp_path / "twin.ptx").write_text(gpu.kernels[function][0])
        subprocess.run(["ptxas", "-arch=sm_90a", "twin.ptx", "-o", "twin.cubin"], cwd=tmp_path, check=True)
        need = usage((tmp_path / "twin.cubin").read_bytes(), tmp_path)
        if gpu.woven(function):
            tried.append(need["STACK"])
        return {"registers": need["REG"], "local_bytes": need["STACK"], "shared_bytes": 0}

    monkeypatch.setattr(gpu, "resources", resources)
    gpu.blocks = {False: 8, True: 8}
    x, y = np.arange(2048, dtype=np.float32), np.ones(2048, np.float32)
    places = [gpu.space.alloc(x), gpu.space.alloc(y), gpu.space.alloc(np.zeros(2048, np.float32))]
    shape = Shape((1, 1, 1), (256, 1, 1), 0, 0)
    with wl.profile(auto="all", records_per_warp=256) as profile:

        def launch_twin(twin: Twin, pointer: int) -> Twin:
            gpu.launch(twin.function, shape.grid, shape.block, [*places, 0, 0, pointer], 0, 0)
            return twin

        kernel = PlainKernel(symbol, gpu.plain(text, symbol), lambda: text)
        twin = Interceptor(profile).launch(kernel, shape, lambda: None, launch_twin)
        assert twin is not None, profile.notes
    assert tried[0] > 0
    assert tried[-1] == 0
    assert twin.woven.stores[symbol] == "spread"
    assert np.array_equal(gpu.space.read(places[2], np.float32, 2048), x + y)
    (launch,) = profile.trace.meta.launches
    assert launch.covered["least"] >= 0.9
    counts = {row.region.split()[0]: row.count for row in profile.trace.stats()}
    assert (counts["load"], counts["store"]) == (64, 64)
    assert not profile.trace.meta.losses.records_lost


def test_regions_of_a_kernel_are_verified_in_its_kept_machine_code(tmp_path: Path) -> None:
    options = f"--keep-ptx --keep-cubin --generate-line-info --dump-dir={tmp_path}"
    compiled = cute.compile(run_everything, fake(), fake(), Int32(4), Int32(3), wlc.buffer(), options=options)
    code = machine_code(compiled)
    names = {f"#{region_id(name)}": name for name in ("load", "store")}
    found = verify_code(replace(code, names=names))
    assert (found.problem, found.source) == ("", "the machine code that ran")
    assert found["load"].counts["load.global"] == 1
    assert found["store"].counts["store.global"] == 1
    assert found["load"].purity == found["store"].purity == 1.0


def test_code_that_was_not_kept_says_how_to_keep_it() -> None:
    compiled = cute.compile(run_everything, fake(), fake(), Int32(4), Int32(3), wlc.buffer())
    assert verify_code(machine_code(compiled)).problem == (
        "its PTX and cubin were not kept; compile it with the options --keep-ptx --keep-cubin --generate-line-info"
    )
