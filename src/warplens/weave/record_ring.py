"""The latest records of a warp, besides its statistics (`mode="aggregate"` with `full="ring"`).

A ring has a fixed number of slots, a power of two, behind the rows of the track. Its records are those of
`mode="trace"`. The number of slots written is stored at the exit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from warplens.record.aggregate_rows import AggregateLayout
from warplens.record.layout import HEADER_BYTES, SLOT_BYTES
from warplens.weave.mark_comments import PAYLOAD, Mark
from warplens.weave.record_words import RecordWords

CLOCK = "%wl_rk"
"""The clock of the newest marks."""
_WRITTEN = "%wl_rw"
"""The bytes written so far."""


class RecordRing:
    """The PTX of a ring. Region names have the ids `numbers`; `new` declares a register of a type."""

    def __init__(self, layout: AggregateLayout, numbers: Mapping[str, int], new: Callable[[str], str]) -> None:
        self._layout, self._words, self._new = layout, RecordWords(numbers), new

    def declarations(self) -> list[str]:
        return [f"\t.reg .b32 {CLOCK}, {_WRITTEN}; mov.b32 {_WRITTEN}, 0;", *self._words.declarations()]

    def record(self, mark: Mark) -> tuple[list[str], list[str]]:
        """PTX for the place of a mark, and PTX that stores its record, which may wait until the next clock is read."""
        word, now = self._words.operand(mark)
        stores = [*self._slot(f"v2.b32 {{}}, {{{{{word}, {CLOCK}}}}}")]
        if mark.kind in PAYLOAD:
            payload, text = self._words.payload(mark)
            now, stores = [*now, *text], [*self._slot(f"b64 {{}}, {payload}"), *stores]
        return now, stores

    def closing(self) -> list[str]:
        slots, at = self._new("b32"), HEADER_BYTES + self._layout.ring_at
        return [f"\tshr.u32 {slots}, {_WRITTEN}, 3; @%wl_p st.global.b32 [%wl_a+{at}], {slots};"]

    def _slot(self, store: str) -> list[str]:
        """Store 8 bytes into the next slot; `store` has the place of the address open."""
        offset, place = self._new("b32"), self._new("b64")
        at = HEADER_BYTES + self._layout.ring_at + SLOT_BYTES
        return [
            f"\tand.b32 {offset}, {_WRITTEN}, {SLOT_BYTES * (self._layout.ring - 1)}; cvt.u64.u32 {place}, {offset};",
            f"\tadd.s64 {place}, %wl_a, {place}; add.u32 {_WRITTEN}, {_WRITTEN}, {SLOT_BYTES};",
            f"\t@%wl_p st.global.{store.format(f'[{place}+{at}]')};",
        ]
