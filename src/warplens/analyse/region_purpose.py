"""The purpose of a region: wait, move memory, or work; from its code and its name. Users can override waits."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum

from warplens.analyse.code_counts import CodeCounts
from warplens.errors import UsageError
from warplens.weave.work_names import is_between

_LOCATION = re.compile(r"\s+\S+:\d+.*$")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_WAIT = {
    "wait", "waits", "waiting", "await", "barrier", "barriers", "bar", "sync", "syncthreads", "syncwarp", "acquire",
    "stall", "idle", "spin", "poll", "mbar", "mbarrier", "backoff", "lock",
}  # fmt: skip
_MEMORY = {
    "load", "loads", "ld", "ldg", "lds", "ldsm", "ldmatrix", "store", "stores", "st", "stg", "sts", "stmatrix", "copy",
    "copies", "cp", "tma", "fetch", "prefetch", "gather", "scatter", "read", "write", "gmem", "smem", "memcpy",
    "atomic", "atomics", "atom", "transpose",
}  # fmt: skip
_WORK = {
    "mma", "wgmma", "hmma", "imma", "dot", "gemm", "matmul", "fma", "compute", "math", "softmax", "exp", "reduce",
    "accumulate", "work", "scale", "norm", "scan", "sort", "qk", "pv",
}  # fmt: skip


_MATRIX = {"mma", "wgmma", "tcgen", "hmma"}


class Purpose(Enum):
    """What a region is for."""

    WAIT = "wait"
    MEMORY = "memory"
    WORK = "work"
    OTHER = "other"


def words_of(region: str) -> set[str]:
    """The words of a region's name without its location, in lower case."""
    return {word.lower() for word in _WORD.findall(_LOCATION.sub("", region))}


def purpose_of(region: str) -> Purpose:
    """Infer the purpose from the words of the name without its location; a wait takes precedence, then work."""
    words = words_of(region)
    if words & _MATRIX and words & _WAIT:
        return Purpose.WORK  # the matrix units work meanwhile
    if words & _WAIT or any(word.startswith("wait") or word.endswith("wait") for word in words):
        return Purpose.WAIT
    if words & _WORK:
        return Purpose.WORK
    if words & _MEMORY:
        return Purpose.MEMORY
    return Purpose.OTHER


def purposes(
    regions: Sequence[str], waits: str | None = None, code: Mapping[str, CodeCounts] | None = None
) -> list[Purpose]:
    """The purpose of each region; regions that match the regular expression `waits` are waits.

    What does nothing but wait is a wait, whatever its name is. Where a name says nothing, the code decides.
    """
    try:
        pattern = re.compile(waits) if waits else None
    except re.error as error:
        raise UsageError(f"waits={waits!r} is not a regular expression ({error})") from None
    return [
        Purpose.WAIT if pattern and pattern.search(name) else _purpose(name, (code or {}).get(name)) for name in regions
    ]


def _purpose(name: str, code: CodeCounts | None) -> Purpose:
    if code is not None and code.only_waits:
        return Purpose.WAIT
    found = purpose_of(name)
    says_nothing = found is Purpose.OTHER or is_between(name)
    return Purpose.MEMORY if says_nothing and code is not None and code.moves_memory else found
