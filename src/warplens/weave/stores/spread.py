"""Records spread over the lanes of a warp and written by one coalesced store per chain of marks.

An SM takes three cycles per 8-byte store no matter how few lanes are active, and a coalesced store of several lanes
costs no more. So where the warp is converged, lane i keeps the i-th record of the chain: lane i and all higher lanes
read the clock at mark i, the higher lanes read it again at their own marks, and at the end one store writes all
records. Blocks that always execute one after the other share that store (see block_chains.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from warplens.record.layout import HEADER_BYTES, SLOT_BYTES
from warplens.weave.track_ptx import DECLARATIONS, ZERO, Track, text_of

LANES = 32
SPREAD_SLACK = 2 * LANES
"""Slots of a track past `lim`, for all lanes and for a claim that is not yet clamped, so that low words do not wrap in
the last track before a 4 GiB boundary."""
MAX_KEPT_PREDICATES = 5
"""The maximum number of predicates kept across loops; the hardware has seven, and the kernel needs some."""
CLOCK, WORD = "%wl_sc", "%wl_sw"
STORED = "%wl_sd"
"""The clocks of a chain, where its store must not delay the first clock read of the next chain."""
RECONVERGE = "\tbar.warp.sync 0xffffffff;"
"""Makes lanes execute together again after they diverged."""
_CHOOSE = "0xd8"
"""The lop3 table that selects, bit by bit, the second operand where the third is set, and the first elsewhere."""
LANE = "%wl_l8"
"""Bytes from the track's position to this lane's slot; -1 in a warp that does not record."""
POSITION = "%wl_at"
"""The end of this lane's slot of the last claim, as one 64-bit register, which saves ptxas a copy per store."""
COUNT = "%wl_n"
"""The number of slots claimed, including those that did not fit."""


class SpreadTrack(Track):
    """A track whose state all lanes of the warp keep.

    When it is full, the position stops at `lim`, so that further records go to the slack and only the count increases.
    Lane 0 alone writes what is not spread. In a warp that does not record, no lane has a slot.
    """

    declarations = DECLARATIONS + f"\n\t.reg .b32 {LANE}, {COUNT}, {CLOCK}, {WORD}, {STORED};\n\t.reg .b64 {POSITION};"
    leader = "%wl_q"
    awaited = "%wl_lim"
    """Not the high word: each claim reloads it from the position, which would discard the dependency."""

    def _lane(self) -> str:
        return f"and.b32 {LANE}, %wl_t, 31; shl.b32 {LANE}, {LANE}, 3; shr.u32 %wl_t, %wl_t, 5;"

    def _lead(self, predicate: str = "%wl_p") -> list[str]:
        return [f"setp.eq.and.u32 {self.leader}, {LANE}, 0, {predicate};"]

    def _start(self) -> list[str]:
        return [
            f"mov.b32 %wl_t, 1; shl.b32 %wl_t, %wl_t, %wl_s; sub.u32 %wl_t, %wl_t, {SPREAD_SLACK * SLOT_BYTES};",
            f"add.u32 %wl_lo, %wl_lo, {LANE}; add.u32 %wl_lim, %wl_lo, %wl_t;",
            f"add.u32 %wl_lo, %wl_lo, {HEADER_BYTES}; mov.b32 {COUNT}, 0; selp.b32 {LANE}, {LANE}, -1, %wl_p;",
            f"mov.b64 {POSITION}, {{%wl_lo, %wl_hi}};",
        ]

    def step(self, slots: int) -> str:
        return text_of([self.claim(slots), f"mov.b64 %wl_a, {POSITION};", f"setp.eq.u32 {self.leader}, {LANE}, 0;"])

    def claim(self, slots: int) -> str:
        """Claim `slots` slots with an add and a min. A predicate takes 13 cycles, and the store would wait for it."""
        return text_of([
            f"mov.b64 {{%wl_lo, %wl_hi}}, {POSITION}; add.u32 %wl_lo, %wl_lo, {slots * SLOT_BYTES};",
            f"min.u32 %wl_lo, %wl_lo, %wl_lim; mov.b64 {POSITION}, {{%wl_lo, %wl_hi}};",
            f"add.u32 {COUNT}, {COUNT}, {slots};",
        ])  # fmt: skip

    def write(self, slots: int, beyond: str, word: str, clock: str) -> str:
        """Write one record per lane into the last `slots` claimed slots; lanes `beyond` them write nothing."""
        return text_of([f"@!{beyond} st.global.v2.b32 [{POSITION}+{-slots * SLOT_BYTES}], {{{word}, {clock}}};"])

    def _exit_header(self) -> list[str]:
        # Adding ZERO lets ptxas keep the count in a uniform register until here.
        return [
            self._pointer(),
            f"setp.eq.u32 {self.leader}, {LANE}, 0;",
            f"mov.b32 %wl_t, -1; shl.b32 %wl_t, %wl_t, %wl_s; mov.b64 {{%wl_lo, %wl_hi}}, {POSITION};",
            "and.b32 %wl_lo, %wl_lo, %wl_t; mov.b64 %wl_a, {%wl_lo, %wl_hi};",
            f"add.u32 %wl_s, {COUNT}, {ZERO};",
        ]


