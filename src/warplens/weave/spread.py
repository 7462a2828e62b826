"""Records spread over a warp's lanes, written by one store per block of marks.

An SM takes three cycles per 8-byte store, however few lanes take part, and a store of several lanes side by side costs
no more. So where the warp is whole, lane i keeps the block's i-th record: every lane from the i-th on reads the clock
at mark i, the lanes behind it read again at theirs, and at the block's end one store writes all of them.
"""

from __future__ import annotations

from warplens.record.layout import SLOT_BYTES
from warplens.weave.blocks import Block
from warplens.weave.tracks import DECLARATIONS, ZERO, Track, text_of

LANES = 32
CLOCK, WORD = "%wl_sc", "%wl_sw"
IN_STEP = "\tbar.warp.sync 0xffffffff;"
"""Puts lanes that were split and have met again in step."""
_LANE = "%wl_l8"
"""Bytes from a track's position to this lane's slot."""


class SpreadTrack(Track):
    """A track whose state all lanes of the warp keep alike; lane 0 alone writes what is not spread."""

    declarations = DECLARATIONS + f"\n\t.reg .b32 {_LANE}, {CLOCK}, {WORD};\n\t.reg .pred %wl_o;"
    leader = "%wl_q"

    def _lane(self) -> str:
        return f"and.b32 {_LANE}, %wl_t, 31; shl.b32 {_LANE}, {_LANE}, 3; shr.u32 %wl_t, %wl_t, 5;"

    def _lead(self, predicate: str = "%wl_p") -> list[str]:
        return [f"setp.eq.and.u32 {self.leader}, {_LANE}, 0, {predicate};"]

    def claim(self, slots: int) -> str:
        """Claim `slots` slots for the first lanes. A predicate takes 13 cycles, so none waits for another."""
        return text_of([
            f"setp.lt.and.u32 %wl_o, {_LANE}, {slots * SLOT_BYTES}, %wl_p;",
            "setp.le.and.u32 %wl_o, %wl_lo, %wl_lim, %wl_o;",
            "setp.le.and.u32 %wl_p, %wl_lo, %wl_lim, %wl_p;",
            f"add.u32 %wl_t, %wl_lo, {_LANE}; mov.b64 %wl_a, {{%wl_t, %wl_hi}};",
            f"add.u32 %wl_lo, %wl_lo, {slots * SLOT_BYTES};",
        ])  # fmt: skip

    def write(self, word: str) -> str:
        """Each lane that claimed a slot writes its record."""
        return text_of([f"@%wl_o st.global.v2.b32 [%wl_a], {{{word}, {CLOCK}}};"])


def from_lane(slot: int) -> str:
    """Text that makes %wl_q true in the lanes from the one that keeps `slot` on."""
    return f"\tsetp.ge.u32 %wl_q, {_LANE}, {slot * SLOT_BYTES};"


def read_clock(slot: int) -> str:
    return f"\t{'@%wl_q ' if slot else ''}mov.u32 {CLOCK}, %clock;"


def put(slot: int, register: str, value: str) -> str:
    return f"\t{'@%wl_q ' if slot else ''}mov.b32 {register}, {value};"


def kept_words(register: str, words: list[int]) -> list[str]:
    """Each lane's word of a block, built where ptxas cannot see that it is a constant."""
    lines = [f"\tadd.u32 {register}, {ZERO}, {words[0]};"]
    for slot, word in enumerate(words[1:], 1):
        lines += [from_lane(slot), f"\t@%wl_q add.u32 {register}, {ZERO}, {word};"]
    return lines


def fits(block: Block) -> bool:
    return block.slots <= LANES
