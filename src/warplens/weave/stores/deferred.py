"""Records that wait in registers for the next marked block, with `store="defer"`.

A loop body that ends at its last mark has nothing to hide that mark's store behind; in the next turn there is. Where
every block leaves an even number of plain records, its last two wait: they share 16 aligned bytes, so one store writes
both; the price is one copied clock. Before the first block the registers hold words without a clock: they go to the end
of the header, which is not used.
"""

from __future__ import annotations

from collections.abc import Callable

from warplens.weave.mark_comments import Mark
from warplens.weave.mark_sites import MarkBlock

_WORDS, CLOCKS = ("%wl_pv", "%wl_pw"), ("%wl_pb", "%wl_pc")
LAST = CLOCKS[-1]
"""The clock of the last record of a block."""


class DeferredRecords:
    """The records that wait: how many, and the operands that hold them."""

    def __init__(self, blocks: list[MarkBlock], pair: bool, word: Callable[[Mark], int], kept: dict[int, str]) -> None:
        self.count = 2 if pair and all(_plain_pair(block) for block in blocks) else 1
        self.clocks = CLOCKS[-self.count :]
        self.words: list[str] = []
        for register, back in zip(_WORDS[-self.count :], range(-self.count, 0), strict=True):
            marks = [block.sites[back].mark for block in blocks]
            words = {word(mark) for mark in marks}
            # Where every block ends in the same record, its word needs no register of its own.
            same = len(words) == 1 and not any(mark.operand.startswith("%") for mark in marks)
            self.words.append(_operand(words.pop(), kept) if same else register)

    @property
    def value(self) -> str:
        """What one store writes."""
        return "{" + ", ".join(f"{word}, {clock}" for word, clock in zip(self.words, self.clocks, strict=True)) + "}"

    def opening(self) -> list[str]:
        registers = [*self.clocks, *(word for word in self.words if word in _WORDS)]
        return ["\t" + " ".join(f".reg .b32 {name}; mov.b32 {name}, 0;" for name in registers)]

    def note(self, words: list[str]) -> list[str]:
        """Keep the words of the records that now wait, where they differ from block to block."""
        return [f"\tmov.b32 {mine}, {word};" for mine, word in zip(self.words, words, strict=True) if mine in _WORDS]


def _plain_pair(block: MarkBlock) -> bool:
    return len(block.sites) > 1 and all(site.mark.slots == 1 for site in block.sites[-2:])


def _operand(word: int, kept: dict[int, str]) -> str:
    return kept.get(word, str(word))
