"""Chains of mark blocks whose records wait in the lanes of a warp until one store writes them; see spread.py."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from warplens.ptx.divergence import Divergence
from warplens.ptx.tree import Raw
from warplens.weave.mark_comments import PAYLOAD
from warplens.weave.mark_sites import MarkBlock, MarkSite
from warplens.weave.record_words import RecordWords
from warplens.weave.stores import spread
from warplens.weave.weaving import Weaving

MarkChain = list[MarkBlock]


class SpreadChains:
    """The chains of one function; `opcodes` are those of its instructions."""

    def __init__(
        self, chains: list[MarkChain], divergence: Divergence, words: RecordWords, how: Weaving, opcodes: set[str]
    ) -> None:
        self._chains, self._divergence, self._words, self._fuse = chains, divergence, words, how.fuse
        self._chained = {id(block) for chain in chains for block in chain}
        # Accumulators of a matrix product leave no register for a copy of the clocks, and the product hides the store.
        self._crowded = bool(opcodes & {"mma", "wgmma"})
        loops = [chain for chain in chains if chain[0].in_loop]
        reads = [slot for chain in loops for _, _, slot in self._reads(chain)]
        self._lanes = spread.Lanes([*reads, *map(_slots, loops)])
        self._word_registers: dict[int, str] = {}
        """The register that holds each lane's record word, for chains in loops, by the order of their first block."""
        for chain in loops:
            plain = all(site.mark.slots == 1 and not site.mark.operands for block in chain for site in block.sites)
            if plain and len(self._word_registers) < how.keep:
                self._word_registers[chain[0].order] = words.new("%wl_k")

    def holds(self, block: MarkBlock) -> bool:
        """Whether the block is part of a chain."""
        return id(block) in self._chained

    def opening(self) -> list[str]:
        """The PTX in the kernel's prologue that prepares the marks."""
        lines = self._lanes.opening() if self._chains else []
        for chain in self._chains:
            if chain[0].order in self._word_registers:
                words = [self._words.word(site.mark) for block in chain for site in block.sites]
                lines += self._lanes.words(self._word_registers[chain[0].order], words)
        return lines

    def weave(self, track: spread.SpreadTrack, constants: Callable[[MarkBlock], list[str]]) -> None:
        """Record all chains. `constants` returns the PTX that builds a block's constants."""
        for chain in self._chains:
            self._weave(chain, track, constants)

    def _weave(self, chain: MarkChain, track: spread.SpreadTrack, constants: Callable[[MarkBlock], list[str]]) -> None:
        """Read the clock at each mark in the lanes from its slot on, and store all records after the last mark."""
        word_register, slots = self._word_registers.get(chain[0].order), _slots(chain)
        reads, entered = self._reads(chain), None
        made, beyond = self._lanes.beyond(slots)
        separate = word_register is not None and len(reads) > 1 and not self._crowded
        for block, group, slot in reads:
            before: list[str] = []
            if block is not entered:
                before += constants(block)
                if self._divergence.needs_reconvergence(group[0].position.node):
                    before.append(spread.RECONVERGE)
                entered = block
            text = self._group(group, slot, word_register)
            if separate and group is reads[0][1]:
                text = self._lanes.first(reads[1][2])
            if group is reads[-1][1]:
                before += [*made, track.claim(slots)] if word_register else [track.claim(slots)]
                text = self._lanes.last(slot) if separate else text
            group[0].position.after(Raw.of("\n".join(before + text)))
        store = track.write(slots, beyond, word_register or spread.WORD, spread.STORED if separate else spread.CLOCK)
        chain[-1].end.before(Raw.of("\n".join([store] if word_register else [*made, store])))

    def _reads(self, chain: MarkChain) -> list[tuple[MarkBlock, list[MarkSite], int]]:
        """The groups of marks in a chain that share a clock read, each with its block and first slot."""
        groups = [(block, group) for block in chain for group in block.groups(self._fuse)]
        slots = itertools.accumulate((sum(site.mark.slots for site in group) for _, group in groups), initial=0)
        return [(block, group, slot) for (block, group), slot in zip(groups, slots, strict=False)]

    def _group(self, group: list[MarkSite], slot: int, word_register: str | None) -> list[str]:
        """The clock read that the group's marks share, and the record words and payloads set at the marks."""
        lanes = self._lanes
        text = [] if group[0].mark.kind in PAYLOAD else lanes.read(slot)
        for site in group:
            if site.mark.kind in PAYLOAD:
                payload, made = self._words.payload(site.mark)
                text += [*made, f"\tmov.b64 {{%wl_u, %wl_v}}, {payload};"]
                text += [*lanes.put(slot, spread.WORD, "%wl_u"), *lanes.put(slot, spread.CLOCK, "%wl_v")]
                slot += 1
                text += lanes.read(slot)
            if word_register is None:
                word, made = self._words.operand(site.mark)
                text += [*made, *lanes.put(slot, spread.WORD, word)]
            slot += 1
        return text


def _slots(chain: MarkChain) -> int:
    return sum(block.slots for block in chain)
