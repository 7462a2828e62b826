"""Options about the ranks of a job: which of them to read, without touching the files of the others, and which kernels
are their collectives."""

from __future__ import annotations

import click

from warplens.commands.shared.console import working
from warplens.commands.shared.dataset_options import caution_if_large
from warplens.decode.trace_loader import load
from warplens.errors import UsageError
from warplens.profiling.job_ranks import JobRank, wants_rank
from warplens.trace.dataset import Dataset
from warplens.trace.model import Trace
from warplens.wording import number_ranges

ranks_option = click.option(
    "--ranks",
    metavar="A,B-C|sample:N",
    help="Read only these ranks of a folder, or N of them spread evenly.  [default: all]",
)
collective_option = click.option(
    "--collective",
    metavar="REGEX",
    help="Additional kernels to treat as collectives of several ranks.  [default: those of NCCL and NVSHMEM]",
)


def chosen_ranks(path: str, ranks: str | None) -> list[int] | None:
    """The ranks of a folder or file that `--ranks` names; None for all."""
    if ranks is None:
        return None
    known = sorted({info.rank for info in Dataset.open(path).meta.launches})
    chosen = [rank for place, rank in enumerate(known) if wants_rank(ranks, _job(ranks, place, rank, known))]
    if not chosen:
        raise UsageError(f"--ranks {ranks}: {path} has none of them; it has {number_ranges(known)}")
    return chosen


def _job(ranks: str, place: int, rank: int, known: list[int]) -> JobRank:
    """A sample is spread over the ranks that are there; numbers are those of the job."""
    return JobRank(place, len(known)) if ranks.startswith("sample:") else JobRank(rank, known[-1] + 1)


def read_ranks(path: str, ranks: str | None) -> Trace:
    """Load a trace, or some ranks of it, showing a spinner."""
    if ranks is None:
        caution_if_large(path)
    with working(f"reading {path}"):
        return load(path, rank=chosen_ranks(path, ranks))
