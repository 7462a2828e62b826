"""Kernels in PTX whose machine code is verified: each shows one thing that ptxas is known to do."""

from __future__ import annotations

import functools

import pytest

from warplens.sass.cuda_tools import known_tool
from warplens.sass.machine_code import MachineCode, assemble_with_lines
from warplens.sass.region_verifier import verify_cubin
from warplens.sass.verified_regions import KernelVerification
from warplens.weave.weaver import weave
from warplens.weave.weaving import Weaving

needs_tools = pytest.mark.skipif(
    known_tool("nvdisasm") is None or known_tool("ptxas") is None, reason="needs ptxas and nvdisasm"
)


def kernel(body: str) -> str:
    """A kernel with two arrays, a count and a buffer, and `body` between its first lines and its end."""
    return f"""\
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u32 n, .param .u64 prof)
.reqntid 128
{{
\t.reg .pred %p<9>;
\t.reg .b32 %r<99>;
\t.reg .f32 %f<99>;
\t.reg .b64 %rd<99>;
\tld.param.u64 %rd1, [a];
\tcvta.to.global.u64 %rd1, %rd1;
\tld.param.u64 %rd2, [b];
\tcvta.to.global.u64 %rd2, %rd2;
\tld.param.u32 %r1, [n];
\tmov.u32 %r2, %tid.x;
\tmul.wide.u32 %rd3, %r2, 4;
\tadd.s64 %rd1, %rd1, %rd3;
\tadd.s64 %rd2, %rd2, %rd3;
{body}
\tret;
}}
"""


def loop(pragma: str = "") -> str:
    """A loop whose load does not depend on the iteration: ptxas moves it out, or unrolls the loop."""
    return kernel(f"""\
\tmov.f32 %f2, 0f00000000;
\tmov.u32 %r3, 0;
$L:
{pragma}
\t// @warplens B load
\tld.global.nc.f32 %f1, [%rd1];
\t// @warplens E load
\t// @warplens B math
\tfma.rn.f32 %f2, %f1, %f2, %f1;
\t// @warplens E math
\tadd.u32 %r3, %r3, 1;
\tsetp.lt.u32 %p1, %r3, %r1;
\t@%p1 bra $L;
\tst.global.f32 [%rd2], %f2;""")


HOISTED = loop('\t.pragma "nounroll";')
"""ptxas loads once, before the loop and the begin of `load`."""
UNROLLED = loop()
"""ptxas makes several copies of the loop's body."""
DIVISION = kernel("""\
\tld.global.f32 %f1, [%rd1];
\t// @warplens B divide
\tdiv.rn.f32 %f2, %f1, 0f40400000;
\t// @warplens E divide
\tst.global.f32 [%rd2], %f2;""")
"""ptxas calls a subroutine of its own."""
TENSOR = kernel("""\
\tld.global.b32 %r10, [%rd1];
\tld.global.b32 %r11, [%rd1+512];
\tld.global.b32 %r12, [%rd1+1024];
\tmov.f32 %f1, 0f00000000;
\t// @warplens B mma
\tmma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f2,%f3,%f4,%f5},{%r10,%r11},{%r12},{%f1,%f1,%f1,%f1};
\t// @warplens E mma
\tst.global.f32 [%rd2], %f2;
\tst.global.f32 [%rd2+512], %f3;
\tst.global.f32 [%rd2+1024], %f4;
\tst.global.f32 [%rd2+1536], %f5;""")

FILE = '\n\t.file 1 "/home/me/k.py"\n'
STRAIGHT = (
    kernel("""\
\t.loc 1 10 1
\tld.global.f32 %f3, [%rd1+4096];
\t.loc 1 11 1
\t// @warplens B load
\tld.volatile.global.f32 %f1, [%rd1];
\t// @warplens E load
\t.loc 1 12 1
\tfma.rn.f32 %f2, %f1, %f1, %f3;
\tsqrt.approx.f32 %f2, %f2;
\t.loc 1 13 1
\tst.volatile.shared.f32 [s], %f2;
\t// @warplens B store
\tst.volatile.global.f32 [%rd2], %f2;
\t// @warplens E store
\t.loc 1 14 1
\tst.global.f32 [%rd2+512], %f2;""")
    .replace(".visible", ".shared .align 4 .b8 s[4];\n.visible")
    .replace("\tld.param.u64 %rd1", "\t.loc 1 10 1\n\tld.param.u64 %rd1")
    + FILE
)
"""Two regions one after the other, with code before, between and behind them that has lines."""


def verify(text: str, symbol: str = "k", store: str = "auto") -> KernelVerification:
    """Weave, assemble and verify a marked text."""
    woven = weave(text, how=Weaving(store=store)).text
    return verify_cubin(assemble_with_lines(woven), symbol, woven)


@functools.cache
def code_of(text: str, symbol: str = "k", *, automatic: bool = False) -> MachineCode:
    """The machine code of a woven text, as a front end would keep it; with `automatic`, of marks that rules placed."""
    woven = weave(text, how=Weaving(between=automatic)).text
    return MachineCode(symbol, woven, assemble_with_lines(woven), automatic=automatic)


def with_lines() -> MachineCode:
    """An unrolled loop with line information."""
    text = UNROLLED.replace("\t// @warplens B load", "\t.loc 1 10 1\n\t// @warplens B load\n\t.loc 1 11 1")
    text = text.replace("\t// @warplens E load", "\t.loc 1 12 1\n\t// @warplens E load\n\t.loc 1 13 1")
    return code_of(text + '\n.file 1 "/home/me/loop.py"\n')
