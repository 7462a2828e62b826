"""A woven module as whoever assembles it makes it best: with less kept in registers where that makes it spill, and in
few more registers than the plain one; see registers.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

from warplens.weave.fit.registers import HARMLESS, allowance, limitable, limited
from warplens.weave.weaver import Woven, weave
from warplens.weave.weaving import AnyBuffer, Weaving

T = TypeVar("T")
Taken = Mapping[str, Mapping[str, int]]
"""`registers` and `local_bytes` of a module's kernels."""


class Assembler(Protocol[T]):
    """Makes machine code of PTX."""

    def assemble(self, text: str) -> T: ...

    def taken(self, build: T, kernels: Mapping[str, int]) -> Taken:
        """What `kernels` take."""

    def drop(self, build: T) -> None:
        """Give a module back that is not kept."""


@dataclass(frozen=True)
class Fitted(Generic[T]):
    """A module, the woven text it is made of, and its kernels' registers without marks, if they were looked at."""

    build: T
    woven: Woven
    plain: Mapping[str, int] = field(default_factory=dict)


def fitted(assembler: Assembler[T], text: str, buffer: AnyBuffer, how: Weaving) -> Fitted[T]:
    """Weave the PTX and have it assembled."""
    made = _made(assembler, text, buffer, how)
    taken = assembler.taken(made.build, made.woven.entries)
    for lean in (replace(how, keep=0), replace(how, keep=0, join=False)):
        if not _spilled(taken):
            break
        other = _made(assembler, text, buffer, lean)
        if _spilled(now := assembler.taken(other.build, other.woven.entries)) < _spilled(taken):
            made, other, taken = other, made, now
        assembler.drop(other.build)
    return _limited(assembler, text, made, taken) if how.limit and limitable(text) else made


def _made(assembler: Assembler[T], text: str, buffer: AnyBuffer, how: Weaving) -> Fitted[T]:
    woven = weave(text, buffer=buffer, how=how)
    return Fitted(assembler.assemble(woven.text), woven)


def _limited(assembler: Assembler[T], text: str, made: Fitted[T], free: Taken) -> Fitted[T]:
    """The module with a limit for the kernels that take too many registers, apart from those that it makes spill."""
    if all(taken["registers"] <= HARMLESS for taken in free.values()):
        return made
    unmarked = assembler.assemble(text)
    plain = {name: taken["registers"] for name, taken in assembler.taken(unmarked, made.woven.entries).items()}
    assembler.drop(unmarked)
    made = replace(made, plain=plain)
    limits = {name: allowance(count) for name, count in plain.items() if free[name]["registers"] > allowance(count)}
    while limits:
        other = replace(made, build=assembler.assemble(limited(made.woven.text, limits)))
        now = assembler.taken(other.build, made.woven.entries)
        fine = {name: most for name, most in limits.items() if now[name]["local_bytes"] <= free[name]["local_bytes"]}
        assembler.drop((made if fine == limits else other).build)
        if fine == limits:
            return other
        limits = fine
    return made


def _spilled(taken: Taken) -> int:
    return sum(resources["local_bytes"] for resources in taken.values())
