"""Assemble a hand-marked kernel in about the registers of the plain one.

The plain kernel is assembled in a thread of its own while the woven one is made, unless Triton has it in its cache.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from warplens.frontends.triton import plain_cache
from warplens.frontends.triton.block_shape import BlockShape
from warplens.frontends.triton.ptxas import captured_log, ptxas_error
from warplens.weave.fit.candidates import Candidate, limited_candidates
from warplens.weave.fit.harm import Guard
from warplens.weave.fit.ptxas_output import read_log
from warplens.weave.fit.register_limit import EXTRA_REGISTERS, MIN_LIMIT, limitable, limited
from warplens.weave.fit.resources import UNUSABLE, Resources
from warplens.weave.fit.search import Attempt, search, tighten
from warplens.weave.weaving import Weaving

Stage = Callable[[Any, dict[str, Any]], Any]


@dataclass(frozen=True)
class Assembled:
    """Machine code, the text it is made of, what it takes, and what the plain kernel takes if that is known."""

    ptx: str
    cubin: bytes
    resources: Resources
    plain: Resources | None = None
    harm: str = ""
    """What the kernel loses by its marks, if that could not be avoided."""

    def describe(self) -> dict[str, int]:
        """Return what a launch keeps of it."""
        known = {} if self.plain is None else {"registers_plain": self.plain.registers}
        return {**self.resources.describe(), **known}


def assemble(stage: Stage, ptx: str, metadata: dict[str, Any]) -> Assembled:
    """Run ptxas once, through Triton's own stage."""
    with captured_log() as log:
        cubin = bytes(stage(ptx, metadata))
    return Assembled(ptx, cubin, read_log("\n".join(log)))


class HandMarkedKernel:
    """A kernel with hand-written marks on its way to machine code: start with the plain text, finish with the woven
    one. It is never refused: what its marks cost is said instead."""

    def __init__(self, stage: Stage, plain: str, metadata: dict[str, Any], how: Weaving) -> None:
        self._stage, self._text, self._metadata, self._how = stage, plain, dict(metadata), how
        self._limit, self._known = how.limit and limitable(plain), plain_cache.find_resources()
        self._measured: Future[Assembled] | None = None
        if self._limit and self._known is None:
            pool = ThreadPoolExecutor(1, "warplens-ptxas")
            self._measured = pool.submit(assemble, stage, plain, self._metadata)
            pool.shutdown(wait=False)

    def finish(self, weave: Callable[[Weaving], str], shared: int) -> Assembled:
        """Assemble the woven text, with a limit if it takes too many registers without one. `weave` returns the text
        woven one way; `shared` is the bytes of shared memory that the woven kernel takes."""
        how = self._how
        first = assemble(self._stage, weave(how), self._metadata)
        plain = self._plain()
        if plain is None:
            return first
        if how.early and first.resources.spills > plain.spills:
            how = replace(how, early=False)
            first = assemble(self._stage, weave(how), self._metadata)
        shape = BlockShape.of(self._text, self._metadata, shared)
        guard = Guard(lambda: shape.with_blocks(plain), required=0.0, bodies=1 + how.plain_copy)
        # Under a limit only spills decide between the candidates: `tighten` looks at the rest.
        spill_guard = Guard(lambda: replace(plain, serialized=True), wanted=0.0)

        def attempt(candidate: Candidate) -> tuple[Assembled, Resources]:
            text = limited(weave(candidate.how), {self._metadata["name"]: candidate.registers})
            try:
                made = assemble(self._stage, text, self._metadata)
            except ptxas_error():
                made = Assembled(text, b"", UNUSABLE)
            return made, made.resources

        chosen = tighten(
            Attempt(Candidate(how), first, first.resources),
            plain,
            lambda registers: search(limited_candidates(how, registers), attempt, spill_guard),
            max(plain.registers + EXTRA_REGISTERS, MIN_LIMIT),
            roomy=shape.register_limit(guard.wanted_blocks),
            bisect=True,
        ).build
        harm = guard.harm(shape.with_blocks(chosen.resources))
        return replace(chosen, plain=plain, harm=harm.words if harm else "")

    def _plain(self) -> Resources | None:
        """Return what the plain kernel takes; None if that is not known or does not matter."""
        if not self._limit:
            return None
        try:
            return self._measured.result().resources if self._measured else self._known
        except ptxas_error():
            return None
