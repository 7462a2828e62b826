"""Hand-written PTX kernels around the instructions under test."""

from __future__ import annotations

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"


def kernel(body: str, performance: str = ".reqntid 64, 1, 1") -> str:
    return (
        HEAD
        + f""".visible .entry k(.param .u64 out, .param .u32 n)
{performance}
{{
	.reg .pred %p<9>; .reg .b32 %r<20>; .reg .b64 %rd<4>;
	ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [n]; mov.u32 %r2, %tid.x; mov.u32 %r3, %ctaid.x;
{body}
	// last
	ret;
}}
"""
    )
