"""The profile of a process that a program under `warplens run` started and that joined the process group of a job."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

from warplens.errors import WarplensError
from warplens.frontends.wrap import wrap
from warplens.profiling.job_ranks import JobRank, wants_rank
from warplens.profiling.profile import Profile
from warplens.runner.profile_request import ProfileRequest
from warplens.runner.program import join_threads
from warplens.session import stack
from warplens.text import say
from warplens.threads import BackgroundThread
from warplens.trace.rank_folder import claim_rank

_LAST = -1000
"""The exit priority of the profile's end in a child of multiprocessing, which ends without atexit: after all others."""
_LONGEST_WRITE_S = 60.0
_running: list[Profile] = []


def begin(request: ProfileRequest, rank: int, size: int) -> None:
    """Record this process from now on. What goes wrong with that is not the program's."""
    try:
        _begin(request, JobRank(rank, size, by_program=True))
    except Exception as error:
        say(f"rank {rank} is not recorded: {str(error) or repr(error)}")


def _begin(request: ProfileRequest, job: JobRank) -> None:
    if stack.active() is not None or not _concerns(request, job):
        return  # it is recorded already, by a profile of its own
    if request.path.is_file():
        request.path.unlink(missing_ok=True)  # who may replace it has asked
    claim = claim_rank(request.path, job.rank, force=request.force)
    if claim is None:
        say(f"rank {job.rank} is recorded in another process, so process {os.getpid()} is not")
        return
    profile = Profile(request.path, job=job, whole_program=True, **request.options)
    profile.__enter__()
    _running[:] = [profile]
    Finalize(None, finish, (claim, os.getpid()), exitpriority=_LAST)
    wrap(os, "_exit", _write_before_exit)
    # Writing the part takes threads, which Python no longer starts when it gets to atexit.
    at_exit = getattr(threading, "_register_atexit", atexit.register)
    at_exit(_finish_after_threads, claim, os.getpid())


def _concerns(request: ProfileRequest, job: JobRank) -> bool:
    """Whether the process is a rank of the job that is recorded. What a rank of the launcher starts may have a group of
    its own; what a node's only process starts are the ranks of a larger job."""
    if request.size > 1 and job.size <= request.size:
        return False
    return request.ranks is None or wants_rank(request.ranks, job)


def leaving() -> None:
    """Write what there is: a process whose job is over may be ended in any way."""
    for profile in _own():
        profile.write_part()


def _own() -> list[Profile]:
    """The profile of this process, not that of one that forked it."""
    return [profile for profile in _running if profile.process == os.getpid()]


def _write_before_exit(original: Callable[..., None], *arguments: Any, **named: Any) -> None:
    """A program that ends at once may do so because it cannot end otherwise: keep it from that for a minute at most."""
    if _own():
        writer = BackgroundThread(leaving, "warplens-last-part")
        with suppress(Exception):  # such as that no thread can be started any more
            writer.start()
            writer.join(_LONGEST_WRITE_S)
    original(*arguments, **named)


def _finish_after_threads(claim: Path, process: int) -> None:
    if os.getpid() == process:  # not of a child that it forked
        join_threads()
        finish(claim, process)


def finish(claim: Path, process: int) -> None:
    """End the profile and write the rank's part."""
    if os.getpid() != process or not _running:
        return
    profile = _running.pop()
    try:
        profile.__exit__(None, None, None)
    except Exception as error:
        if not isinstance(error, WarplensError) or profile.run.is_news(str(error)):
            say(f"rank {profile.rank}: {error}")
    with suppress(OSError):
        claim.unlink()
