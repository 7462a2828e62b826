"""From woven PTX to machine code that takes about the registers of the plain kernel.

How many those are is asked of ptxas in a thread of its own, while the woven kernel is made, unless Triton has the plain
kernel in its cache.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from warplens.frontends.triton import plain_cache
from warplens.frontends.triton.ptxas import Resources, listening, ptxas_error
from warplens.frontends.triton.safety import Guard, threads_of
from warplens.weave.fit.registers import Made, fit, limitable, limited

Stage = Callable[[Any, dict[str, Any]], Any]


@dataclass(frozen=True)
class Assembled:
    """Machine code, the text it is made of, and what it takes beside the plain kernel."""

    ptx: str
    cubin: bytes
    resources: Resources
    plain: Resources | None = None
    harm: str = ""
    """What the kernel loses by its marks, where that could not be avoided."""

    def describe(self) -> dict[str, int]:
        """As a launch keeps it."""
        known = {} if self.plain is None else {"registers_plain": self.plain.registers}
        return {**self.resources.describe(), **known}


def assemble(stage: Stage, ptx: str, metadata: dict[str, Any]) -> Assembled:
    """One run of ptxas."""
    with listening() as heard:
        cubin = bytes(stage(ptx, metadata))
    return Assembled(ptx, cubin, Resources.of("\n".join(heard)))


class Fitting:
    """One kernel on its way to machine code: begin it with the plain text, then give it the woven one."""

    def __init__(self, stage: Stage, plain: str, metadata: dict[str, Any], *, limit: bool = True) -> None:
        self._stage, self._text, self._metadata = stage, plain, dict(metadata)
        self._measured: Future[Assembled] | None = None
        self._limit, self._known = limit and limitable(plain), plain_cache.looked_up()
        if self._limit and self._known is None:
            pool = ThreadPoolExecutor(1, "warplens-ptxas")
            self._measured = pool.submit(assemble, stage, plain, self._metadata)
            pool.shutdown(wait=False)

    def finish(self, ptx: str, lean: Callable[[], str], shared: int) -> Assembled:
        """Assemble the woven text, with a limit where it takes too many registers without; what `lean` gives is the
        kernel woven for fewer of them. `shared` is the bytes of shared memory that it takes."""
        free = assemble(self._stage, ptx, self._metadata)
        plain = self._plain()
        if plain is None:
            return free
        about = self._metadata
        guard = Guard(lambda: plain, threads_of(self._text, about), shared, about["target"].arch)

        def make(registers: int) -> Made[Assembled] | None:
            made = None
            for leaner in (False, True):
                text = limited(lean() if leaner else ptx, {about["name"]: registers})
                try:
                    made = _made(assemble(self._stage, text, about))
                except ptxas_error():
                    continue
                if made.spills <= plain.spills:
                    break
            return made

        chosen = fit(_made(free), Made(None, plain.registers, plain.spills), make, guard.limit).build
        return replace(chosen, plain=plain, harm=_harm(plain, chosen.resources, guard))

    def _plain(self) -> Resources | None:
        """What the plain kernel takes; None where that is not known or must not be looked at."""
        if not self._limit:
            return None
        try:
            return self._measured.result().resources if self._measured else self._known
        except ptxas_error():
            return None


def _made(assembled: Assembled) -> Made[Assembled]:
    taken = assembled.resources
    return Made(assembled, taken.registers, taken.spills, taken.warnings + taken.serialized)


def _harm(plain: Resources, woven: Resources, guard: Guard) -> str:
    before, after = guard.blocks(plain.registers), guard.blocks(woven.registers)
    if after < before:
        return (
            f"with marks it takes {woven.registers} registers instead of {plain.registers}, "
            f"and an SM holds {after} of its blocks instead of {before}"
        )
    if woven.spills > plain.spills:
        return f"with marks it spills {woven.spills:,} bytes of registers, without {plain.spills:,}"
    return ""
