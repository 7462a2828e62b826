"""What differs between AMD's GPUs in the code that records: buffer descriptors, and where a wave runs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from warplens.errors import WarplensError

TIMER_NS = 10
"""One tick of the real-time counter, which runs at 100 MHz."""
SHORT_CLOCK_BITS = 20
"""The bits of SHADER_CYCLES, the clock of the gfx11 family."""

_RAW = 7 << 12 | 4 << 15
"""The flags of a raw buffer's descriptor, as Triton's own buffer operations set them."""
_RDNA = 1 << 24 | 3 << 28
"""On gfx10 and gfx11, also the bits that check bounds as for a raw buffer."""
_HW_ID, _HW_ID1, _XCC_ID = 4, 23, 20


@dataclass(frozen=True)
class GpuTraits:
    """How one GPU is recorded.

    `place` lists what identifies the compute unit: the hardware register, the first bit and the number of bits of each
    field, the lowest field first.
    """

    arch: str
    lanes: int
    flags: int
    clock_bits: int
    place: tuple[tuple[int, int, int], ...]

    def hardware_register(self, field: tuple[int, int, int]) -> int:
        """The operand of s_getreg that reads a field."""
        register, first, bits = field
        return register | first << 6 | bits - 1 << 11


_CDNA = ((_HW_ID, 8, 8), (_XCC_ID, 0, 4))
"""CU (4 bits), shader array (1) and shader engine (3) are neighbours; above them the number of the die (XCC)."""
_WGP = ((_HW_ID1, 10, 4), (_HW_ID1, 16, 1), (_HW_ID1, 18, 3))
"""Work-group processor, shader array, shader engine."""

_FAMILIES = (
    (re.compile(r"gfx94[0-2]$|gfx950$"), 64, _RAW, 64, _CDNA),
    (re.compile(r"gfx11[0-9a-f]{2}$"), 32, _RAW | _RDNA, SHORT_CLOCK_BITS, _WGP),
    (re.compile(r"gfx125[0-9a-f]$"), 32, _RAW, 64, _WGP),
)


def gpu_traits(arch: str, lanes: int) -> GpuTraits:
    """How a GPU is recorded; refuses one whose registers are not known here."""
    for pattern, usual, flags, bits, place in _FAMILIES:
        if pattern.match(arch) and lanes == usual:
            return GpuTraits(arch, lanes, flags, bits, place)
    raise WarplensError(
        f"marks cannot be woven for {arch} with {lanes} lanes per wave: known are gfx94x and gfx950 with 64, and "
        "gfx11xx and gfx125x with 32"
    )
