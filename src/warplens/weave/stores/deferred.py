"""Records that wait in registers until the next marked block (`store="defer"`).

A loop body that ends at its last mark has no instructions left to hide that mark's store behind, but the next iteration
has. Where every block writes an even number of plain records, its last two are deferred: they share 16 aligned bytes,
so that one store writes both, at the price of copying one clock. Before the first block the registers hold no record;
the first deferred store then goes to the end of the header, which is unused.
"""

from __future__ import annotations

from collections.abc import Callable

from warplens.weave.mark_comments import Mark
from warplens.weave.mark_sites import MarkBlock

_WORDS, CLOCKS = ("%wl_pv", "%wl_pw"), ("%wl_pb", "%wl_pc")
LAST = CLOCKS[-1]
"""The register with the clock of a block's last record."""


class DeferredRecords:
    """The deferred records of a function: how many, and the operands that hold them."""

    def __init__(
        self, blocks: list[MarkBlock], pair: bool, word: Callable[[Mark], int], in_registers: dict[int, str]
    ) -> None:
        self.count = 2 if pair and all(_plain_pair(block) for block in blocks) else 1
        self.clocks = CLOCKS[-self.count :]
        self.words: list[str] = []
        for register, back in zip(_WORDS[-self.count :], range(-self.count, 0), strict=True):
            marks = [block.sites[back].mark for block in blocks]
            words = {word(mark) for mark in marks}
            # Where every block ends in the same record, its word needs no register.
            same = len(words) == 1 and not any(mark.operand.startswith("%") for mark in marks)
            self.words.append(_operand(words.pop(), in_registers) if same else register)

    @property
    def value(self) -> str:
        """The vector operand of the store that writes the deferred records."""
        return "{" + ", ".join(f"{word}, {clock}" for word, clock in zip(self.words, self.clocks, strict=True)) + "}"

    def opening(self) -> list[str]:
        registers = [*self.clocks, *(word for word in self.words if word in _WORDS)]
        return ["\t" + " ".join(f".reg .b32 {name}; mov.b32 {name}, 0;" for name in registers)]

    def note(self, words: list[str]) -> list[str]:
        """Save the words of the newly deferred records, unless they are the same in every block."""
        return [
            f"\tmov.b32 {register}, {word};"
            for register, word in zip(self.words, words, strict=True)
            if register in _WORDS
        ]


def _plain_pair(block: MarkBlock) -> bool:
    return len(block.sites) > 1 and all(site.mark.slots == 1 for site in block.sites[-2:])


def _operand(word: int, in_registers: dict[int, str]) -> str:
    return in_registers.get(word, str(word))
