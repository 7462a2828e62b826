"""The one search for a weaving that does the kernel no harm.

A front end brings what the plain kernel takes (in a `Guard`), the candidates in order, and a function that weaves and
assembles one of them. Nothing here knows which assembler that is: ptxas in Triton's compiler, the driver's JIT or
nvcc's ptxas.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

from warplens.weave.fit.candidates import Candidate
from warplens.weave.fit.harm import Guard, Harm
from warplens.weave.fit.register_limit import MIN_LIMIT, REGISTER_STEP
from warplens.weave.fit.resources import Resources

T = TypeVar("T")


@dataclass(frozen=True)
class Attempt(Generic[T]):
    """One candidate as the assembler made it, what it takes, and what it costs the kernel."""

    candidate: Candidate
    build: T
    resources: Resources
    harm: Harm | None = None

    @property
    def rank(self) -> tuple[int, ...]:
        """Lower is better; no harm is best."""
        return self.harm.rank if self.harm else ()


def search(
    candidates: Iterable[Candidate],
    assemble: Callable[[Candidate], tuple[T, Resources]],
    guard: Guard,
    discard: Callable[[T], None] = lambda build: None,
    parallel: int = 1,
) -> Attempt[T]:
    """Return the first candidate that does no harm, else the least harmful one; builds that lose are discarded.

    Once the first candidate has lost, up to `parallel` of the others are assembled at a time. The result is the same.
    """
    best: Attempt[T] | None = None
    for candidate, (build, resources) in _assembled(candidates, assemble, parallel):
        attempt = Attempt(candidate, build, resources, guard.harm(resources))
        if best is None or attempt.rank < best.rank:
            best, loser = attempt, best
        else:
            loser = attempt
        if loser is not None:
            discard(loser.build)
        if best.harm is None:
            break
    assert best is not None, "a search needs a candidate"
    return best


def _assembled(
    candidates: Iterable[Candidate], assemble: Callable[[Candidate], tuple[T, Resources]], parallel: int
) -> Iterator[tuple[Candidate, tuple[T, Resources]]]:
    """Yield the candidates in order, each with what `assemble` makes of it."""
    rest = iter(candidates)
    for candidate in rest if parallel < 2 else itertools.islice(rest, 1):
        yield candidate, assemble(candidate)
    pool = ThreadPoolExecutor(parallel, "warplens-ptxas")
    try:
        begun = deque((one, pool.submit(assemble, one)) for one in itertools.islice(rest, parallel))
        while begun:
            candidate, future = begun.popleft()
            yield candidate, future.result()
            begun.extend((one, pool.submit(assemble, one)) for one in itertools.islice(rest, 1))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def tighten(
    free: Attempt[T],
    plain: Resources,
    assemble: Callable[[int], Attempt[T] | None],
    target: int,
    *,
    roomy: int = 0,
    bisect: bool = False,
) -> Attempt[T]:
    """Return the kernel in at most `target` registers, if a limit costs no spill and no warning.

    `free` is the kernel without a limit; `assemble` makes it with one (None: the assembler cannot). `roomy` is the most
    registers that leave as many blocks on an SM as the plain kernel has there, 0 if that is not known. With `bisect`,
    a target that cannot be met is followed by a search for the lowest limit that can.
    """
    taken = free.resources
    room = roomy or taken.registers
    if taken.registers <= min(target, room) or taken.spills > plain.spills:
        return free

    def limited(registers: int) -> Attempt[T] | None:
        made = assemble(registers) if registers < taken.registers else None
        if made is None or made.resources.spills > plain.spills or made.resources.complaints > taken.complaints:
            return None
        return made

    for registers in sorted({max(min(target, room), MIN_LIMIT), target}):
        if made := limited(registers):
            return made
    steps = range(-(-(target + 1) // REGISTER_STEP) * REGISTER_STEP, taken.registers, REGISTER_STEP)
    best, low, high = free, 0, len(steps) if bisect else 0
    while low < high:
        middle = (low + high) // 2
        if made := limited(steps[middle]):
            best, high = made, middle
        else:
            low = middle + 1
    return best
