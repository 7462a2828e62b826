"""The place of this process in a job: its rank, how many there are, and which of them are profiled."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from warplens.errors import UsageError
from warplens.record.capture import MAX_RANK

LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),  # torchrun, torch.distributed, Ray's trainers
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMIX_RANK", "PMIX_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
"""The variables in which launchers tell a process its rank and the number of processes."""
_REMEDY = "set RANK to one, unset it, or give rank= to profile()"


@dataclass(frozen=True)
class JobRank:
    """This process in its job; a program that was started alone is rank 0 of 1."""

    rank: int = 0
    size: int = 1
    by_program: bool = False
    """Whether the program itself started the process: no launcher did, and `warplens run` runs in another one."""

    @property
    def is_one_of_many(self) -> bool:
        return self.size > 1 or self.by_program

    @staticmethod
    def here(environment: Mapping[str, str] | None = None) -> JobRank:
        """What the launcher says, or else torch.distributed if it runs: torch.multiprocessing tells only that."""
        known = os.environ if environment is None else environment
        for rank_name, size_name in LAUNCHERS:
            given = known.get(rank_name, "")
            if given:
                size = known.get(size_name, "")
                rank = checked_rank(int(given) if _is_small(given) else given, rank_name)
                return JobRank(rank, max(int(size), 1) if _is_small(size) else 1)
        distributed = sys.modules.get("torch.distributed") if environment is None else None
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return JobRank(int(distributed.get_rank()), int(distributed.get_world_size()))
        return JobRank()


def checked_rank(given: int | str, source: str) -> int:
    """The rank, which must be a number that the trace's column can hold."""
    if isinstance(given, int) and 0 <= given <= MAX_RANK:
        return given
    shown = given if isinstance(given, int) else repr(given[:40])
    raise UsageError(f"{source}={shown} is not a number in 0..{MAX_RANK}; {_REMEDY}")


def wants_rank(chosen: str, job: JobRank) -> bool:
    """Whether `--ranks` names this rank: numbers and stretches such as 0,8-15, or sample:8 for some spread evenly."""
    sample = re.fullmatch(r"sample:(\d{1,9})", chosen)
    if sample:
        count = int(sample[1])
        if count < 1:
            raise UsageError(f"--ranks {chosen}: sample at least one rank")
        step = max(job.size / count, 1.0)
        return job.rank in {int(at * step) for at in range(min(count, job.size))}
    wanted = False
    for part in chosen.split(","):
        found = re.fullmatch(r"\s*(\d{1,9})(?:-(\d{1,9}))?\s*", part)
        if found is None:
            raise UsageError(f"--ranks {chosen}: expected numbers and stretches such as 0,8-15, or sample:8")
        low, high = int(found[1]), int(found[2] or found[1])
        if high < low:
            raise UsageError(f"--ranks {chosen}: {part.strip()} ends before it begins")
        wanted = wanted or low <= job.rank <= high
    return wanted


def _is_small(text: str) -> bool:
    return text.isdecimal() and len(text) <= len(str(MAX_RANK))
