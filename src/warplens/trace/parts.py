"""One file of a trace, of which any row groups can be read alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from warplens.trace.columns import ParquetColumns, TraceFile
from warplens.trace.model import Trace
from warplens.trace.row_groups import MOST_ROWS, Wanted, is_cut_between, wanted_groups
from warplens.trace.schema import Meta


@dataclass(frozen=True)
class TracePart:
    """An open file whose document was checked. `fixed` are the columns that the name of its folder stands for."""

    file: TraceFile
    rows: int
    fixed: Mapping[str, int]
    meta: Meta

    def trace(self, groups: Sequence[int] | None = None) -> Trace:
        """All rows, or those of some row groups; parents in other row groups are unknown."""
        metadata = self.file.metadata
        rows = self.rows if groups is None else sum(metadata.row_group(at).num_rows for at in groups)
        made = Trace(ParquetColumns(self.file, rows, self.fixed, self.meta, groups), self.meta)
        made.checked = self.file.checked
        return made

    def chunks(self, wanted: Wanted, most_rows: int = MOST_ROWS, whole: str = "track") -> Iterator[Trace]:
        """Go through the wanted rows in chunks of whole tracks, or of whole launches, of about `most_rows` rows.

        A file of an older version, whose row groups cut tracks, is one chunk.
        """
        chunk: list[int] = []
        rows = 0
        for at in self.groups(wanted):
            more = self.file.metadata.row_group(at).num_rows
            may_cut = bool(chunk) and (chunk[-1] + 1 < at or is_cut_between(whole, self.file.metadata, chunk[-1]))
            if may_cut and rows + more > most_rows:
                yield self.trace(chunk)
                chunk, rows = [], 0
            chunk.append(at)
            rows += more
        if chunk:
            yield self.trace(chunk)

    def groups(self, wanted: Wanted) -> list[int]:
        """The row groups that may hold a wanted row."""
        return wanted_groups(self.file.metadata, wanted)


def launches_wanted(
    meta: Meta, kernels: Collection[str] | None, launches: Collection[int] | None, ranks: Collection[int] | None
) -> set[int] | None:
    """The launches of a part that conditions leave; None for all of them."""
    if kernels is None and launches is None and ranks is None:
        return None
    return {
        info.launch
        for info in meta.launches
        if (kernels is None or info.kernel in kernels)
        and (launches is None or info.launch in launches)
        and (ranks is None or info.rank in ranks)
    }
