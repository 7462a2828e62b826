"""What a profile asks of the front ends, checked where it is given."""

from __future__ import annotations

import functools
import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any

from warplens.auto.rules import MOST_MARKS, Auto
from warplens.errors import UsageError, check_name
from warplens.record.layout import MAX_SLOTS, SLOT_BYTES

LEAST_TRACE_BYTES = 1 << 16
"""A trace with one block of one launch takes about this much."""
COLD = "cold"
"""`skip="cold"`: leave out the first launch of each variant if more were recorded."""

_CHOICES = {
    "full": ("stop", "ring"),
    "clock": ("32", "64"),
    "buffer": ("global", "shared"),
    "granularity": ("warp", "warpgroup", "block"),
    "store": ("auto", "now"),
    "on_hang": (None, "continue", "kill"),
    "mode": ("trace", "aggregate"),
}


def _is(*kinds: type) -> Callable[[Any], bool]:
    return lambda given: isinstance(given, kinds)


def _numbers(given: Any) -> bool:
    return isinstance(given, Collection) and all(isinstance(number, Integral) for number in given)


_WHOLE = (_is(Integral), "a whole number")
_SEVERAL = (_numbers, "numbers, such as [0, 4] or range(4)")
_FOLDER = (_is(str, os.PathLike), "a folder")
_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "records_per_warp": _WHOLE,
    "bytes_per_block": _WHOLE,
    "every": _WHOLE,
    "launches": (_is(Integral), "a whole number; None records all"),
    "skip": (lambda given: given == COLD or isinstance(given, Integral), "a whole number, or 'cold'"),
    "memory": (_is(Integral), "a number of bytes"),
    "trace_bytes": (_is(Integral), "a number of bytes; None keeps everything"),
    "watch": (lambda given: isinstance(given, Real) and not isinstance(given, bool), "a number of seconds"),
    "from_step": _WHOLE,
    "to_step": _WHOLE,
    "within": (_is(str, re.Pattern), "a regular expression, such as 'forward.*'"),
    "most_marks": _WHOLE,
    "least_occupancy": (_is(Real), "a share within 0..1"),
    "overhead": (_is(Real), "a share, such as 0.05 for 5 %"),
    "warps": _SEVERAL,
    "blocks": (lambda given: isinstance(given, Integral | slice) or _numbers(given), "a count, a slice or numbers"),
    "sms": _SEVERAL,
    "kernels": (_is(str, re.Pattern), "a regular expression, such as 'attn.*'"),
    "auto": (_is(bool, str, Iterable), "True, or classes of operations such as 'loads,mma'"),
    "regions": (
        lambda given: isinstance(given, Iterable) and not isinstance(given, str),
        "lines by name, such as {'softmax': 'attn.py:120-134'}",
    ),
    "dump_ir": _FOLDER,
    "override": _FOLDER,
}
"""What each option takes besides None, and how that is said to someone who gave something else."""
_STEP = (lambda given: given >= 0, "must not be negative; the first step is 0")
_RANGES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "records_per_warp": (lambda given: 0 <= given <= MAX_SLOTS, f"must be within 0..{MAX_SLOTS}"),
    "bytes_per_block": (lambda given: given >= SLOT_BYTES, f"must be at least {SLOT_BYTES}, one record"),
    "every": (lambda given: given >= 1, "must be at least 1 (1 profiles every launch)"),
    "skip": (lambda given: given == COLD or given >= 0, "must not be negative"),
    "memory": (lambda given: given >= 1 << 20, f"must be at least {1 << 20} bytes"),
    "trace_bytes": (
        lambda given: given >= LEAST_TRACE_BYTES,
        f"must be at least {LEAST_TRACE_BYTES}; None keeps everything",
    ),
    "from_step": _STEP,
    "to_step": _STEP,
    "watch": (lambda given: 0 < given < math.inf, "must be more than 0 seconds; None watches for nothing"),
    "launches": (lambda given: given >= 1, "must be at least 1; None records all"),
    "overhead": (lambda given: 0 < given < math.inf, "must be above 0, such as 0.05 for 5 %; None sets no limit"),
    "least_occupancy": (lambda given: 0 <= given <= 1, "a share within 0..1; 1 keeps all blocks"),
}
"""Which values of the right kind each option allows, and how that is said."""


