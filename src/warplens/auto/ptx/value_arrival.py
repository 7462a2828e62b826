"""PTX that makes a mark wait until a value has arrived."""

from __future__ import annotations

from warplens.weave.track_ptx import AWAITED, ZERO


def arrived(register: str, size: int) -> str:
    """PTX that stalls the warp until the value in `register` (2, 4 or 8 bytes) has arrived.

    It adds zero times the value to the high word of the record pointer; ptxas does not know that the factor is zero.
    """
    part = {2: f"mov.b32 %wl_t, {{{register}, {register}}};", 4: f"mov.b32 %wl_t, {register};"}
    take = part.get(size) or f"mov.b64 {{%wl_t, %wl_u}}, {register};"
    return f"{take} mad.lo.u32 {AWAITED}, %wl_t, {ZERO}, {AWAITED};"
