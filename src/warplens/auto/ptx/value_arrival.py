"""How a mark waits for a value: an instruction that needs it, and that changes nothing."""

from __future__ import annotations

from warplens.weave.track_ptx import AWAITED, ZERO


def arrived(register: str, size: int) -> str:
    """Text that a warp cannot pass before the value in `register` (2, 4 or 8 bytes) is there: ptxas does not know that
    it adds zero to the high word of the records' pointer."""
    part = {2: f"mov.b32 %wl_t, {{{register}, {register}}};", 4: f"mov.b32 %wl_t, {register};"}
    take = part.get(size) or f"mov.b64 {{%wl_t, %wl_u}}, {register};"
    return f"{take} mad.lo.u32 {AWAITED}, %wl_t, {ZERO}, {AWAITED};"