@dataclass(frozen=True)
class Options:
    """The options of `wl.profile`, which says what each one means."""

    records_per_warp: int | None = None
    bytes_per_block: int | None = None
    full: str = "stop"
    clock: str = "32"
    buffer: str = "global"
    granularity: str = "warp"
    kernels: str | None = None
    warps: Collection[int] | None = None
    blocks: Collection[int] | int | slice | None = None
    sms: Collection[int] | None = None
    every: int = 1
    skip: int | str = 0
    within: str | None = None
    from_step: int | None = None
    to_step: int | None = None
    memory: int | None = None
    trace_bytes: int | None = None
    store: str = "auto"
    mode: str = "trace"
    auto: str | bool | Iterable[str] | None = None
    regions: Mapping[str, str] | Iterable[str] | None = None
    dump_ir: str | os.PathLike[str] | None = None
    override: str | os.PathLike[str] | None = None
    launches: int | None = None
    overhead: float | None = None
    most_marks: int = MOST_MARKS
    least_occupancy: float = 1.0
    strict: bool = False
    verify: bool = True
    stalls: bool = False
    torch: bool | Mapping[str, Any] = False
    watch: float | None = None
    on_hang: str | None = None
    live: bool = False

    def __post_init__(self) -> None:
        for name, (fits, expected) in _KINDS.items():
            given = getattr(self, name)
            if given is not None and not fits(given):
                raise UsageError(f"{name}={given!r}: expected {expected}")
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise UsageError(f"{name}={getattr(self, name)!r}: allowed are {' and '.join(map(repr, allowed))}")
        for name, (fits, limits) in _RANGES.items():
            given = getattr(self, name)
            if given is not None and not fits(given):
                raise UsageError(f"{name}={given}: {limits}")
        if self.records_per_warp is not None and self.bytes_per_block is not None:
            raise UsageError("records_per_warp= and bytes_per_block= exclude each other: give one of them")
        if self.from_step is not None and self.to_step is not None and self.to_step < self.from_step:
            raise UsageError(f"to_step={self.to_step} comes before from_step={self.from_step}: no step is recorded")
        if self.copies_while_running and self.buffer == "shared":
            name, why = ("live", "cannot be read") if self.live else ("watch", "are lost when a kernel hangs")
            raise UsageError(f"{name}= and buffer='shared' exclude each other: records in shared memory {why}")
        if self.copies_while_running and self.mode == "aggregate":
            name = "live" if self.live else "watch"
            raise UsageError(f"{name}= and mode='aggregate' exclude each other: statistics do not say where a warp is")
        if self.mode == "aggregate" and self.buffer == "shared":
            raise UsageError("mode='aggregate' keeps statistics in global memory: leave out buffer='shared'")
        if self.mode == "aggregate" and self.full == "ring" and self.clock == "64":
            raise UsageError("mode='aggregate' with full='ring' records 32-bit clocks: leave out clock='64'")
        _ = self.marks
        if self.override is not None and not os.path.isdir(self.override):
            raise UsageError(
                f"override={os.fspath(self.override)!r}: there is no such folder; dump_ir= (--dump-ir) writes one"
            )
        if self.dump_ir is not None and os.path.exists(self.dump_ir) and not os.path.isdir(self.dump_ir):
            raise UsageError(f"dump_ir={os.fspath(self.dump_ir)!r}: is a file; name the folder to write to")
        for name in ("warps", "blocks", "sms"):
            chosen = getattr(self, name)
            if name == "blocks" and isinstance(chosen, int | slice):
                chosen = [chosen - 1] if isinstance(chosen, int) else None
            if chosen is not None and (not chosen or any(number < 0 for number in chosen)):
                raise UsageError(f"{name}={getattr(self, name)!r}: name at least one, none below 0; None records all")
        for name in ("kernels", "within"):
            try:
                re.compile(getattr(self, name) or "")
            except re.error as error:
                raise UsageError(f"{name}={getattr(self, name)!r} is not a regular expression: {error}") from None

    @functools.cached_property
    def marks(self) -> Auto:
        """The automatic marks asked for; false when there are none."""
        return Auto.of(self.auto, self.regions, self.most_marks)

    @property
    def copies_while_running(self) -> bool:
        """Return whether records are wanted while their kernel runs."""
        return self.watch is not None or self.live

    @property
    def changes_any_kernel(self) -> bool:
        """Return whether kernels without a mark in their source may be changed."""
        return bool(self.marks) or self.dump_ir is not None or self.override is not None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Options:
        """Options from keyword arguments; an unknown one is refused with its nearest neighbour."""
        known = [field.name for field in fields(cls)]
        for name in given:
            check_name(f"profile() has no option {name!r}", name, known)
        return cls(**given)

    def refuse(self, front_end: str, *names: str) -> None:
        """Say so where a front end does not know an option, rather than leave it without effect."""
        for name in self.given(*names):
            raise UsageError(f"{name}={getattr(self, name)!r} is not there for {front_end}; leave it out")

    def given(self, *names: str) -> list[str]:
        """Those of `names` that are not at their default."""
        return [one.name for one in fields(self) if one.name in names and getattr(self, one.name) != one.default]

    def wants_kernel(self, name: str) -> bool:
        """Whether this kernel is to be profiled."""
        return self.kernels is None or re.search(self.kernels, name) is not None


@dataclass(frozen=True)
class DelayOptions(Options):
    """The options of a session that delays one region of its kernels and records nothing."""

    delay: str = ""
