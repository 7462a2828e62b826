"""Records that Triton code stores itself, for APIs that pass their buffer as a kernel argument.

A record is the 8 bytes of `record.layout`, made by one thread. Nobody tells when the kernel ends, so each record also
moves the track's exit to itself. Every address is checked before it is used: what does not fit is counted.
"""

from __future__ import annotations

from typing import Any

import triton.language as tl
from triton.language import core

from warplens.errors import WarplensError
from warplens.record.layout import HEADER, HEADER_BYTES, SLOT_BYTES, TRACK_MAGIC, TrackState

AT = {name: int(HEADER.fields[name][1]) for name in HEADER.names}  # type: ignore[index, union-attr]

BLOCK = """
    mov.u32 b, %ctaid.z; mov.u32 x, %nctaid.y; mov.u32 y, %ctaid.y; mad.lo.u32 b, b, x, y;
    mov.u32 x, %nctaid.x; mov.u32 y, %ctaid.x; mad.lo.u32 b, b, x, y;"""
"""b: the linear block; x: blocks along x."""


def start_track(guard: str, track: str, block: str, group: str) -> str:
    """Write a track's header under predicate `guard`; uses the registers t, s, clk and ns."""
    return f"""
    mov.u32 s, %smid; mov.b32 t, {TRACK_MAGIC};
    @{guard} st.global.v4.b32 [{track}], {{t, {block}, {group}, s}};
    mov.b32 t, 0; @{guard} st.global.v2.b32 [{track}+{AT["written"]}], {{t, t}};
    mov.u64 clk, %clock64; mov.u64 ns, %globaltimer;
    @{guard} st.global.v2.b64 [{track}+{AT["start_clock"]}], {{clk, ns}};"""


def write_record(guard: str, fits: str, track: str, written: str, word: str, *, begins: bool) -> str:
    """Append a record under `guard`, stored only under `fits`; `written` becomes the new count.

    Uses t, a, clk and ns. The clock is read at the inner edge of the region: last for a begin, first for an end.
    """
    clock, timer = "\n    mov.u64 clk, %clock64;", "\n    mov.u64 ns, %globaltimer;"
    return f"""
    mul.wide.u32 a, {written}, {SLOT_BYTES}; add.s64 a, a, {track};
    add.u32 {written}, {written}, 1; mov.b32 t, {int(TrackState.EXITED)};
    {timer + clock if begins else clock + timer}
    @{guard} st.global.v2.b32 [{track}+{AT["written"]}], {{{written}, t}};
    @{guard} st.global.v2.b64 [{track}+{AT["exit_clock"]}], {{clk, ns}};
    cvt.u32.u64 t, clk;
    @{fits} st.global.v2.b32 [a+{HEADER_BYTES}], {{{word}, t}};"""


def emit(body: str, constraints: str, arguments: list[Any], results: Any, semantic: Any, what: str) -> Any:
    """Inline asm with registers of its own: predicates p q f, 32-bit b g k n r s t w x y z, 64-bit a c clk ns."""
    if semantic is None:
        raise WarplensError(
            f"{what} stores its records from the GPU and does not run under TRITON_INTERPRET=1; "
            "the marks of warplens.triton do"
        )
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
    """`v` (a number, a constexpr or a scalar tensor) as a scalar of `dtype`; a pointer becomes its address."""
    tensor = semantic.to_tensor(core._unwrap_if_constexpr(v))
    if tensor.type.is_block():
        raise WarplensError(f"{what} is a block of shape {tensor.shape}: it must be a scalar")
    if tensor.dtype.is_ptr():
        return tensor.to(tl.int64, bitcast=True, _semantic=semantic)
    return tensor.to(dtype, _semantic=semantic)
