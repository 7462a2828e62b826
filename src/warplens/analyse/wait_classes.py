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
_PIPELINE = {"acquire"}
"""Words for a lock that are also used for the stages of a pipeline."""
_SPACE = {"empty", "free", "slot", "space", "room", "consumed", "credit"}


class WaitClass(Enum):
    """What ends a wait."""

    BARRIER = "barrier"
    LOCK = "lock"
    SPACE = "space"
    DATA = "data"


def wait_class(region: str, code: CodeCounts | None = None) -> WaitClass:
    """The class by code where it says what ends the wait; else by name; else it is for data.

    Loops that poll wait for a turn, mbarriers and copies bring data or free space, barriers end with the last warp.
    """
    words = words_of(region)
    if code is not None and (code.atomics or code.polls):
        return WaitClass.LOCK
    if code is not None and code.barriers and not code.waits + code.copies + code.loads:
        locks: set[str] = set()  # nothing there could try a lock
    else:
        locks = _LOCK - _PIPELINE if code is not None and code.waits else _LOCK
    for kind, names in ((WaitClass.SPACE, _SPACE), (WaitClass.LOCK, locks), (WaitClass.BARRIER, _BARRIER)):
        if words & names:
            return kind
    return (
        WaitClass.BARRIER if code is not None and code.barriers and not (code.copies or code.waits) else WaitClass.DATA
    )
