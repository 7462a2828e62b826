"""Register limits (`.maxnreg`), which keep a woven kernel's registers near those of the plain one.

A clock read keeps the instructions around it in place, and ptxas pays for that with registers unless it is told not to:
often with many more than the marks themselves need. `.maxnreg` is the only limit that works: `--maxrregcount` is
ignored where the kernel fixes its block size. A limit that is not reached changes the code too, and not for the better,
so a kernel is always assembled without one first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from warplens.ptx.syntax import COMMENT
from warplens.ptx.tree import Function

EXTRA_REGISTERS = 4
"""Registers that marks may add to a kernel."""
REGISTER_STEP, MIN_LIMIT = 8, 24
"""An SM allocates registers in steps of 8 per thread, and ptxas accepts no limit below 24."""
FREE_REGISTERS = 32
"""Registers that an SM has for each of 2,048 threads: a kernel that takes no more loses no block by them."""
_HEADER = re.compile(
    r"\.entry\s+(?:\.attribute\s*\((?:[^()]|\([^()]*\))*\)\s*)?(?P<name>[\w$%]+)"
    rf'[^{{;"/]*(?:(?:"[^"\n]*"|{COMMENT}|/(?![/*]))[^{{;"/]*)*(?={{)'
)


def allowance(plain: int) -> int:
    """Return how many registers a kernel that takes `plain` without marks may take before a limit is worth trying."""
    return max(plain + EXTRA_REGISTERS, FREE_REGISTERS)


def limitable(text: str) -> bool:
    """Return whether the registers of a module's kernels may be limited: not if their author limited them, nor if warps
    trade them, since `setmaxnreg` relies on the number that the kernel was compiled for."""
    return ".maxnreg" not in text and "setmaxnreg" not in text


def limited(text: str, limits: Mapping[str, int]) -> str:
    """Return `text` with a register limit for each kernel named in `limits`."""

    def with_limit(header: re.Match[str]) -> str:
        return _with_limit(header[0], limits[header["name"]]) if header["name"] in limits else header[0]

    return _HEADER.sub(with_limit, text)


def limit(entry: Function, registers: int) -> None:
    """Limit the registers of one kernel."""
    entry.header = _with_limit(entry.header, registers)


def _with_limit(header: str, registers: int) -> str:
    return f"{header.rstrip()}\n.maxnreg {registers}\n"
