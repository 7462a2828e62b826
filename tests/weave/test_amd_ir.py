"""Woven LLVM IR for AMD's GPUs, run by an interpreter: its records are decoded to what the kernel did."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.support.ir_interpreter import Machine
from tests.support.track_programs import both
from warplens.errors import WarplensError
from warplens.ptx.syntax import PtxError
from warplens.record.capture import COUNTER_BITS, Capture, Device, Launch
from warplens.record.layout import HEADER
from warplens.trace.model import Trace
from warplens.weave.amd.gpu_traits import gpu_traits
from warplens.weave.amd.ir_weaver import weave_ir
from warplens.weave.weaving import Weaving, capacity_of
from warplens.weave.woven_ptx import Woven

GPUS = {"gfx942": 64, "gfx1100": 32, "gfx1250": 32}
POINTER = "ptr addrspace(1) inreg readnone captures(none)"


def mark(text: str, result: int, operand: str = "") -> str:
    return f'  %{result} = tail call i32 asm sideeffect "; @warplens {text}", "=s,v,~{{memory}}"({operand}) #1, !dbg !7'


KERNEL = f"""\
; ModuleID = 'LLVMDialectModule'
define amdgpu_kernel void @rows({POINTER} %0, i32 inreg %1, {POINTER} %2, {POINTER} %3) local_unnamed_addr #0 !dbg !4 {{
{mark("B all", 5)}
{mark("B load", 6)}
  %7 = add i32 %1, 0
{mark("E load", 8)}
{mark("V n s32 $1", 9, "i32 %1")}
{mark("T", 10)}
  br label %11

11:                                               ; preds = %18, %4
  %12 = phi i32 [ 0, %4 ], [ %19, %18 ]
{mark("B row", 13)}
  %14 = and i32 %12, 1
  %15 = icmp eq i32 %14, 1
  br i1 %15, label %16, label %18

16:                                               ; preds = %11
{mark("I odd", 17)}
  br label %18

18:                                               ; preds = %16, %11
  %19 = add i32 %12, 1
{mark("E row", 20)}
  %21 = icmp slt i32 %19, %1
  br i1 %21, label %11, label %22

22:                                               ; preds = %18
{mark("A flight $1", 23, "i32 %12")}
  %24 = add i32 %12, 0
{mark("Z flight 4", 25)}
{mark("E all", 26)}
  ret void, !dbg !9
}}

declare i32 @llvm.umin.i32(i32, i32) #1

