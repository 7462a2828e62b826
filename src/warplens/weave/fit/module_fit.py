"""Assemble a woven module of several kernels: without spills where a lighter weaving avoids them, and in few more
registers than the plain module."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

from warplens.ptx.tree import PtxModule
from warplens.weave.fit.candidates import Candidate, module_candidates
from warplens.weave.fit.harm import Guard
from warplens.weave.fit.register_limit import FREE_REGISTERS, allowance, limitable, limited
from warplens.weave.fit.resources import Resources
from warplens.weave.fit.search import search
from warplens.weave.weaver import Woven, weave
from warplens.weave.weaving import AnyBuffer, Weaving

T = TypeVar("T")


class ModuleAssembler(Protocol[T]):
    """Makes machine code of PTX."""

    def assemble(self, text: str) -> T: ...

    def resources(self, build: T, kernels: Collection[str]) -> Mapping[str, Resources]:
        """Return what each of `kernels` takes."""

    def discard(self, build: T) -> None:
        """Free a build that is not used."""


@dataclass(frozen=True)
class FittedModule(Generic[T]):
    """An assembled module, the woven text it is made of, what its kernels take, and how many registers they take
    without marks, if that was measured."""

    build: T
    woven: Woven
    resources: Mapping[str, Resources]
    plain: Mapping[str, int] = field(default_factory=dict)


def fit_module(
    assembler: ModuleAssembler[T], module: PtxModule, buffer: AnyBuffer, how: Weaving, woven: Woven | None = None
) -> FittedModule[T]:
    """Weave a parsed module and assemble it. `woven` is the module woven as `how` says, if that was done already."""

    def assemble(candidate: Candidate) -> tuple[FittedModule[T], Resources]:
        known = woven if candidate.how == how else None
        text = known or weave(module, buffer=buffer, how=candidate.how)
        build = assembler.assemble(text.text)
        taken = assembler.resources(build, text.entries)
        return FittedModule(build, text, taken), Resources(spills=sum(one.spills for one in taken.values()))

    # The plain module is not assembled for this: any spill is reason enough to look for a lighter weaving.
    guard = Guard(Resources)
    made = search(module_candidates(how), assemble, guard, lambda loser: assembler.discard(loser.build)).build
    text = module.text()
    return _limited(assembler, text, made) if how.limit and limitable(text) else made


def _limited(assembler: ModuleAssembler[T], plain_text: str, made: FittedModule[T]) -> FittedModule[T]:
    """Limit the kernels that take too many registers, apart from those that a limit makes spill."""
    free = made.resources
    if all(taken.registers <= FREE_REGISTERS for taken in free.values()):
        return made
    unmarked = assembler.assemble(plain_text)
    plain = {name: one.registers for name, one in assembler.resources(unmarked, made.woven.entries).items()}
    assembler.discard(unmarked)
    made = replace(made, plain=plain)
    limits = {name: allowance(count) for name, count in plain.items() if free[name].registers > allowance(count)}
    while limits:
        text = limited(made.woven.text, limits)
        build = assembler.assemble(text)
        now = assembler.resources(build, made.woven.entries)
        harmless = {name: most for name, most in limits.items() if now[name].spills <= free[name].spills}
        if harmless == limits:
            assembler.discard(made.build)
            return replace(made, build=build, woven=replace(made.woven, text=text), resources=now)
        assembler.discard(build)
        limits = harmless
    return made
