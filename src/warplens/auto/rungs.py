"""What to mark in a kernel, from all that was asked for down to nothing but the lives of its warps.

A kernel that marks would harm is marked less: a front end tries one rung after the other, and stops at the first that
does no harm.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from warplens.auto.rules import Auto

_DROPPED = ("edges", "lines", "loads", "loops", "stores", "reduce")
"""The classes to leave out, one after the other: the barriers of waits, without which all regions stay; the densest,
then loads, whose regions hold all of a load's values at once, then the counters of loops, then the other classes that
most kernels have."""


@dataclass(frozen=True)
class Rung:
    """What is marked: classes of operations (`auto`), regions that a warp passes once (`auto.coarse`), or nothing but
    the life of each warp (`auto` is empty), besides the kernel's own marks (`by_hand`)."""

    auto: Auto
    left_out: tuple[str, ...] = ()
    by_hand: bool = False

    @property
    def fixed(self) -> bool:
        """Whether no mark is in a loop, so that every record can have a fixed slot."""
        return self.lives_only or bool(self.auto.coarse)

    @property
    def lives_only(self) -> bool:
        return not self.auto and not self.by_hand

    def note(self, problem: str) -> str:
        """Say what is not marked, and why; empty if everything is."""
        if self.lives_only:
            return f"only the lifetime of each warp is recorded: {problem}"
        if self.auto.coarse:
            what = "its body and its outermost loops are" if self.auto.coarse == "loops" else "its body is"
            return f"only {what} marked: {problem}"
        classes = ["barrier edges" if kind == "edges" else kind for kind in self.left_out]
        return f"its {' and '.join(classes)} are not marked: {problem}" if classes else ""


def rungs(auto: Auto, *, keep_marks: bool = False, barriers: bool = False) -> Iterator[Rung]:
    """Yield the rungs from the top. With `keep_marks` the kernel has hand-written marks, which are never dropped: the
    rungs that would drop them are left out. Without `barriers` the kernel has none whose records could be dropped."""
    rung = Rung(auto, by_hand=keep_marks)
    yield rung
    for kind in _DROPPED:
        if kind == "edges" and not barriers:
            continue
        if rung.auto.wants(kind) and (len(rung.auto.classes) > 1 or rung.auto.ranges):
            classes = tuple(one for one in rung.auto.classes if one != kind)
            rung = replace(rung, auto=replace(rung.auto, classes=classes), left_out=(*rung.left_out, kind))
            yield rung
    if not keep_marks:
        yield from (Rung(Auto(coarse="loops", most=auto.most)), Rung(Auto(coarse="body", most=auto.most)), Rung(Auto()))
