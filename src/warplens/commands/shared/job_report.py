"""What `warplens run` prints about a job of several ranks: a line for each, or one summary where it ran them all."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.markup import escape

from warplens.analyse.trace_quality import warnings_of
from warplens.commands.shared.console import stderr, table
from warplens.commands.shared.invocation import warplens_command
from warplens.commands.shared.run_report import shown_path, trace_of
from warplens.errors import WarplensError
from warplens.profiling.job_ranks import JobRank, wants_rank
from warplens.profiling.profile import Profile
from warplens.record.rank_notes import RankNotes
from warplens.trace.dataset import Dataset, PartEntry
from warplens.trace.io import rank_part
from warplens.trace.rank_folder import ranks_in
from warplens.wording import number_ranges, plural


@dataclass(frozen=True)
class RankPartSummary:
    """What one rank left in the folder of its job; `spans` is 0 if it wrote nothing."""

    rank: int
    file: str = ""
    kernels: int = 0
    launches: int = 0
    spans: int = 0
    collectives: int = 0
    ended: bool = False


_COLUMNS = [
    ("rank", lambda one: str(one.rank)),
    ("kernels", lambda one: f"{one.kernels:,}"),
    ("launches", lambda one: f"{one.launches:,}"),
    ("spans", lambda one: f"{one.spans:,}"),
    ("collectives", lambda one: f"{one.collectives:,}"),
    ("ended", lambda one: "yes" if one.ended else "no"),
]


def summaries(folder: Path) -> list[RankPartSummary]:
    """A summary of each rank that joined the job."""
    try:
        parts = {part.path: part for part in Dataset.open(folder).parts} if folder.is_dir() else {}
    except WarplensError:  # no rank has written a part
        parts = {}
    return [_summary(rank, parts.get(rank_part(folder, rank))) for rank in ranks_in(folder)]


def _summary(rank: int, part: PartEntry | None) -> RankPartSummary:
    if part is None:
        return RankPartSummary(rank)
    notes = part.meta.rank_notes.get(str(rank))
    known = RankNotes() if notes is None else RankNotes.from_json(notes)
    launches = part.meta.launches
    kernels = len({one.kernel for one in launches})
    return RankPartSummary(rank, str(part.path), kernels, len(launches), part.rows, len(known.calls), known.ended)


def describe_job(folder: Path, found: list[RankPartSummary]) -> None:
    """Print the ranks that a program started by itself, on stderr."""
    console = stderr()
    wrote = [one for one in found if one.spans]
    console.print()
    console.print(table("ranks", _COLUMNS, wrote))
    cut = [one.rank for one in wrote if not one.ended]
    if cut:
        console.print(f"[yellow]not ended normally: {_named(cut)}; launches after the last part are missing[/]")
    silent = [one.rank for one in found if not one.spans]
    if silent:
        console.print(f"[yellow]recorded nothing: {_named(silent)}[/]")
    shown = shown_path(folder)
    size = sum(Path(one.file).stat().st_size for one in wrote)
    console.print(f"\n[bold]files[/]\n  {escape(str(shown))} ({plural(len(wrote), 'part')}, {size:,} bytes)")
    console.print("[bold]next[/]")
    for verb in ("findings {}", "info {}", "stats {} --by rank"):
        console.print(f"  {escape(f'{warplens_command()} {verb.format(shlex.quote(str(shown)))}')}", soft_wrap=True)


def describe_rank(profile: Profile) -> None:
    """Print one line about a rank whose summary would be like that of another, and what is wrong with its trace."""
    trace = trace_of(profile)
    if not len(trace) or profile.path is None:
        return
    console, whose = stderr(), f"rank {profile.rank} of {profile.job.size:,}"
    file = rank_part(shown_path(profile.path), profile.rank)
    launches = plural(len(trace.meta.launches), "launch")
    console.print(f"{whose}: {launches} recorded: {escape(str(file))}", soft_wrap=True)
    for line in filter(profile.run.is_news, warnings_of(trace)):
        console.print(f"[yellow]{whose}: {escape(line)}[/]", soft_wrap=True)


def is_speaker(profile: Profile, ranks: str | None) -> bool:
    """Whether this rank prints its whole summary: the first of those that are profiled."""
    size = profile.job.size
    wanted = (rank for rank in range(size) if ranks is None or wants_rank(ranks, JobRank(rank, size)))
    return profile.rank == next(wanted, profile.rank)


def rank_documents(found: list[RankPartSummary]) -> list[dict[str, Any]]:
    """The summaries as JSON."""
    return [asdict(one) | {"file": one.file or None} for one in found]


def _named(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {number_ranges(ranks)}"
