"""The weavings to try for a kernel, in order: each is expected to take fewer registers than the one before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from warplens.weave.weaving import Weaving


@dataclass(frozen=True)
class Candidate:
    """A weaving, and the most registers that a thread may take (0: no limit)."""

    how: Weaving
    registers: int = 0


def automatic_candidates(
    how: Weaving, register_limit: Callable[[], int], fits_fixed: Callable[[], bool] = lambda: False
) -> Iterator[Candidate]:
    """Yield the candidates for one kernel with automatic marks: as asked, light, then both under a register limit, and
    lean; last with fixed slots if `fits_fixed` says that no mark is in a loop. `register_limit` is called after the
    first candidate, since it needs the plain kernel assembled."""
    asked = Candidate(how)
    yield asked
    light = replace(_without_kept_words(how), constants=False)
    limit = register_limit()
    others = (
        Candidate(light), Candidate(how, limit), Candidate(light, limit), Candidate(replace(light, lean=True), limit)
    )  # fmt: skip
    yield from (candidate for candidate in dict.fromkeys(others) if candidate != asked)
    if fits_fixed():
        yield from fixed_candidates(how, lambda: limit)


def fixed_candidates(how: Weaving, register_limit: Callable[[], int]) -> Iterator[Candidate]:
    """Yield the candidates for a kernel without marks in loops, or without any: no register is held between marks."""
    fixed = replace(how, fixed=True, shared=None)
    yield Candidate(fixed)
    if limit := register_limit():
        yield Candidate(fixed, limit)


def limited_candidates(how: Weaving, registers: int) -> Iterator[Candidate]:
    """Yield the candidates for a kernel with hand-written marks under one register limit."""
    yield from (Candidate(how, registers), Candidate(replace(how, lean=True), registers))


def intercepted_candidates(how: Weaving, register_limit: int, *, aligned: bool) -> Iterator[Candidate]:
    """Yield the candidates for a kernel that another library compiled; `aligned` says that its blocks consist of whole
    warps along x."""
    light = _without_kept_words(how)
    yield from (Candidate(how), Candidate(light), Candidate(light, register_limit))
    if how.store == "auto":
        # One word and one clock serve all marks; those of single stores wait in registers through a loop, two each.
        spread = replace(light, store="spread", aligned=aligned)
        yield from (Candidate(spread), Candidate(spread, register_limit))


def module_candidates(how: Weaving) -> Iterator[Candidate]:
    """Yield the candidates for a module of CUDA C++ kernels with hand-written marks."""
    light = replace(how, keep=0)
    yield from (Candidate(how), Candidate(light), Candidate(replace(light, join=False)))


def _without_kept_words(how: Weaving) -> Weaving:
    return replace(how, keep=0, store="late" if how.store == "auto" else how.store)
