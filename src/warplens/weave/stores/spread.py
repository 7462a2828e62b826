"""Records spread over a warp's lanes, written by one store per run of marks.

An SM takes three cycles per 8-byte store, however few lanes take part, and a store of several lanes side by side costs
no more. So where the warp is whole, lane i keeps the run's i-th record: every lane from the i-th on reads the clock
at mark i, the lanes behind it read again at theirs, and at the end one store writes all of them. Blocks that are always
passed in turn share that store (see chain_blocks.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from warplens.record.layout import HEADER_BYTES, SLOT_BYTES
from warplens.weave.track_ptx import DECLARATIONS, ZERO, Track, text_of

LANES = 32
BEYOND = 2 * LANES
"""Slots that a track has behind `lim`, for every lane and for a claim that is not cut yet: low words must not wrap in
the last track below a 4 GiB line."""
KEPT = 5
"""Predicates that a kernel's loops may hold; there are seven, and the kernel needs some."""
CLOCK, WORD = "%wl_sc", "%wl_sw"
STORED = "%wl_sd"
"""The clocks of a run whose store must not hold up the next run's first read."""
IN_STEP = "\tbar.warp.sync 0xffffffff;"
"""Puts lanes that were split and have met again in step."""
_CHOOSE = "0xd8"
"""Of each bit, the second operand's where the third is set, else the first's."""
LANE = "%wl_l8"
"""Bytes from a track's position to this lane's slot."""
POSITION = "%wl_at"
"""Where this lane's slot of the last claim ends. As one register: ptxas keeps two that are joined per store apart."""
COUNT = "%wl_n"
"""Slots claimed, those that did not fit too."""


class SpreadTrack(Track):
    """A track whose state all lanes of the warp keep. When it is full the position stops at `lim`, so that what is
    claimed from then on goes into the slack, and only the count goes on. Lane 0 alone writes what is not spread; in a
    warp that does not record no lane has a slot."""

    declarations = DECLARATIONS + f"\n\t.reg .b32 {LANE}, {COUNT}, {CLOCK}, {WORD}, {STORED};\n\t.reg .b64 {POSITION};"
    leader = "%wl_q"
    awaited = "%wl_lim"
    """The high word is taken from the position at each claim: what was added to it would be lost, and the wait too."""

    def _lane(self) -> str:
        return f"and.b32 {LANE}, %wl_t, 31; shl.b32 {LANE}, {LANE}, 3; shr.u32 %wl_t, %wl_t, 5;"

    def _lead(self, predicate: str = "%wl_p") -> list[str]:
        return [f"setp.eq.and.u32 {self.leader}, {LANE}, 0, {predicate};"]

    def _start(self) -> list[str]:
        return [
            f"mov.b32 %wl_t, 1; shl.b32 %wl_t, %wl_t, %wl_s; sub.u32 %wl_t, %wl_t, {BEYOND * SLOT_BYTES};",
            f"add.u32 %wl_lo, %wl_lo, {LANE}; add.u32 %wl_lim, %wl_lo, %wl_t;",
            f"add.u32 %wl_lo, %wl_lo, {HEADER_BYTES}; mov.b32 {COUNT}, 0; selp.b32 {LANE}, {LANE}, -1, %wl_p;",
            f"mov.b64 {POSITION}, {{%wl_lo, %wl_hi}};",
        ]

    def step(self, slots: int) -> str:
        return text_of([self.claim(slots), f"mov.b64 %wl_a, {POSITION};", f"setp.eq.u32 {self.leader}, {LANE}, 0;"])

    def claim(self, slots: int) -> str:
        """Claim `slots` slots. One add-and-min, not a predicate: those take 13 cycles, and the store would wait."""
        return text_of([
            f"mov.b64 {{%wl_lo, %wl_hi}}, {POSITION}; add.u32 %wl_lo, %wl_lo, {slots * SLOT_BYTES};",
            f"min.u32 %wl_lo, %wl_lo, %wl_lim; mov.b64 {POSITION}, {{%wl_lo, %wl_hi}};",
            f"add.u32 {COUNT}, {COUNT}, {slots};",
        ])  # fmt: skip

    def write(self, slots: int, beyond: str, word: str, clock: str) -> str:
        """All lanes but those `beyond` the first `slots` write a record each into the slots claimed last."""
        return text_of([f"@!{beyond} st.global.v2.b32 [{POSITION}+{-slots * SLOT_BYTES}], {{{word}, {clock}}};"])

    def _exit_header(self) -> list[str]:
        # Added to a zero that ptxas cannot see, the count may stay in a uniform register until here.
        return [
            self._pointer(),
            f"setp.eq.u32 {self.leader}, {LANE}, 0;",
            f"mov.b32 %wl_t, -1; shl.b32 %wl_t, %wl_t, %wl_s; mov.b64 {{%wl_lo, %wl_hi}}, {POSITION};",
            "and.b32 %wl_lo, %wl_lo, %wl_t; mov.b64 %wl_a, {%wl_lo, %wl_hi};",
            f"add.u32 %wl_s, {COUNT}, {ZERO};",
        ]


