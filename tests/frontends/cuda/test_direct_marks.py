"""Direct marks as NVRTC compiles them, run by the interpreter, which checks every access as compute-sanitizer does."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.support.cuda_compilers import KERNELS, ON, RING, needs_nvrtc
from tests.support.shim_records import tracks
from warplens import simulate
from warplens.frontends.cuda.module import find_kernel
from warplens.frontends.cuda.nvrtc import compile_ptx
from warplens.ptx.tree import PtxModule, parse
from warplens.record.capture import Launch
from warplens.record.launch_buffer import BUFFER, BUFFER_BYTES, BufferPlan, plan, ring_slots
from warplens.simulate import global_memory, memory_access

pytestmark = needs_nvrtc

BOUNDARY = 7 << 32
LINE = (2, 1, 1), (64, 1, 1)
CASES: dict[str, tuple[Any, Any, tuple[int, ...] | None]] = {
    "nested": ((2, 2, 1), (16, 2, 2), (3,)), "early": (*LINE, ()), "linked": (*LINE, ()), "by_warp1": (*LINE, None),
    "by_thread": ((2, 1, 1), (4, 2, 1), None), "by_predicate": (*LINE, None),
}  # fmt: skip


@cache
def _compiled(full: str) -> PtxModule:
    return parse(compile_ptx(KERNELS, "kernels.cu", "sm_90", RING if full == "ring" else ON))


def _planned(kernel: str, records: int) -> BufferPlan:
    grid, block, _ = CASES[kernel]
    return plan(grid, block, records=records, full="stop", every_thread=kernel == "by_thread")


def _launch(
    kernel: str, full: str, sizes: BufferPlan | None, ahead: int = 0, told: BufferPlan | None = None
) -> tuple[bool, list[Any]]:
    """Whether a warp found no track, and what each track holds. The interpreter fails on any access out of bounds.

    `ahead`: bytes from the buffer to a 4 GiB boundary, 0 for one far away. `told`: the sizes that the kernel reads.
    """
    grid, block, arguments = CASES[kernel]
    with pytest.MonkeyPatch.context() as patch:
        for file in (global_memory, memory_access):
            patch.setattr(file, "GLOBAL_BASE", BOUNDARY - 256 - ahead if ahead else BOUNDARY)
        space = simulate.GlobalMemory(1 << 20)
        address = 0
        if sizes is not None:
            address = sizes.place(space.alloc(sizes.allocation))
            space.write(address, np.frombuffer((told or sizes).header(), np.uint8))
        given = [] if arguments is None else [space.alloc(4096), *arguments]
        module = _compiled(full)
        symbol = find_kernel(kernel, [entry.name for entry in module.entries])
        assert symbol is not None
        simulate.run(module, symbol, grid, block, [*given, address], memory=space)
        if sizes is None:
            return False, []
        refused = bool(space.read(address, BUFFER, 1)[0]["refused"])
        raw = space.read(address + BUFFER_BYTES, np.uint8, sizes.tracks * sizes.stride)
    capacity = ring_slots(sizes.capacity) if full == "ring" else sizes.capacity
    held = tracks(Launch(kernel, grid, block, {}, capacity, raw, stride=sizes.stride, full=full))
    found = [
        (*(int(head[name]) for name in ("block", "warp", "lane", "state", "written")), text) for head, text in held
    ]
    return refused, found


@pytest.mark.parametrize("full", ["stop", "ring"])
@pytest.mark.parametrize("kernel", CASES)
def test_tracks_lie_on_both_sides_of_a_4_gib_boundary(kernel: str, full: str) -> None:
    sizes = _planned(kernel, 20)
    refused, expected = _launch(kernel, full, sizes)
    assert not refused
    # Behind the launch header, and inside the second track, which moves behind it.
    for ahead in (BUFFER_BYTES, BUFFER_BYTES + sizes.stride + 256):
        assert _launch(kernel, full, sizes, ahead) == (False, expected)


@pytest.mark.parametrize("full", ["stop", "ring"])
@pytest.mark.parametrize("kernel", CASES)
def test_without_a_buffer_or_a_track_nothing_is_written(kernel: str, full: str) -> None:
    sizes = _planned(kernel, 7)
    _, expected = _launch(kernel, full, sizes)
    assert _launch(kernel, full, None) == (False, [])
    assert _launch(kernel, full, replace(sizes, tracks=sizes.tracks - 1)) == (True, expected[:-1])
    assert _launch(kernel, full, replace(sizes, tracks=0)) == (True, [])
    refused, found = _launch(kernel, full, replace(sizes, per_block=0))
    assert refused
    assert not any(written for _, _, _, _, written, _ in found)


@pytest.mark.parametrize("kernel", ["nested", "early", "by_warp1", "by_predicate"])
def test_a_full_track_has_lost_none_but_the_last(kernel: str) -> None:
    """However many fit, also where a begin does and the end that stores it does not."""
    _, whole = _launch(kernel, "stop", _planned(kernel, 60))
    for records in range(14):
        _, found = _launch(kernel, "stop", _planned(kernel, records))
        assert [track[:-1] for track in found] == [track[:-1] for track in whole], "they are counted all the same"
        for track, every in zip(found, whole, strict=True):
            # A value and its payload take two slots, or leave the last one empty.
            kept = [line for line in track[-1] if line != "empty 0"]
            assert kept == every[-1][: len(kept)]
            slots = sum(1 + line.startswith("value") for line in kept) + len(track[-1]) - len(kept)
            assert slots == min(records, track[-2])


def test_a_track_that_ends_beyond_4_gib_is_refused() -> None:
    """The upper half of an address is made from the buffer's, which reaches no further."""
    sizes = _planned("early", 7)
    refused, found = _launch("early", "stop", sizes, told=replace(sizes, stride=1 << 31))
    assert refused
    assert [written for *_, written, _ in found] == [3, 0, 0, 0]
