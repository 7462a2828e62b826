"""Automatic marks in PTX: samples without marks, marked kernels run in the interpreter, and what they must not lose."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from tests.support import paths
from warplens import simulate
from warplens.auto.ptx import Marked, mark_ptx
from warplens.auto.rules import Auto
from warplens.decode import decode
from warplens.ptx import tree
from warplens.record.capture import Capture, Launch
from warplens.trace.model import Trace
from warplens.weave.weaver import weave
from warplens.weave.weaving import SymbolBuffer, capacity_of, shift_for

GOLDEN = paths.GOLDEN / "ptx"
EVERYTHING = Auto.of("all", most=100_000)
SLOTS = 4000


def source(path: Path | str) -> str:
    """A sample without the marks that its author wrote."""
    path = path if isinstance(path, Path) else GOLDEN / f"{path}.ptx"
    return re.sub(r"// @warplens.*", "", path.read_text())


def walk(marked: Marked, kernel: str) -> list[tuple[str, str, tree.Instruction | None]]:
    """(B or E, name, None) for marks and ("", "", instruction), in text order."""
    function = next(f for f in tree.parse(marked.text).entries if f.name == kernel)
    found: list[tuple[str, str, tree.Instruction | None]] = []
    for node in function.walk():
        if isinstance(node, tree.Comment) and (match := re.match(r"@warplens ([BE]) (\S+)", node.content)):
            found.append((match[1], match[2].replace("%20", " "), None))
        elif isinstance(node, tree.Instruction):
            found.append(("", "", node))
    return found


def run(text: str, kernel: str, grid: int, block: object, arguments: list[object], memory: simulate.GlobalMemory,
        shared: int = 0) -> tuple[Marked, Trace]:  # fmt: skip
    """The marked kernel in the interpreter, and the trace that its records make."""
    marked = mark_ptx(text, EVERYTHING, lambda name: name == kernel)
    woven = weave(marked.text, buffer=SymbolBuffer())
    warps = -(-int(np.prod(block)) // 32)
    shift = shift_for(SLOTS, "stop", woven.slack)
    buffer = memory.alloc(grid * warps << shift, align=1 << shift)
    symbols = {"warplens_buffer": buffer | shift}
    simulate.run(woven.text, kernel, grid, block, arguments, memory=memory, symbols=symbols, shared=shared)
    raw = memory.read(buffer, np.uint8, grid * warps << shift)
    threads = (*np.atleast_1d(block), 1, 1)[:3]
    launch = Launch(kernel, (grid, 1, 1), tuple(int(n) for n in threads), woven.regions,
                    capacity_of(shift, "stop", woven.slack), raw, clock="simulated", stride=1 << shift)  # fmt: skip
    return marked, decode(Capture([launch]))


def clean(trace: Trace) -> None:
    losses = trace.meta.losses
    assert not losses.records_lost
    assert not losses.orphan_ends
    assert not losses.mismatched_ends
    assert not losses.open_spans


GUARDED = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 p, .param .u64 q, .param .u32 n) {
	.reg .pred %p<4>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<9>;
	ld.param.u64 %rd1, [p]; ld.param.u64 %rd2, [q]; ld.param.u32 %r1, [n];
BODY
	ret;
}
"""
