"""Runs: blocks of a function whose records wait in the lanes of a warp, and one store for each; see spread.py."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from warplens.ptx.divergence import Wholeness
from warplens.ptx.tree import Raw
from warplens.weave.mark_comments import PAYLOAD
from warplens.weave.mark_sites import Block, MarkSite
from warplens.weave.record_words import Words
from warplens.weave.stores import spread
from warplens.weave.weaving import Weaving

Run = list[Block]


class Runs:
    """The runs of one function; `opcodes` are those of its instructions."""

    def __init__(self, runs: list[Run], whole: Wholeness, words: Words, how: Weaving, opcodes: set[str]) -> None:
        self._runs, self._whole, self._words, self._fuse = runs, whole, words, how.fuse
        # A matrix product's accumulators fill the registers, and it takes longer than the store's reads.
        self._crowded = bool(opcodes & {"mma", "wgmma"})
        loops = [run for run in runs if run[0].in_loop]
        reads = [slot for run in loops for _, _, slot in self._reads(run)]
        self._lanes = spread.Lanes([*reads, *map(_slots, loops)])
        self._kept: dict[int, str] = {}
        """Registers that hold each lane's word of a run in a loop."""
        for run in loops:
            plain = all(site.mark.slots == 1 and not site.mark.operand for block in run for site in block.sites)
            if plain and len(self._kept) < how.keep:
                self._kept[run[0].order] = words.new("%wl_k")

    def holds(self, block: Block) -> bool:
        """Whether the block is part of a run."""
        return any(block is one for run in self._runs for one in run)

    def opening(self) -> list[str]:
        """What the kernel's opening makes for the marks."""
        lines = self._lanes.opening() if self._runs else []
        for run in self._runs:
            if run[0].order in self._kept:
                words = [self._words.word(site.mark) for block in run for site in block.sites]
                lines += self._lanes.words(self._kept[run[0].order], words)
        return lines

    def weave(self, track: spread.SpreadTrack, constants: Callable[[Block], list[str]]) -> None:
        """Record all runs. `constants` is what a block's regions would otherwise build inside."""
        for run in self._runs:
            self._weave(run, track, constants)

    def _weave(self, run: Run, track: spread.SpreadTrack, constants: Callable[[Block], list[str]]) -> None:
        """Every lane from a mark's slot on reads the clock there; one store behind the last mark writes all records."""
        kept, slots = self._kept.get(run[0].order), _slots(run)
        reads, opened = self._reads(run), None
        made, beyond = self._lanes.beyond(slots)
        apart = kept is not None and len(reads) > 1 and not self._crowded
        for block, group, slot in reads:
            before: list[str] = []
            if block is not opened:
                before += constants(block)
                if self._whole.out_of_step(group[0].place.node):
                    before.append(spread.IN_STEP)
                opened = block
            text = self._group(group, slot, kept)
            if apart and group is reads[0][1]:
                text = self._lanes.first(reads[1][2])
            if group is reads[-1][1]:
                before += [*made, track.claim(slots)] if kept else [track.claim(slots)]
                text = self._lanes.last(slot) if apart else text
            group[0].place.after(Raw.of("\n".join(before + text)))
        store = track.write(slots, beyond, kept or spread.WORD, spread.STORED if apart else spread.CLOCK)
        run[-1].end.before(Raw.of("\n".join([store] if kept else [*made, store])))

    def _reads(self, run: Run) -> list[tuple[Block, list[MarkSite], int]]:
        """The marks of a run that share a clock read, and the first slot of each."""
        groups = [(block, group) for block in run for group in block.groups(self._fuse)]
        slots = itertools.accumulate((sum(site.mark.slots for site in group) for _, group in groups), initial=0)
        return [(block, group, slot) for (block, group), slot in zip(groups, slots, strict=False)]

    def _group(self, group: list[MarkSite], slot: int, kept: str | None) -> list[str]:
        """The clock read that the group's marks share, and what else of their records is not known before."""
        lanes = self._lanes
        text = [] if group[0].mark.kind in PAYLOAD else lanes.read(slot)
        for site in group:
            if site.mark.kind in PAYLOAD:
                payload, made = self._words.payload(site.mark)
                text += [*made, f"\tmov.b64 {{%wl_u, %wl_v}}, {payload};"]
                text += [*lanes.put(slot, spread.WORD, "%wl_u"), *lanes.put(slot, spread.CLOCK, "%wl_v")]
                slot += 1
                text += lanes.read(slot)
            if kept is None:
                word, made = self._words.operand(site.mark)
                text += [*made, *lanes.put(slot, spread.WORD, word)]
            slot += 1
        return text


def _slots(run: Run) -> int:
    return sum(block.slots for block in run)
