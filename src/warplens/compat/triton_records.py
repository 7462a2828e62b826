"""Inline assembly with which Triton kernels store records, for APIs that pass their buffer as a kernel argument.

A record is the 8 bytes of `record.layout`, written by one thread. Nothing marks the end of the kernel, so each record
also updates the track's exit time. Every address is checked before it is used; records that do not fit are counted.
"""

from __future__ import annotations

from typing import Any

import triton.language as tl
from triton.language import core

from warplens.errors import WarplensError
from warplens.record.layout import HEADER_AT, HEADER_BYTES, SLOT_BYTES, TRACK_MAGIC, TrackState

BLOCK = """
    mov.u32 b, %ctaid.z; mov.u32 x, %nctaid.y; mov.u32 y, %ctaid.y; mad.lo.u32 b, b, x, y;
    mov.u32 x, %nctaid.x; mov.u32 y, %ctaid.x; mad.lo.u32 b, b, x, y;"""
"""Sets b to the linear block index and x to the number of blocks along x."""


def start_track(guard: str, track: str, block: str, group: str) -> str:
    """Write a track's header if the predicate `guard` is set; uses the registers t, s, clk and ns."""
    return f"""
    mov.u32 s, %smid; mov.b32 t, {TRACK_MAGIC};
    @{guard} st.global.v4.b32 [{track}], {{t, {block}, {group}, s}};
    mov.b32 t, 0; @{guard} st.global.v2.b32 [{track}+{HEADER_AT["written"]}], {{t, t}};
    mov.u64 clk, %clock64; mov.u64 ns, %globaltimer;
    @{guard} st.global.v2.b64 [{track}+{HEADER_AT["start_clock"]}], {{clk, ns}};"""


def write_record(guard: str, fits: str, track: str, written: str, word: str, *, begins: bool) -> str:
    """Append a record if `guard` is set, storing it only if `fits` is set; `written` becomes the new count.

    Uses the registers t, a, clk and ns. The clock is read closest to the region: last for a begin, first for an end.
    """
    clock, timer = "\n    mov.u64 clk, %clock64;", "\n    mov.u64 ns, %globaltimer;"
    return f"""
    mul.wide.u32 a, {written}, {SLOT_BYTES}; add.s64 a, a, {track};
    add.u32 {written}, {written}, 1; mov.b32 t, {int(TrackState.EXITED)};
    {timer + clock if begins else clock + timer}
    @{guard} st.global.v2.b32 [{track}+{HEADER_AT["written"]}], {{{written}, t}};
    @{guard} st.global.v2.b64 [{track}+{HEADER_AT["exit_clock"]}], {{clk, ns}};
    cvt.u32.u64 t, clk;
    @{fits} st.global.v2.b32 [a+{HEADER_BYTES}], {{{word}, t}};"""


def emit(body: str, constraints: str, arguments: list[Any], results: Any, semantic: Any, what: str) -> Any:
    """Emit inline assembly with these registers: predicates p q f, 32-bit b g k n r s t w x y z, 64-bit a c clk ns."""
    if semantic is None:
        raise WarplensError(f"{what} is not supported under TRITON_INTERPRET=1; use the marks of warplens.triton there")
    declarations = ".reg .pred p, q, f; .reg .b32 b, g, k, n, r, s, t, w, x, y, z; .reg .b64 a, c, clk, ns;"
    return core.inline_asm_elementwise(
        f"{{\n    {declarations}{body}\n}}",
        constraints + ",~{memory}",
        arguments,
        dtype=results,
        is_pure=False,
        pack=1,
        _semantic=semantic,
    )


def scalar(v: Any, dtype: Any, what: str, semantic: Any) -> Any:
    """Convert a number, constexpr or scalar tensor to a scalar of `dtype`, and a pointer to its address."""
    tensor = semantic.to_tensor(core._unwrap_if_constexpr(v))
    if tensor.type.is_block():
        raise WarplensError(f"{what} is a block of shape {tensor.shape}; expected a scalar")
    if tensor.dtype.is_ptr():
        return tensor.to(tl.int64, bitcast=True, _semantic=semantic)
    return tensor.to(dtype, _semantic=semantic)
