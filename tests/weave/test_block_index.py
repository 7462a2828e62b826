"""Which blocks record, and their index among those that do, without a division."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.ptx_kernels import HEAD
from warplens import simulate
from warplens.weave.block_index import linear_index, selected_index
from warplens.weave.weaving import Selection

EVERY_BLOCK = 1 << 30
LARGEST = (1 << 31) - 1


def selected(select: Selection, first: int = 0, blocks: int = 200) -> list[int]:
    """The index of each block from `first` on, and -1 where it does not record."""
    lines = "\n".join(selected_index(select, "%r1", "%r2", "%p1"))
    text = f"""{HEAD}.visible .entry k(.param .u64 out, .param .u32 first)
{{
	.reg .pred %p<2>; .reg .b32 %r<9>; .reg .b64 %rd<4>;
	ld.param.u64 %rd1, [out]; ld.param.u32 %r3, [first]; mov.u32 %r4, %ctaid.x; add.u32 %r2, %r3, %r4;
	setp.eq.u32 %p1, %r2, %r2;
	{lines}
	selp.b32 %r1, %r1, -1, %p1;
	mul.wide.u32 %rd2, %r4, 4; add.s64 %rd1, %rd1, %rd2; st.global.u32 [%rd1], %r1;
	ret;
}}
"""
    memory = simulate.GlobalMemory(1 << 20)
    out = memory.alloc(4 * blocks)
    simulate.run(text, "k", (blocks, 1, 1), (1, 1, 1), [out, first], memory=memory)
    return [int(one) for one in memory.read(out, np.int32, blocks)]


@pytest.mark.parametrize("step", [1, 2, 3, 4, 6, 8, 12, 17, 31, 96, 128])
@pytest.mark.parametrize(("start", "stop"), [(0, EVERY_BLOCK), (5, 120), (130, LARGEST)])
def test_every_nth_block_of_a_range_is_selected(step: int, start: int, stop: int) -> None:
    chosen = range(start, stop, step)
    expected = [chosen.index(block) if block in chosen else -1 for block in range(200)]
    assert selected(Selection(blocks=(start, stop, step))) == expected


@pytest.mark.parametrize("step", [3, 8, 31])
def test_the_last_blocks_of_the_largest_grid_are_selected_as_well(step: int) -> None:
    chosen, first = range(7, LARGEST, step), LARGEST - 100
    expected = [chosen.index(block) if block in chosen else -1 for block in range(first, first + 100)]
    assert selected(Selection(blocks=(7, LARGEST, step)), first, 100) == expected


def test_listed_blocks_are_selected() -> None:
    found = selected(Selection(listed=(3, 50, 199)))
    assert {block: index for block, index in enumerate(found) if index >= 0} == {3: 0, 50: 1, 199: 2}


def test_no_block_divides() -> None:
    """ptxas makes some twenty instructions of a division by a constant."""
    lines = [
        *linear_index(Selection(), "%r1", "%r2", "%r3"),
        *selected_index(Selection(blocks=(8, 99, 17)), "%r4", "%r1", "%p1"),
    ]
    assert not {"div", "rem"} & {part.split(".")[0] for line in lines for part in line.split()}
    assert sum(line.count(";") for line in lines) <= 9
    assert linear_index(Selection(flat=True), "%r1", "%r2", "%r3") == ["mov.u32 %r1, %ctaid.x;"]
