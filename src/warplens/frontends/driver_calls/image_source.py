"""The PTX of code that is given to the driver: kept when the code was assembled, next to it, or inside it."""

from __future__ import annotations

from collections.abc import Sequence

from warplens.frontends.assembled_ptx import ptx_store
from warplens.frontends.driver_calls.fat_binary import best_ptx, machine_codes
from warplens.sass.cubin_file import SassError, read_cubin_file


def ptx_of_image(image: bytes, capability: str) -> str | None:
    """The PTX of the code in a fat binary or cubin that this device runs; None where it cannot be had. Raises
    WarplensError or ValueError where it is there and cannot be used."""
    codes = [image, *machine_codes(image, capability)]
    kept = ptx_store.find(codes)
    if kept is not None:
        return kept
    try:
        return best_ptx(image, capability) or _ptx_inside(codes)
    except ValueError:
        if inside := _ptx_inside(codes):
            return inside
        raise


def _ptx_inside(codes: Sequence[bytes]) -> str | None:
    """What ptxas -lineinfo puts into machine code: its PTX, without comments and lines of the source."""
    for code in codes:
        try:
            if text := read_cubin_file(code).ptx:
                return text
        except SassError:
            continue
    return None