class Lanes:
    """Chooses the lanes from a slot's on. A predicate takes 13 cycles to make, and a clock read must not wait for it:
    the predicates of a few slots in loops are made in the opening and stay; the others are made behind the read."""

    def __init__(self, slots: Iterable[int] = ()) -> None:
        """`slots`: where reads in loops are, in order, and where their stores end."""
        self._kept = list(dict.fromkeys((1, *(slot for slot in slots if slot))))[:KEPT]

    def read(self, slot: int) -> list[str]:
        """The clock, in the lanes from the one that keeps `slot` on."""
        if slot == 0 or slot in self._kept:
            return self.put(slot, CLOCK, "%clock")
        return self._read_aside(slot, CLOCK)

    def first(self, following: int) -> list[str]:
        """The clock, in the lanes before those that keep the slot of the `following` read and what comes behind it.
        The others keep what they had, so that the register stays this one's."""
        guard = f"@!%wl_h{following} " if following in self._kept else ""
        return [f"\t{guard}mov.b32 {CLOCK}, %clock;"]

    def last(self, slot: int) -> list[str]:
        """As `read`, but all clocks of the run come into a register that the next run's reads leave alone: a store
        reads its own late, and until then nothing may be written there."""
        if slot in self._kept:
            return [*self.put(slot, "%wl_t", "%clock"), f"\tselp.b32 {STORED}, %wl_t, {CLOCK}, %wl_h{slot};"]
        return self._read_aside(slot, STORED)

    def _read_aside(self, slot: int, into: str) -> list[str]:
        # Bits, not the slot's predicate: ptxas would put that on the read. But one that is there already: without any
        # it reads for all lanes alike, by the slower uniform path.
        chosen = f"sub.u32 %wl_u, {slot * SLOT_BYTES - 1}, {LANE}; shr.s32 %wl_u, %wl_u, 31;"
        return [*self.put(1, "%wl_t", "%clock"), f"\t{chosen} lop3.b32 {into}, {CLOCK}, %wl_t, %wl_u, {_CHOOSE};"]

    def put(self, slot: int, register: str, value: str) -> list[str]:
        """A value, in the same lanes."""
        made, name = self.beyond(slot)
        return [*made, f"\t{f'@{name} ' if slot else ''}mov.b32 {register}, {value};"]

    def beyond(self, slot: int) -> tuple[list[str], str]:
        """The predicate that is true in those lanes, and the text that makes it."""
        if slot in self._kept:
            return [], f"%wl_h{slot}"
        return [f"\tsetp.ge.u32 %wl_q, {LANE}, {slot * SLOT_BYTES};"] * bool(slot), "%wl_q"

    def opening(self) -> list[str]:
        # From a copy that ends here: ptxas would make a predicate again where it is used if it still had the lane.
        made = [
            f"\t.reg .pred %wl_h{slot};\n\tsetp.ge.u32 %wl_h{slot}, %wl_u, {slot * SLOT_BYTES};" for slot in self._kept
        ]
        return [f"\tadd.u32 %wl_u, {LANE}, {ZERO};", *made]

    def words(self, register: str, words: list[int]) -> list[str]:
        """Each lane's word of a run, built where ptxas cannot see that it is a constant."""
        lines = [f"\tadd.u32 {register}, {ZERO}, {words[0]};"]
        for slot, word in enumerate(words[1:], 1):
            made, name = self.beyond(slot)
            lines += [*made, f"\t@{name} add.u32 {register}, {ZERO}, {word};"]
        return lines