attributes #0 = {{ nounwind memory(argmem: readwrite) "amdgpu-no-implicitarg-ptr" "amdgpu-no-workgroup-id-y" "x"="0" }}
attributes #1 = {{ nounwind }}
"""


def woven(arch: str, text: str = KERNEL, waves: int = 2, how: Weaving | None = None) -> Woven:
    return weave_ir(text, gpu_traits(arch, GPUS[arch]), waves, how)


def run(
    arch: str, *, rows: int = 5, grid: tuple[int, int, int] = (2, 1, 1), shift: int = 10, pointer: int | None = None
) -> tuple[Trace, Machine]:
    """Run all waves, two per block, of which every lane but the first must leave nothing."""
    made, lanes = woven(arch), GPUS[arch]
    blocks = [(x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0])]
    machine = Machine(bytearray(len(blocks) * 2 << shift), grid, lanes, bits=gpu_traits(arch, lanes).clock_bits)
    given: list[Any] = [0, rows, 0, machine.base | shift if pointer is None else pointer]
    for block in blocks:
        for wave in range(2):
            machine.run(made.text, block, wave * lanes, given)
            before = bytes(machine.memory)
            machine.run(made.text, block, wave * lanes + 5, given)
            assert bytes(machine.memory) == before
    raw = np.frombuffer(bytes(machine.memory), np.uint8)
    extra = {COUNTER_BITS: 20} if machine.bits == 20 else {}
    capacity = capacity_of(shift, "stop", 0)
    launch = Launch("rows", grid, (2 * lanes, 1, 1), made.regions, capacity, raw, stride=1 << shift, extra=extra)
    return both(Capture([launch], Device(arch, clock_mhz=2600.0))), machine


@pytest.mark.parametrize("arch", GPUS)
def test_the_records_of_each_wave_are_what_it_did(arch: str) -> None:
    trace, _ = run(arch)
    assert trace.meta.losses.clean
    assert trace.meta.losses.tracks == 4
    for track in range(4):
        mine = trace.spans.filter(trace.numpy("track") == track).to_pylist()
        assert [(row["region"], row["kind"], row["depth"]) for row in mine if row["kind"] != "instant"] == [
            ("all", "span", 0), ("load", "span", 1), ("n", "value", 1), *[("row", "span", 1)] * 5,
            ("flight", "span", 1),
        ]  # fmt: skip
        odd = [row for row in mine if row["region"] == "odd"]
        assert [mine[row["parent"] - trace.spans.to_pylist().index(mine[0])]["region"] for row in odd] == ["row"] * 2
        assert [row["value"] for row in mine if row["kind"] == "value"] == [5.0]
        (whole,) = (row for row in mine if row["region"] == "all")
        assert sum(row["dur_cycles"] for row in mine if row["depth"] == 1) < whole["dur_cycles"]
    assert {(row["block"], row["warp"]) for row in trace.spans.to_pylist()} == {(0, 0), (0, 1), (1, 0), (1, 1)}


@pytest.mark.parametrize("arch", GPUS)
def test_marks_without_an_instruction_between_them_share_a_clock(arch: str) -> None:
    rows = run(arch)[0].spans.to_pylist()
    both_begin = [row["start_cycle"] for row in rows if row["region"] in ("all", "load") and row["warp"] == 0]
    assert both_begin[0] == both_begin[1]


@pytest.mark.parametrize("arch", GPUS)
def test_the_header_has_the_block_of_a_grid_of_three_dimensions(arch: str) -> None:
    trace, machine = run(arch, grid=(2, 3, 2))
    assert sorted(set(trace.numpy("block").tolist())) == list(range(12))
    headers = np.frombuffer(bytes(machine.memory), np.uint8).reshape(-1, 1 << 10)[:, : HEADER.itemsize].copy()
    assert headers.view(HEADER)["warp"].ravel().tolist() == [0, 1] * 12
    assert headers.view(HEADER)["lane"].max() == 0


def test_the_compute_unit_is_made_of_the_fields_of_the_hardware() -> None:
    _, machine = run("gfx942")
    assert set(machine.registers) == {4 | 8 << 6 | 7 << 11, 20 | 0 << 6 | 3 << 11}
    header = np.frombuffer(bytes(machine.memory[:128]), HEADER)[0]
    assert header["sm"] == 3 | 3 << 8
    _, machine = run("gfx1100")
    assert set(machine.registers) == {23 | 10 << 6 | 3 << 11, 23 | 16 << 6 | 0 << 11, 23 | 18 << 6 | 2 << 11}


@pytest.mark.parametrize("arch", GPUS)
def test_a_full_track_keeps_the_first_records_and_counts_the_others(arch: str) -> None:
    trace, machine = run(arch, rows=60, shift=9)
    written = 1 + 2 + 2 + 2 + 120 + 30 + 2 + 1
    losses = trace.meta.losses
    assert losses.most_written == written
    assert losses.records_lost == 4 * (written - capacity_of(9, "stop", 0))
    assert losses.tracks_full == 4
    assert losses.damaged_records == losses.empty_slots == losses.torn_payloads == 0
    assert len(machine.memory) == 4 << 9


@pytest.mark.parametrize("pointer", [0, 1 << 40, 1 << 40 | 3, 1 << 40 | 40])
def test_without_a_buffer_of_ours_nothing_is_written(pointer: int) -> None:
    trace, machine = run("gfx942", pointer=pointer)
    assert not any(machine.memory)
    assert trace.meta.losses.tracks_unwritten == 4


def test_the_kernel_no_longer_promises_what_does_not_hold() -> None:
    text = woven("gfx942").text
    header = next(line for line in text.splitlines() if line.startswith("define"))
    assert header.count("readnone") == 2, "only the last parameter is written to"
    assert header.endswith("ptr addrspace(1) inreg %3) local_unnamed_addr #0 !dbg !4 {")
    assert 'attributes #0 = { nounwind "x"="0" }' in text
    assert text.count("declare i32 @llvm.umin.i32(") == 1
    assert "@warplens" not in text
    assert re.search(r"%wl\.in\.11 = phi i32 \[ %wl\.\d+\.offset, %18 \], \[ %wl\.\d+\.offset, %4 \]", text)


def test_marks_outside_of_the_kernel_are_refused() -> None:
    helper = f"define void @helper() {{\n{mark('B x', 1)}\n  ret void\n}}\n"
    with pytest.raises(WarplensError, match="not inlined"):
        woven("gfx942", KERNEL + helper)
    with pytest.raises(WarplensError, match="no kernel"):
        woven("gfx942", helper)
    with pytest.raises(PtxError, match="last parameter"):
        woven("gfx942", KERNEL.replace(f"{POINTER} %3", "i32 %3"))
    with pytest.raises(PtxError, match="not a call of inline assembly"):
        woven("gfx942", KERNEL.replace('call i32 asm sideeffect "; @warplens B all"', 'metadata "@warplens B all"'))
