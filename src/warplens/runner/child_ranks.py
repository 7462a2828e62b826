"""Let the processes that a program starts record themselves once they join the process group of a job."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from warplens.frontends.process_group import watch_membership
from warplens.profiling.job_ranks import JobRank, wants_rank
from warplens.profiling.profile import Profile
from warplens.runner import rank_profile
from warplens.runner.profile_request import ProfileRequest

REQUEST = "WARPLENS_RANKS"
"""The environment variable that carries a `ProfileRequest` to child processes, behind the version of Python."""
_STARTUP = str(Path(__file__).parent / "startup")


@contextmanager
def followed_processes(request: ProfileRequest, profile: Profile) -> Iterator[None]:
    """Inside the block, this process and those that it starts are recorded as ranks once they join a job."""
    version = ".".join(map(str, sys.version_info[:2]))
    path = os.environ.get("PYTHONPATH")
    changed = {REQUEST: f"{version}:{request.to_text()}", "PYTHONPATH": os.pathsep.join(filter(None, (_STARTUP, path)))}
    before = {name: os.environ.get(name) for name in changed}
    process = os.getpid()

    def joined(rank: int, size: int) -> None:
        if os.getpid() != process:
            rank_profile.begin(request, rank, size)
        elif request.ranks is None or wants_rank(request.ranks, JobRank(rank, size)):
            profile.join_job(JobRank(rank, size))
        else:
            profile.leave_out()

    def leaving() -> None:
        if os.getpid() != process:
            rank_profile.leaving()

    stop = watch_membership(joined, leaving)
    os.environ.update(changed)
    try:
        yield
    finally:
        stop()
        for name, value in before.items():
            if os.environ.get(name) != changed[name]:
                continue  # the program has set it
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
