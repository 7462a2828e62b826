"""Run many cases in one process: only a WarplensError may come out, none may hang, and memory has a limit."""

from __future__ import annotations

import faulthandler
import math
import os
import random
import resource
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from warplens.errors import WarplensError

LIMIT = 30
"""A case that takes more seconds ends the process with the traceback of every thread. A target may have its own."""
_MEMORY = 3 << 30
"""Address space for libraries, threads and at most a gigabyte of data; more is a MemoryError, which is a failure."""
Case = Callable[[random.Random, Path], None]


@dataclass
class Outcome:
    """How many cases were run, and the first failure of each kind."""

    cases: int = 0
    failed: int = 0
    kinds: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, problem: str | None) -> None:
        self.cases += 1
        if problem is None:
            return
        self.failed += 1
        *_, where, _, what = ["", "", "", *problem.splitlines()]
        if self.kinds.setdefault(what[:80] + where[:120], f"case {name}\n{problem}").startswith(f"case {name}\n"):
            print(f"case {name} failed: {what}", file=sys.stderr, flush=True)


def run_cases(
    case: Case, cases: int, seed: int, *, first: int = 0, seconds: float = math.inf, limit: int = LIMIT
) -> Outcome:
    """Run cases with seeds of their own, `SEED:FIRST` onwards, for at most these seconds.

    Everything runs on one thread and in a folder in memory, so that a small case takes what its own code takes.
    """
    outcome, began, armed = Outcome(), time.monotonic(), -math.inf
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_used() + _MEMORY, hard))
    pa.set_cpu_count(1)
    warnings.simplefilter("error", RuntimeWarning)  # numpy warns where a number came out wrong
    warnings.filterwarnings("error", message=".*Please report this")  # a fault that a user would only be told of
    in_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    try:
        with tempfile.TemporaryDirectory(prefix="warplens-fuzz-", dir=in_memory) as folder:
            for number in range(first, first + cases):
                now = time.monotonic()
                if now - began > seconds:
                    break
                if now - armed > 1:  # arming starts a thread, which takes longer than a small case
                    faulthandler.dump_traceback_later(limit, exit=True, file=sys.__stderr__)
                    armed = now
                outcome.add(f"{seed}:{number}", _problem(case, f"{seed}:{number}", Path(folder)))
    finally:
        faulthandler.cancel_dump_traceback_later()
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    return outcome


def _problem(case: Case, name: str, folder: Path) -> str | None:
    """The traceback of a case that failed."""
    try:
        case(random.Random(name), folder)
    except WarplensError:
        return None
    except Exception:
        return traceback.format_exc(limit=-6)
    return None


def _used() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def damage(data: bytes, draw: random.Random) -> bytes:
    """Bytes with one to four flips, overwrites, cuts or insertions."""
    made = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(made)) if made else 0
        how = draw.randrange(6)
        if how == 0 and made:
            made[at] ^= 1 << draw.randrange(8)
        elif how == 1 and made:
            made[at] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)))
        elif how == 2:
            made[at : at + 4] = draw.choice((b"\xff" * 4, b"\0" * 4, b"\xff\xff\xff\x7f", draw.randbytes(4)))
        elif how == 3:
            del made[at : at + draw.randint(1, 64)]
        elif how == 4:
            made[at:at] = draw.randbytes(draw.randint(1, 16))
        else:
            made = made[: draw.randrange(len(made) + 1)]
    return bytes(made)


ODD_VALUES = (
    None, True, -1, 0, 1, 2**31, 2**62, 2**70, -(2**63), 1e308, -0.0, float("nan"), float("inf"), "", "\ud800",
    "\x1b[2J", "x" * 300, [], {}, [[]], {"": None}, [None, None, None], [0, 0, 0], [2**31, 2**31, 2**31],
)  # fmt: skip


def odd_document(value: object, draw: random.Random) -> object:
    """A JSON value with one part replaced by an odd one, left out, or doubled."""
    if not isinstance(value, (dict, list)) or not value or draw.random() < 0.1:
        return draw.choice(ODD_VALUES)
    if isinstance(value, dict):
        key = draw.choice(list(value))
        if draw.random() < 0.1:
            return {name: item for name, item in value.items() if name != key}
        return value | {key: odd_document(value[key], draw)}
    at = draw.randrange(len(value))
    if draw.random() < 0.1:
        return value[:at] + value[at + 1 :] if draw.random() < 0.5 else [*value, value[at]]
    return [*value[:at], odd_document(value[at], draw), *value[at + 1 :]]
