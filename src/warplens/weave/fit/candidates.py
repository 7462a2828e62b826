"""The weavings to try for a kernel, in order: each is expected to take fewer registers than the one before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from warplens.weave.fit.resources import Resources
from warplens.weave.weaving import Weaving

HOPELESS = {"fixed": 1.25, "light": 1.5}
"""By the weaving that is tried next: a kernel that takes this many times the registers it may take would spill under a
limit. In a loop, records wait in registers, which a light weaving does without."""
SMALL_SPILL = 16
"""Bytes of spills that a lean weaving may avoid."""
FAR_SPILLS, FAR_REGISTERS = 128, 1.6
"""A kernel that spills so many bytes more with all marks, or takes so many times the registers, is far from fitting."""


@dataclass(frozen=True)
class Candidate:
    """A weaving, and the most registers that a thread may take (0: no limit)."""

    how: Weaving
    registers: int = 0


def is_far_off(marked: Resources, plain: Resources) -> bool:
    """Return whether a kernel with marks is far from what it takes without them."""
    return marked.spills - plain.spills > FAR_SPILLS or marked.registers > FAR_REGISTERS * plain.registers


def named_weaving(how: Weaving, name: str) -> Weaving:
    """Return a variant of `how`: `asked` as it is, `light` with fewer registers, `lean` with fewest at the cost of more
    instructions, `fixed` with none between marks."""
    light = replace(_light(how), constants=False)
    variants = {"asked": how, "light": light, "lean": replace(light, lean=True)}
    return variants.get(name) or replace(how, fixed=True, shared=None)


def name_of(how: Weaving, chosen: Weaving) -> str:
    """Return the name of a variant of `how`."""
    return next((name for name in ("asked", "light", "lean") if named_weaving(how, name) == chosen), "fixed")


def automatic_candidates(
    how: Weaving,
    register_limit: Callable[[], int],
    latest: Callable[[], Resources],
    *,
    fits_fixed: Callable[[], bool] = lambda: False,
    marked_less: bool = False,
) -> Iterator[Candidate]:
    """Yield the candidates for one kernel with automatic marks: as asked, then under a register limit with fixed slots
    if no mark is in a loop (`fits_fixed`), else light, and last lean.

    `latest` returns what the candidate before takes: a limit is not worth trying if it is far off. With `marked_less`
    more marks did harm under the same limit, so the kernel starts with it. `register_limit` is called after the first
    candidate unless it needs it, since that takes the plain kernel.
    """
    if not marked_less:
        yield Candidate(how)
    limit, name = register_limit(), "fixed" if fits_fixed() else "light"
    if limit and not marked_less and latest().registers > HOPELESS[name] * limit:
        return
    first, lean = (Candidate(named_weaving(how, one), limit) for one in (name, "lean"))
    if first != Candidate(how):
        yield first
    if latest().spills <= SMALL_SPILL:
        yield lean


def fixed_candidates(how: Weaving, register_limit: Callable[[], int]) -> Iterator[Candidate]:
    """Yield the candidates for a kernel without marks in loops, or without any: no register is held between marks."""
    fixed = named_weaving(how, "fixed")
    yield Candidate(fixed)
    if limit := register_limit():
        yield Candidate(fixed, limit)


def limited_candidates(how: Weaving, registers: int) -> Iterator[Candidate]:
    """Yield the candidates for a kernel with hand-written marks under one register limit."""
    yield from (Candidate(how, registers), Candidate(replace(how, early=False, lean=True), registers))


def intercepted_candidates(how: Weaving, register_limit: int, *, aligned: bool) -> Iterator[Candidate]:
    """Yield the candidates for a kernel that another library compiled; `aligned` says that its blocks consist of whole
    warps along x."""
    if how.mode == "aggregate":
        how = replace(how, aligned=aligned)
    light = _light(how)
    yield from (Candidate(how), Candidate(light), Candidate(light, register_limit))
    if how.store == "auto":
        # One word and one clock serve all marks; those of single stores wait in registers through a loop, two each.
        spread = replace(light, store="spread", aligned=aligned)
        yield from (Candidate(spread), Candidate(spread, register_limit))


def module_candidates(how: Weaving) -> Iterator[Candidate]:
    """Yield the candidates for a module of CUDA C++ kernels with hand-written marks."""
    light = replace(how, keep=0, early=False)
    yield from (Candidate(how), Candidate(light), Candidate(replace(light, join=False)))


def _light(how: Weaving) -> Weaving:
    """Without words and addresses that wait in registers."""
    return replace(how, keep=0, early=False, store="late" if how.store == "auto" else how.store)
