"""What an analysis consists of, and the answers that the analyses of one trace share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

from warplens.analyse.finding import Finding
from warplens.analyse.lifetimes import Lifetimes
from warplens.analyse.per_kernel import PerKernel
from warplens.analyse.producers import Matches, match_waits
from warplens.analyse.region_purpose import purposes
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

    `run` answers it for every kernel, `findings` states what stands out in the answers, and `table` lays out the
    answer for one kernel. `needs_all_blocks` says that it compares what all blocks of an SM did at the same time, so
    its findings are withheld where only some blocks were recorded.
    """

    name: str
    run: Callable[[Answers], PerKernel[T]]
    findings: Callable[[PerKernel[T], Answers], list[Finding]]
    table: Callable[[str, T], AnswerTable]
    needs_all_blocks: bool = False
    needs_timeline: bool = True
    """Whether it asks when something happened, which statistics that warps kept do not tell (mode="aggregate")."""


class Answers:
    """The answers to all questions about one trace, each computed when first asked for.

    `waits` is a regular expression for regions that only wait, in addition to those whose name says so.
    """

    def __init__(self, trace: Trace, waits: str | None = None) -> None:
        self.trace, self.waits = trace, waits
        self._computed: dict[str, PerKernel[Any]] = {}

    def of(self, analysis: Analysis[T]) -> PerKernel[T]:
        """The answer of one analysis for every kernel of the trace."""
        if analysis.name not in self._computed:
            unknown = analysis.needs_timeline and self.trace.aggregated
            self._computed[analysis.name] = PerKernel({}) if unknown else analysis.run(self)
        return self._computed[analysis.name]

    @cached_property
    def matches(self) -> Matches:
        """Each wait with the span that ended it."""
        lives = Lifetimes.of(self.trace)
        return match_waits(lives, purposes(lives.regions, self.waits))


def region_table(title: str, regions: Iterable[Any], *columns: tuple[str, Callable[[Any], str]]) -> AnswerTable:
    """A table with one row per region: its name, then the given columns."""
    rows = tuple((str(one.region), *(render(one) for _, render in columns)) for one in regions)
    return AnswerTable(title, ("region", *(name for name, _ in columns)), rows)


def fact_table(title: str, facts: Sequence[tuple[str, str]]) -> AnswerTable:
    """A table of facts without a heading: what, and how much."""
    return AnswerTable(title, ("", ""), tuple(facts))
