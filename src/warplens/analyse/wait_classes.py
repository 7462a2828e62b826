"""What a waiting region waits for: a barrier, a lock, data, or free space; from its name and its code."""

from __future__ import annotations

from enum import Enum

from warplens.analyse.code_counts import CodeCounts
from warplens.analyse.region_purpose import words_of

_BARRIER = {"barrier", "barriers", "bar", "sync", "syncthreads", "syncwarp"}
_LOCK = {
    "lock", "turn", "ticket", "mutex", "spin", "acquire", "flag", "order", "critical", "token", "poll", "backoff",
    "semaphore", "serial",
}  # fmt: skip
_SPACE = {"empty", "free", "slot", "space", "room", "consumed", "credit"}


class WaitClass(Enum):
    """What ends a wait."""

    BARRIER = "barrier"
    LOCK = "lock"
    SPACE = "space"
    DATA = "data"


def wait_class(region: str, code: CodeCounts | None = None) -> WaitClass:
    """The class by name; else by code, as one with a block barrier and no copy waits for warps; else it is for data."""
    words = words_of(region)
    for kind, names in ((WaitClass.SPACE, _SPACE), (WaitClass.LOCK, _LOCK), (WaitClass.BARRIER, _BARRIER)):
        if words & names:
            return kind
    if code is not None and (code.atomics or code.polls):
        return WaitClass.LOCK
    return (
        WaitClass.BARRIER if code is not None and code.barriers and not (code.copies or code.waits) else WaitClass.DATA
    )
