"""Registers of a woven kernel, kept near those of the plain one.

A clock read holds the instructions around it in place, and ptxas pays for that with registers as long as nothing tells
it not to: often many more than the marks themselves need. `.maxnreg` does tell it. It is the only limit that holds:
`--maxrregcount` is ignored where the kernel fixes its block size. A limit that is not reached changes the code too, and
not for the better, so a kernel is assembled without one first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from warplens.ptx.tree import Function, parse

MORE = 4
"""Registers that marks may add to a kernel."""
STEP, FEWEST = 8, 24
"""An SM hands registers out in steps of 8 per thread, and ptxas takes no limit below 24."""
HARMLESS = 32
"""Registers that an SM has for each of its 2,048 threads: up to that, a kernel's number of them costs it no block."""

T = TypeVar("T")


@dataclass(frozen=True)
class Made(Generic[T]):
    """A kernel as ptxas made it. `spills` and `warnings` only matter against those of another one."""

    build: T
    registers: int
    spills: int = 0
    warnings: int = 0


def allowance(plain: int) -> int:
    """Registers that a kernel of `plain` ones may take with its marks before a limit is worth trying."""
    return max(plain + MORE, HARMLESS)


def limitable(text: str) -> bool:
    """Whether the registers of a module's kernels may be limited: not where their author did so, nor where warps trade
    them, since `setmaxnreg` counts on the number that the kernel was compiled for."""
    return ".maxnreg" not in text and "setmaxnreg" not in text


def limited(text: str, limits: Mapping[str, int]) -> str:
    """`text` whose kernels take at most so many registers."""
    module = parse(text)
    for entry in module.entries:
        if entry.name in limits:
            limit(entry, limits[entry.name])
    return module.text()


def limit(entry: Function, registers: int) -> None:
    """Put the limit behind what the kernel's header says of its blocks."""
    entry.header = f"{entry.header.rstrip()}\n.maxnreg {registers}\n"


def fit(free: Made[T], plain: Made[object], make: Callable[[int], Made[T] | None], roomy: int = 0) -> Made[T]:
    """The woven kernel in at most `MORE` registers more than the plain one, or in as few more as take no spill.

    `free` is the kernel as ptxas makes it without a limit, `make` makes it with one (None: ptxas cannot). `roomy` is
    the most registers that leave as many blocks on an SM as the plain kernel has there, 0 if that is not known.
    """
    target = max(plain.registers + MORE, FEWEST)
    spilled = max(plain.spills, free.spills)
    room = roomy or free.registers
    if free.registers <= min(target, room) or free.spills > plain.spills:
        return free

    def tried(registers: int) -> Made[T] | None:
        made = make(registers) if registers < free.registers else None
        return made if made and made.spills <= spilled and made.warnings <= free.warnings else None

    for registers in sorted({max(min(target, room), FEWEST), target}):
        if made := tried(registers):
            return made
    steps = range(-(-(target + 1) // STEP) * STEP, free.registers, STEP)
    best, low, high = free, 0, len(steps)
    while low < high:
        middle = (low + high) // 2
        if made := tried(steps[middle]):
            best, high = made, middle
        else:
            low = middle + 1
    return best
