"""The questions that a dataset answers without being read into memory."""

from __future__ import annotations

from functools import partial

from warplens.analyse.partial_statistics import grouping_of, statistics_of
from warplens.analyse.partial_tables import merge_partials
from warplens.analyse.statistics import Statistics
from warplens.engines.part_work import PartEngine, part_sums, tasks_of
from warplens.trace.dataset import Dataset, RowSelection


def dataset_statistics(
    dataset: Dataset,
    engine: PartEngine,
    by: str = "region",
    *,
    merge_variants: bool = False,
    selection: RowSelection | None = None,
) -> Statistics:
    """The statistics of every region, as `Trace.stats` gives them; percentiles come from a sketch."""
    chosen = selection or RowSelection()
    dataset.check(chosen)
    grouping = grouping_of(dataset.meta, by, merge_variants=merge_variants, selected=bool(chosen))
    work = partial(part_sums, grouping=grouping, selection=chosen)
    merged = merge_partials(engine.tables(work, tasks_of(dataset, chosen)))
    chosen.check_names("region", set(merged["region"].to_pylist()))
    return statistics_of(merged, dataset.meta, grouping)
