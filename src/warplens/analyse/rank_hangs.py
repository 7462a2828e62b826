"""A job of ranks that hangs: which rank holds it up, what that rank hangs in, and which ranks wait for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from warplens.analyse.finding import Finding
from warplens.analyse.hang import Hang, WarpGroup, hang_findings, hang_lines, hangs, where_text
from warplens.analyse.region_purpose import Purpose, purpose_of
from warplens.trace.model import Trace
from warplens.wording import number_ranges, plural

_MOST_LINES = 8


@dataclass(frozen=True)
class RankPosition:
    """How far one rank got: the recorded launches that ended, and the one that it hangs in, if it does.

    `waits` says that all of its warps that hang, or that others of its warps wait for, wait for something outside.
    """

    rank: int
    ended: int
    kernels: tuple[str, ...]
    """The kernels of its recorded launches, in order."""
    hang: Hang | None = None
    waits: bool = False

    def text(self) -> str:
        """Where it is, without its number."""
        if self.hang is None:
            last = f", the last one of {self.kernels[-1]}" if self.kernels else ""
            return f"outside recorded kernels, after {plural(self.ended, 'recorded launch')}{last}"
        root = _roots(self.hang)
        place = f", {where_text(root[0])}" if root else ""
        return f"in {self.hang.kernel} (launch {self.hang.launch}){place}"


@dataclass(frozen=True)
class JobHang:
    """The ranks of a job of which some hang. `holding` are those that the others wait for; empty where the records do
    not tell. `silent` are ranks that wrote no trace."""

    holding: tuple[RankPosition, ...]
    others: tuple[RankPosition, ...]
    silent: tuple[int, ...] = ()

    def lines(self) -> list[str]:
        """The rank that holds up the job first, then the others, equal ones together."""
        out = []
        for text, ranks in _alike(self.holding):
            out.append(
                f"{_ranks(ranks, 'holds', 'hold')} up the job: {'it is' if len(ranks) == 1 else 'they are'} {text}"
            )
        for text, ranks in _alike(self.others):
            is_, waits = ("is", "waits for that") if len(ranks) == 1 else ("are", "wait for that")
            out.append(f"{_ranks(ranks, is_, is_)} {text}" + (f" and {waits}" if self.holding else ""))
        if not self.holding:
            out.append("the records do not tell which rank the others wait for")
        if self.silent:
            out.append(f"{_ranks(self.silent, 'has', 'have')} written no trace")
        return out[:_MOST_LINES]


def job_hang(trace: Trace, found: Sequence[Hang] | None = None) -> JobHang | None:
    """Who waits for whom in a job; None for a single rank, and where no rank hangs."""
    known = hangs(trace) if found is None else found
    ranks = sorted({info.rank for info in trace.meta.launches})
    if not known or len(ranks) < 2:
        return None
    positions = [_position(trace, rank, known) for rank in ranks]
    holding = _holding(positions)
    others = [one for one in positions if one not in holding]
    silent = tuple(sorted(set(range(ranks[-1] + 1)) - set(ranks)))
    return JobHang(tuple(holding), tuple(others), silent)


def job_lines(trace: Trace) -> list[str]:
    """What is to be said of all launches that did not end, the rank that holds up the job first."""
    found = hangs(trace)
    job = job_hang(trace, found)
    if job is None:
        return [line for hang in found for line in hang_lines(hang)]
    first = [one.rank for one in job.holding]
    ordered = sorted(found, key=lambda hang: (hang.rank not in first, hang.rank, hang.launch))
    rest = len(ordered) - _MOST_LINES
    return [
        *job.lines(),
        *(line for hang in ordered[:_MOST_LINES] for line in _of_rank(hang)),
        *([f"and {plural(rest, 'more launch')} of other ranks did not end"] if rest > 0 else []),
    ]


def rank_findings(trace: Trace) -> list[Finding]:
    """A finding for each launch that did not end; of a job, only for the ranks that hold it up, if they are known."""
    found = hangs(trace)
    job = job_hang(trace, found)
    if job is None:
        return hang_findings(found)
    held = {one.rank for one in job.holding if one.hang is not None}
    said = "; ".join(job.lines())
    return hang_findings([hang for hang in found if hang.rank in held or not held], f" Of the job: {said}.")


def _of_rank(hang: Hang) -> list[str]:
    head, *groups = hang_lines(hang)
    return [f"rank {hang.rank}: {head}", *groups]


def _position(trace: Trace, rank: int, found: Sequence[Hang]) -> RankPosition:
    infos = sorted((info for info in trace.meta.launches if info.rank == rank), key=lambda info: info.launch)
    mine = [hang for hang in found if hang.rank == rank]
    kernels = tuple(info.kernel for info in infos)
    if not mine:
        return RankPosition(rank, len(infos), kernels)
    first = min(mine, key=lambda hang: hang.launch)
    outside = [_waits_outside(group) for hang in mine for group in _roots(hang)]
    return RankPosition(rank, len(infos) - len(mine), kernels, first, bool(outside) and all(outside))


def _roots(hang: Hang) -> Sequence[WarpGroup]:
    """The warps that others wait for; all of them if no warp is waited for."""
    return [group for group in hang.groups if group.wanted] or hang.groups


def _waits_outside(group: WarpGroup) -> bool:
    """Whether a region waits by its name, and not at a barrier of its own block."""
    return bool(group.regions) and group.wait is None and purpose_of(group.regions[-1]) is Purpose.WAIT


def _holding(positions: Sequence[RankPosition]) -> list[RankPosition]:
    """Of ranks that run the same kernels in the same order, the one with the fewest ended launches holds up the others.
    Where all got equally far, it is those that do not wait for others."""
    hung = [one for one in positions if one.hang is not None]
    if _same_program(positions):
        fewest = min(one.ended for one in positions)
        behind = [one for one in hung if one.ended == fewest]
        ahead = [one for one in positions if one.ended > fewest]
        if behind and ahead:
            return [one for one in behind if not one.waits] or behind
        if all(one.waits for one in hung):
            return [one for one in positions if one.hang is None]  # they have not even launched it
    busy = [one for one in hung if not one.waits]
    return busy if len(busy) < len(positions) else []


def _same_program(positions: Sequence[RankPosition]) -> bool:
    longest = max((one.kernels for one in positions), key=len)
    return all(one.kernels == longest[: len(one.kernels)] for one in positions)


def _alike(positions: Sequence[RankPosition]) -> list[tuple[str, list[int]]]:
    groups: dict[str, list[int]] = {}
    for one in positions:
        groups.setdefault(one.text(), []).append(one.rank)
    return list(groups.items())


def _ranks(ranks: Sequence[int], one: str, several: str) -> str:
    word, verb = ("rank", one) if len(ranks) == 1 else ("ranks", several)
    return f"{word} {number_ranges(ranks)} {verb}"
