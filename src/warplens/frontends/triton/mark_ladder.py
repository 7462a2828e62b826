"""Compile a Triton kernel with as many automatic marks as do it no harm (auto/rungs.py)."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from warplens.auto.ptx import mark_barriers, mark_ptx
from warplens.auto.rules import Auto, RegionSite
from warplens.auto.rungs import Rung, rungs
from warplens.auto.ttgir import MarkedIR, mark_ttgir
from warplens.errors import WarplensError
from warplens.frontends.triton import plain_cache
from warplens.frontends.triton.block_shape import BlockShape
from warplens.frontends.triton.idle_cores import idle_cores
from warplens.frontends.triton.metadata_keys import METADATA
from warplens.frontends.triton.ptxas import ptxas_error
from warplens.frontends.triton.shared_memory import record_bytes
from warplens.frontends.triton.verdicts import Verdict, Verdicts
from warplens.weave.fit.candidates import (
    Candidate,
    automatic_candidates,
    fixed_candidates,
    is_far_off,
    name_of,
    named_weaving,
)
from warplens.weave.fit.harm import LIFE_SPILLS, Guard
from warplens.weave.fit.resources import Resources
from warplens.weave.fit.search import Attempt, search
from warplens.weave.fixed_slots import fits_fixed
from warplens.weave.mark_comments import PREFIX
from warplens.weave.weaving import Selection, Weaving

if TYPE_CHECKING:
    from warplens.frontends.triton.stages import Compilation
    from warplens.frontends.triton.weaving_compiler import Recipe

Metadata = dict[str, Any]
_BARRIERS = re.compile(r"\bttng\.(?:wait_barrier|arrive_barrier|cluster_\w+)\b|\bgpu\.barrier\b")
"""Operations of TTGIR whose barriers are recorded."""


@dataclass(frozen=True)
class KernelBuild:
    """A kernel compiled to machine code, and the metadata that goes with it."""

    llir: str
    ptx: str
    cubin: bytes
    metadata: Metadata
    resources: Resources


@dataclass(frozen=True)
class _MarkedKernel:
    """A kernel marked as one rung says, before weaving: its PTX, its metadata, and the places that are marked."""

    llir: str
    ptx: str
    metadata: Metadata
    sites: tuple[RegionSite, ...] = ()
    dropped: str = ""
    """What to say if there were more places than marks."""


class MarkLadder:
    """One kernel on its way down the rungs. `problem` says why the last rung that was tried was left."""

    def __init__(
        self, stages: Compilation, recipe: Recipe, text: str, context: Any, metadata: Metadata, remarks: Metadata
    ) -> None:
        self.stages, self.recipe, self.text, self.context = stages, recipe, text, context
        self.metadata, self.remarks, self.problem = metadata, remarks, ""
        # A kernel of which only lives are recorded counts as unmarked, which `strict` does not allow.
        every = rungs(recipe.auto, keep_marks=PREFIX in text, barriers=_BARRIERS.search(text) is not None)
        self._rungs = [rung for rung in every if not (rung.lives_only and recipe.strict)]
        if recipe.how.lives:
            self._rungs = [Rung(Auto())]
        self._known: Resources | None = None
        self._looked_up = self._from_cache = False
        self._lowered: dict[str, _MarkedKernel] = {}
        """By marked TTGIR, what Triton made of it."""
        self._tried: set[str] = set()
        """The PTX of the rungs that were left."""
        self._attempts: dict[str, Attempt[KernelBuild]] = {}
        """By marked PTX, what a rung came to that was tried out of turn."""

    def climb_down(self) -> KernelBuild | None:
        """Compile the kernel with the marks of the first rung that does no harm; None if no rung does."""
        with suppress(Exception):  # the first rung meets whatever fails here again, and says so
            self.remarks |= {"matched": sorted(self._as_asked.matched), "lines": self._as_asked.lines}
        how = self.recipe.how
        verdicts = self._verdicts(how)
        # What the overhead budget leaves out seldom changes what fits, and `_repeat` finds out if it does.
        whole = verdicts if how.lives else self._verdicts(replace(how, plain_copy=False, omit=()))
        for one in (verdicts, whole):
            if (verdict := one.find()) is not None:
                built = self._repeat(verdict, same=one is verdicts)
                if built is not None:
                    return built
                break
        self.problem = ""
        self._tried.clear()
        hopeless: set[int] = set()
        for number, rung in enumerate(self._rungs):
            if number in hopeless:
                continue
            try:
                marked = self._marked(rung)
                if marked is None:
                    continue
                attempt = self._attempts.get(marked.ptx) or self._search(rung, marked)
                if not number and attempt.harm is not None and is_far_off(attempt.resources, self._plain()):
                    self.problem = self.problem or attempt.harm.words
                    hopeless = self._hopeless_rungs()
            except (WarplensError, RuntimeError, ptxas_error()) as error:
                self.problem = self.problem or f"with marks it does not compile ({_first_line(error)})"
                continue
            except Exception as error:  # whatever the weaver fails on, the kernel can run without it
                self.problem = self.problem or f"the weaver failed: {error!r}"
                continue
            # The last rung costs next to nothing, so a kernel never goes without it.
            if attempt.harm is None or rung.lives_only:
                chosen = attempt.candidate
                name = name_of(self.recipe.how, chosen.how)
                verdicts.keep(Verdict(number, name, chosen.registers, self.problem, self._known))
                return self._take(rung, marked, attempt)
            self.problem = self.problem or attempt.harm.words
        return None

    def _verdicts(self, how: Weaving) -> Verdicts:
        key = replace(self.recipe, how=replace(how, select=Selection()), kernels=None, strict=False).key
        return Verdicts(key, self.text, self.metadata)

    def _hopeless_rungs(self) -> set[int]:
        """The rungs that leave out classes, if the one that leaves out most does harm. A kernel that is far from
        fitting with all marks is seldom saved by one class less, and each rung is lowered and assembled anew."""
        finer = [number for number, rung in enumerate(self._rungs) if number and not rung.fixed]
        while len(finer) > 1:
            last = self._rungs[finer[-1]]
            marked = self._marked(last)
            if marked is None:  # it leaves nothing to mark
                finer.pop()
                continue
            self._tried.discard(marked.ptx)  # a rung before it may have the same marks
            self._attempts[marked.ptx] = attempt = self._search(last, marked)
            more = attempt.resources.spills - (1 + self.recipe.how.plain_copy) * self._plain().spills
            return set(finer) if attempt.harm is not None and more > LIFE_SPILLS else set()
        return set()

    def _repeat(self, verdict: Verdict, *, same: bool) -> KernelBuild | None:
        """Compile the kernel as it was the last time; None if that is not possible or does harm this time. Without
        `same` it was woven in another way then."""
        if verdict.rung >= len(self._rungs):
            return None
        self._known, self._looked_up = verdict.plain, verdict.plain is not None
        self.problem = verdict.problem
        rung = self._rungs[verdict.rung]
        try:
            marked = self._marked(rung)
            if marked is None:
                return None
            candidate = Candidate(named_weaving(self.recipe.how, verdict.weaving), verdict.registers)
            attempt = self._search(rung, marked, candidate)
            if attempt.harm is not None and rung.lives_only and not same:
                attempt = self._search(rung, marked)
        except Exception:  # whatever it fails on, the search that follows meets it again and says so
            return None
        return self._take(rung, marked, attempt) if attempt.harm is None or rung.lives_only else None

    def _take(self, rung: Rung, marked: _MarkedKernel, attempt: Attempt[KernelBuild]) -> KernelBuild:
        notes = [marked.dropped, rung.note(self.problem) if self.problem else ""]
        if attempt.harm is not None:
            notes.append(f"even so, {attempt.harm.words}")
        self.remarks["notes"] += [note for note in notes if note]
        document, places = attempt.build.metadata[METADATA], {s.region: s.location for s in marked.sites if s.location}
        named = {k: places[region] for k, region in document["regions"].items() if region in places}
        document |= {"auto": len(marked.sites), "locations": document["locations"] | named}
        return attempt.build

    def _marked(self, rung: Rung) -> _MarkedKernel | None:
        """Mark the kernel; None if the rung has nothing to mark in it, or the same as the rung before."""
        if rung.fixed:
            if self.recipe.how.lives:  # the overhead budget asks for it, and says why
                return self._plain_text
            if not self.problem and self.recipe.auto.classes:
                self.problem = "no rule finds anything to mark in it"
            return self._coarsely_marked(rung) if self.problem else None
        marked_ir = self._as_asked if rung is self._rungs[0] else mark_ttgir(self.text, rung.auto)
        if not marked_ir.sites:
            return None
        if marked_ir.text not in self._lowered:
            self._lowered[marked_ir.text] = self._lower(marked_ir.text)
        lowered = self._lowered[marked_ir.text]
        ptx = lowered.ptx
        if rung.auto.wants("edges"):
            ptx = mark_barriers(ptx, of_blocks=rung.auto.wants_block_barriers)
        if ptx in self._tried:
            return None
        self._tried.add(ptx)
        dropped = _too_many_places(marked_ir, rung.auto) if marked_ir.dropped else ""
        return replace(lowered, ptx=ptx, sites=marked_ir.sites, dropped=dropped)

    def _lower(self, text: str) -> _MarkedKernel:
        trial = dict(self.metadata)
        llir, ptx = self.stages.lower(text, self.context, trial)
        return _MarkedKernel(llir, ptx, trial)

    def _coarsely_marked(self, rung: Rung) -> _MarkedKernel | None:
        """Mark the PTX of the plain kernel, which the rung leaves as it is; None if it has no such regions."""
        plain = self._plain_text
        if rung.lives_only:
            return plain
        marked = mark_ptx(plain.ptx, rung.auto)
        sites = marked.sites.get(str(plain.metadata["name"]), ())
        return replace(plain, ptx=marked.text, sites=sites) if sites else None

    def _search(self, rung: Rung, marked: _MarkedKernel, only: Candidate | None = None) -> Attempt[KernelBuild]:
        """Weave the kernel without harm, else with the least. With `only`, try no other candidate."""
        how, least = self.recipe.how, self.recipe.least_occupancy
        buffer = None if rung.fixed else self.stages.shared_buffer(marked.ptx, marked.metadata, how)
        shape = BlockShape.of(marked.ptx, marked.metadata, marked.metadata["shared"])
        if buffer is not None:
            shape = replace(shape, shared=buffer.offset + record_bytes(buffer, how.select, shape.threads))
        guard = Guard(
            lambda: shape.with_blocks(self._plain()),
            shape.blocks(0),
            wanted=least,
            required=least,
            free_spills=LIFE_SPILLS if rung.lives_only else 0,
            bodies=1 + how.plain_copy,
        )

        parallel, latest = idle_cores(), [Resources()]

        def finish(candidate: Candidate) -> KernelBuild:
            return self.stages.finish(
                marked.llir, marked.ptx, marked.metadata, candidate.how, candidate.registers, lives=rung.lives_only
            )

        def attempt(candidate: Candidate) -> tuple[KernelBuild, Resources]:
            alone = parallel < 2 or self._plain_is_known()
            built = finish(candidate) if alone else self._beside_plain(functools.partial(finish, candidate))
            if built.resources.serialized and self._from_cache:
                # The cubin does not say whether the plain kernel's wgmma instructions overlap: ask ptxas.
                self._known, self._from_cache = None, False
            latest.append(built.resources)
            return built, shape.with_blocks(built.resources)

        def register_limit() -> int:
            return 0 if ".maxnreg" in marked.ptx else shape.register_limit(guard.wanted_blocks)

        if only is not None:
            candidates = iter([only])
        elif rung.fixed:
            candidates = fixed_candidates(how, register_limit)
        else:
            candidates = automatic_candidates(
                how,
                register_limit,
                lambda: latest[-1],
                fits_fixed=lambda: fits_fixed(marked.ptx),
                # Without barrier records, the same regions as without that class are tried in every way.
                marked_less=bool(self.problem) and rung.left_out != ("edges",),
            )
        return search(candidates, attempt, guard, parallel=parallel)

    @functools.cached_property
    def _as_asked(self) -> MarkedIR:
        """The kernel with all marks that were asked for."""
        return mark_ttgir(self.text, self.recipe.auto)

    @functools.cached_property
    def _plain_text(self) -> _MarkedKernel:
        found = plain_cache.find_lowered(self.text, self.metadata)
        return self._lower(self.text) if found is None else _MarkedKernel(*found)

    def _plain(self) -> Resources:
        """Return what the kernel takes without marks: as its machine code says, else as ptxas does."""
        if not self._plain_is_known():
            plain = self._plain_text
            self._known = self.stages.finish(plain.llir, plain.ptx, plain.metadata, self.recipe.how).resources
        assert self._known is not None
        return self._known

    def _beside_plain(self, finish: Callable[[], KernelBuild]) -> KernelBuild:
        """Assemble the plain kernel in this thread while another one assembles the marked kernel."""
        with ThreadPoolExecutor(1, "warplens-ptxas") as pool:
            marked = pool.submit(finish)
            self._plain()
            return marked.result()

    def _plain_is_known(self) -> bool:
        if not self._looked_up:
            self._looked_up, self._known = True, plain_cache.find_resources()
            self._from_cache = self._known is not None
        return self._known is not None


def _too_many_places(marked: MarkedIR, auto: Auto) -> str:
    left = ", ".join(f"{count} of {kind}" for kind, count in marked.dropped.items())
    total = len(marked.sites) + sum(marked.dropped.values())
    return (
        f"{total} places could be marked, {auto.most} may be: left out {left}; "
        f"most_marks={total} (--most-marks {total}) marks all, fewer classes mark less"
    )


def _first_line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip() and "stderr" not in line]
    said = next((line for line in lines if "error" in line.lower()), lines[0] if lines else type(error).__name__)
    return said.strip()[:300]
