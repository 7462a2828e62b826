"""Run many cases in one process: only a WarplensError may come out, none may hang, and memory has a limit."""

from __future__ import annotations

import faulthandler
import random
import resource
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

from warplens.errors import WarplensError

_SECONDS = 30
"""A case that takes longer ends the process with the traceback of every thread."""
_MEMORY = 3 << 30
"""Address space for libraries, threads and at most a gigabyte of data; more is a MemoryError, which is a failure."""
_SHOWN = 10

Case = Callable[[random.Random, Path], None]


class FuzzFailure(AssertionError):
    """Cases that ended in anything but a WarplensError."""


def run_cases(case: Case, cases: int, seed: int) -> None:
    """Run cases with seeds of their own, `SEED:0` onwards, and raise one error with each kind of failure once."""
    failures: dict[str, str] = {}
    counts: dict[str, int] = {}
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_used() + _MEMORY, hard))
    try:
        with tempfile.TemporaryDirectory(prefix="warplens-fuzz-") as folder:
            for number in range(cases):
                problem = _outcome(case, f"{seed}:{number}", Path(folder))
                if problem:
                    kind = problem.splitlines()[-1][:80] + problem.splitlines()[-3][:120]
                    if kind not in failures:
                        print(f"case {seed}:{number} failed: {problem.splitlines()[-1]}", file=sys.stderr, flush=True)
                    failures.setdefault(kind, f"case {seed}:{number}\n{problem}")
                    counts[kind] = counts.get(kind, 0) + 1
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    if failures:
        shown = "\n\n".join(f"{counts[kind]} times, first {text}" for kind, text in list(failures.items())[:_SHOWN])
        raise FuzzFailure(f"{sum(counts.values())} of {cases} cases failed, {len(failures)} kinds:\n{shown}")


def _outcome(case: Case, name: str, folder: Path) -> str | None:
    """The traceback of a case that failed."""
    faulthandler.dump_traceback_later(_SECONDS, exit=True, file=sys.__stderr__)
    try:
        case(random.Random(name), folder)
    except WarplensError:
        return None
    except Exception:
        return traceback.format_exc(limit=-6)
    finally:
        faulthandler.cancel_dump_traceback_later()
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