class Lanes:
    """Selects lane n and all higher lanes, for slot n.

    A predicate takes 13 cycles to compute, and a clock read must not wait for it. The predicates of a few slots in
    loops are computed in the prologue and kept; the others are computed after the clock read.
    """

    def __init__(self, slots: Iterable[int] = ()) -> None:
        """`slots` are the slots of clock reads in loops, in order, and the ends of their stores."""
        self._precomputed = list(dict.fromkeys((1, *(slot for slot in slots if slot))))[:MAX_KEPT_PREDICATES]

    def read(self, slot: int) -> list[str]:
        """Read the clock in the lane that keeps `slot` and in all higher lanes."""
        if slot == 0 or slot in self._precomputed:
            return self.put(slot, CLOCK, "%clock")
        return self._read_aside(slot, CLOCK)

    def first(self, following: int) -> list[str]:
        """Read the clock in the lanes below the slot of the `following` read.

        The other lanes keep their value, so that ptxas does not use another register.
        """
        guard = f"@!%wl_h{following} " if following in self._precomputed else ""
        return [f"\t{guard}mov.b32 {CLOCK}, %clock;"]

    def last(self, slot: int) -> list[str]:
        """Like `read`, but collect all clocks of the chain in STORED, which the next chain's reads do not overwrite.

        A store reads its registers late, and a clock read into one of them would have to wait until then.
        """
        if slot in self._precomputed:
            return [*self.put(slot, "%wl_t", "%clock"), f"\tselp.b32 {STORED}, %wl_t, {CLOCK}, %wl_h{slot};"]
        return self._read_aside(slot, STORED)

    def _read_aside(self, slot: int, into: str) -> list[str]:
        # Select with a bit mask: ptxas would apply the slot's predicate to the read itself. The read has the predicate
        # of slot 1, because ptxas sends an unpredicated read through the slower uniform datapath.
        chosen = f"sub.u32 %wl_u, {slot * SLOT_BYTES - 1}, {LANE}; shr.s32 %wl_u, %wl_u, 31;"
        return [*self.put(1, "%wl_t", "%clock"), f"\t{chosen} lop3.b32 {into}, {CLOCK}, %wl_t, %wl_u, {_CHOOSE};"]

    def put(self, slot: int, register: str, value: str) -> list[str]:
        """Set a register in the lane that keeps `slot` and in all higher lanes."""
        made, name = self.beyond(slot)
        return [*made, f"\t{f'@{name} ' if slot else ''}mov.b32 {register}, {value};"]

    def beyond(self, slot: int) -> tuple[list[str], str]:
        """The predicate of the lanes from `slot` on, and the PTX that computes it."""
        if slot in self._precomputed:
            return [], f"%wl_h{slot}"
        return [f"\tsetp.ge.u32 %wl_q, {LANE}, {slot * SLOT_BYTES};"] * bool(slot), "%wl_q"

    def opening(self) -> list[str]:
        # From a copy of the lane that is dead afterwards; ptxas would otherwise recompute the predicate at each use.
        made = [
            f"\t.reg .pred %wl_h{slot};\n\tsetp.ge.u32 %wl_h{slot}, %wl_u, {slot * SLOT_BYTES};"
            for slot in self._precomputed
        ]
        return [f"\tadd.u32 %wl_u, {LANE}, {ZERO};", *made]

    def words(self, register: str, words: list[int]) -> list[str]:
        """Set each lane's record word of a chain, in a way that hides from ptxas that it is a constant."""
        lines = [f"\tadd.u32 {register}, {ZERO}, {words[0]};"]
        for slot, word in enumerate(words[1:], 1):
            made, name = self.beyond(slot)
            lines += [*made, f"\t@{name} add.u32 {register}, {ZERO}, {word};"]
        return lines
