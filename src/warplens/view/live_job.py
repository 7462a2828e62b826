"""The ranks of a running job side by side: what each does, and which of them the others wait for."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from warplens.record.rank_notes import ALL
from warplens.view.live_address import LiveAddress
from warplens.view.rank_summary import LiveCollective, RankSummary
from warplens.wording import duration, integer, number_ranges, plural

LATE_S = 1.0
"""A rank is behind if others have waited this long for it in a collective."""
HANG_S, HANG_RATIO = 5.0, 10.0
"""A kernel hangs if it has run this long, and this many times as long as on any other rank that launches it."""

ANSWERS, SILENT, ENDED, GONE = "answers", "silent", "ended", "gone"
"""A rank answers, does not answer, has said that it ended, or is no longer there without having said so."""


@dataclass(frozen=True)
class RankView:
    """One rank as it was last heard of, at `made` on the monotonic clock of the viewer; `silent_since` is when it was
    first asked without an answer."""

    address: LiveAddress
    status: str = SILENT
    summary: RankSummary | None = None
    made: float = 0.0
    silent_since: float = 0.0

    @property
    def rank(self) -> int:
        return self.address.rank

    def running(self, now: float) -> dict[str, float]:
        """The kernels that run, and for how long by now."""
        if self.status in (ENDED, GONE):
            return {}
        return {name: took + now - self.made for name, took in self.known.running.items()}

    @property
    def known(self) -> RankSummary:
        """What was heard of it last; an empty summary if nothing was."""
        return self.summary or RankSummary()

    def position(self, group: str) -> LiveCollective | None:
        """Its newest collective of a group; None if it has entered none."""
        return next((one for one in self.known.collectives if one.group == group), None)


@dataclass(frozen=True)
class JobState:
    """All ranks of this host at `now` on the monotonic clock. `elsewhere` has how many ranks show themselves on which
    other host, and `size` is the number of ranks of the job."""

    number: int = 0
    now: float = field(default_factory=time.monotonic)
    program: str = ""
    ranks: Sequence[RankView] = ()
    size: int = 1
    elsewhere: tuple[tuple[str, int], ...] = ()
    left_out: int = 0

    @property
    def ended(self) -> bool:
        """Whether no rank is left that may say something."""
        return self.number > 0 and all(one.status in (ENDED, GONE) for one in self.ranks)

    def document(self) -> dict[str, Any]:
        """What the page and the terminal show."""
        behind = dict(self._behind())
        hangs = {rank: text for rank, text in self._hanging() if rank not in behind}
        flags = dict.fromkeys(hangs, "hangs") | dict.fromkeys(behind, "behind")
        return {
            "number": self.number,
            "ended": self.ended,
            "program": self.program,
            "facts": self._facts(),
            "said": [*behind.values(), *hangs.values(), *self._silent(set(behind))],
            "notes": self._notes(),
            "ranks": [self._row(one, flags.get(one.rank, "")) for one in self.ranks],
        }

    def _facts(self) -> list[tuple[str, str]]:
        count = [one.status for one in self.ranks].count
        running = sum(bool(one.running(self.now)) for one in self.ranks)
        return [
            ("ranks here", f"{len(self.ranks) + self.left_out:,} of {self.size:,}"),
            ("answer", integer(count(ANSWERS))),
            ("run a kernel", integer(running)),
            ("do not answer", integer(count(SILENT))),
            ("ended", integer(count(ENDED))),
            ("gone", integer(count(GONE))),
        ]

    def _notes(self) -> list[str]:
        said = []
        if self.elsewhere:
            where = ", ".join(f"{count:,} on {host}" for host, count in self.elsewhere)
            said.append(f"ranks of other hosts are not shown ({where}); run `warplens view --live` there to see them")
        if self.left_out:
            said.append(f"{plural(self.left_out, 'more rank')} of this host not shown")
        return said

    def _row(self, one: RankView, flag: str) -> dict[str, Any]:
        known, older = one.known, self.now - one.made
        running = one.running(self.now)
        longest = max(running, key=lambda name: running[name], default=None)
        newest = min(known.collectives, key=lambda each: each.ago_s, default=None)
        return {
            "rank": one.rank,
            "status": one.status,
            "silent_s": self.now - one.silent_since if one.status == SILENT else None,
            "flag": flag,
            "kernel": longest,
            "running_s": None if longest is None else running[longest],
            "more": max(len(running) - 1, 0),
            "where": next(iter(known.where), "") if running else "",
            "launches": known.launches,
            "last_launch": None if known.last_launch is None else known.last_launch[0],
            "last_launch_s": None if known.last_launch is None else known.last_launch[1] + older,
            "collective": None if newest is None else f"{newest.operation} {newest.number}",
            "collective_s": None if newest is None else newest.ago_s + older,
            "inside": newest is not None and newest.inside and one.status in (ANSWERS, SILENT),
        }

    def _behind(self) -> Iterator[tuple[int, str]]:
        """The ranks that have not entered a collective in which others wait for them."""
        waits = [
            (waiting, at)
            for waiting in self.ranks
            if waiting.status == ANSWERS
            for at in waiting.known.collectives
            if at.inside
        ]
        for one in self.ranks:
            # What a rank has entered since it stopped answering is not known.
            heard = one.made if one.status == ANSWERS else self.now
            missed = [
                (waiting, at)
                for waiting, at in waits
                if one.status != ENDED and _waits_for(at, one.rank) and not _has_entered(one, at)
                if heard - (waiting.made - at.ago_s) > LATE_S
            ]
            if missed:
                yield one.rank, self._behind_text(one, missed)

    def _behind_text(self, late: RankView, missed: list[tuple[RankView, LiveCollective]]) -> str:
        """About the collective that was entered first, and those who are in it."""
        begin, first = min(((waiting.made - at.ago_s, at) for waiting, at in missed), key=lambda each: each[0])
        ranks = [waiting.rank for waiting, at in missed if (at.group, at.number) == (first.group, first.number)]
        who = f"rank {ranks[0]} has" if len(ranks) == 1 else f"ranks {number_ranges(ranks)} have"
        where = f"{first.operation} {first.number} of group {first.group.rpartition(':')[2]}"
        waited = duration((self.now - begin) * 1e9)
        return f"rank {late.rank} is behind: {who} waited {waited} for it in {where}; {self._doing(late)}"

    def _doing(self, one: RankView) -> str:
        if one.status == GONE:
            return "its process is gone"
        if one.status == SILENT:
            return f"it has not answered for {duration((self.now - one.silent_since) * 1e9)}"
        running, launch = one.running(self.now), one.known.last_launch
        if running:
            name = max(running, key=lambda each: running[each])
            where = next((f" ({text})" for text in one.known.where), "")
            return f"it has run `{name}` for {duration(running[name] * 1e9)}{where}"
        if launch is None:
            return "it has launched no kernel"
        ago = duration((launch[1] + self.now - one.made) * 1e9)
        return f"it runs no recorded kernel, and launched `{launch[0]}` {ago} ago"

    def _hanging(self) -> Iterator[tuple[int, str]]:
        """The ranks on which a kernel runs for much longer than on the others."""
        times = {one.rank: one.running(self.now) for one in self.ranks}
        for one in self.ranks:
            for name, took in times[one.rank].items():
                others = [
                    times[each.rank].get(name, 0.0)
                    for each in self.ranks
                    if each is not one and each.known.launched.get(name)
                ]
                if took >= HANG_S and others and took > HANG_RATIO * max(others):
                    there = f"for {duration(max(others) * 1e9)} at most" if max(others) > 0 else "nowhere"
                    text = f"rank {one.rank} may hang: `{name}` has run on it for {duration(took * 1e9)}; of the "
                    yield one.rank, text + f"{plural(len(others), 'other rank')} that launched it, it runs {there}"

    def _silent(self, told: set[int]) -> Iterator[str]:
        """The other ranks that do not answer."""
        for status, one_of_them, several in (
            (SILENT, "does not answer", "do not answer"),
            (GONE, "was killed or has crashed", "were killed or have crashed"),
        ):
            ranks = [one.rank for one in self.ranks if one.status == status and one.rank not in told]
            if ranks:
                yield f"rank {ranks[0]} {one_of_them}" if len(ranks) == 1 else f"ranks {number_ranges(ranks)} {several}"


def _waits_for(at: LiveCollective, rank: int) -> bool:
    """Whether the ranks in a collective wait for this rank."""
    return at.waits_for == str(rank) or (at.waits_for == ALL and _is_member(at.group, rank))


def _has_entered(one: RankView, at: LiveCollective) -> bool:
    own = one.position(at.group)
    return own is not None and own.number >= at.number


def _is_member(group: str, rank: int) -> bool:
    """A group's name ends with its ranks: `0:0-3, 7`."""
    stretches = re.findall(r"(\d+)(?:-(\d+))?", group.rpartition(":")[2])
    return any(int(low) <= rank <= int(high or low) for low, high in stretches)
