"""What an analysis consists of, and the answers that the analyses of one trace share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

from warplens.analyse.collective_entries import JobCollectives
from warplens.analyse.lifetimes import Lifetimes
from warplens.analyse.per_kernel import PerKernel
from warplens.analyse.producers import Matches, match_waits
from warplens.analyse.source_files import SourceText, find_source
from warplens.trace.model import Trace

T = TypeVar("T")


@dataclass(frozen=True)
class AnswerTable:
    """An answer as text: the first column holds names, the others numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Analysis(Generic[T]):
    """One question about a trace.

    `run` answers it for every variant of a kernel, and `table` lays out the answer for one variant.
    """

    name: str
    run: Callable[[Answers], PerKernel[T]]
    table: Callable[[str, T], AnswerTable]
    without: str = ""
    """What to say of a trace that it finds nothing in."""
    needs_timeline: bool = True
    """Whether it asks when something happened, which statistics that warps kept do not tell (mode="aggregate")."""


class Answers:
    """The answers to all questions about one trace, each computed when first asked for.

    `waits` is a regular expression for regions that only wait, in addition to those whose name says so. `folders` are
    those that source files may be read from; by default, the working directory. `collectives` is a regular expression
    for kernels that are collectives of several ranks, in addition to NCCL's.
    """

    def __init__(
        self,
        trace: Trace,
        waits: str | None = None,
        folders: Sequence[Path] | None = None,
        collectives: str | None = None,
    ) -> None:
        self.trace, self.waits, self.folders, self.collectives = trace, waits, folders, collectives
        self._computed: dict[str, PerKernel[Any]] = {}
        self._sources: dict[str, SourceText | None] = {}

    def of(self, analysis: Analysis[T]) -> PerKernel[T]:
        """The answer of one analysis for every kernel of the trace."""
        if analysis.name not in self._computed:
            self._computed[analysis.name] = analysis.run(self)
        return self._computed[analysis.name]

    @cached_property
    def job(self) -> JobCollectives:
        """The collectives of a job of several ranks."""
        return JobCollectives.of(self.trace, self.collectives)

    @property
    def lives(self) -> Lifetimes:
        return Lifetimes.of(self.trace)

    def source(self, file: str) -> SourceText | None:
        """A source file that the trace names, read once; None where it is not below the folders."""
        if file not in self._sources:
            folders = [Path.cwd()] if self.folders is None else self.folders
            self._sources[file] = find_source(file, folders, self.trace.meta.source_hashes)
        return self._sources[file]

    @cached_property
    def matches(self) -> Matches:
        """Each wait with the span that ended it."""
        lives = self.lives
        return match_waits(lives, lives.purposes(self.waits))


def region_table(title: str, regions: Iterable[Any], *columns: tuple[str, Callable[[Any], str]]) -> AnswerTable:
    """A table with one row per region: its name, then the given columns."""
    rows = tuple((str(one.region), *(render(one) for _, render in columns)) for one in regions)
    return AnswerTable(title, ("region", *(name for name, _ in columns)), rows)


def fact_table(title: str, facts: Sequence[tuple[str, str]]) -> AnswerTable:
    """A table of facts without a heading: what, and how much."""
    return AnswerTable(title, ("", ""), tuple(facts))
