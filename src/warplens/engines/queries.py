"""The questions that a dataset answers without being read into memory."""

from __future__ import annotations

import pickle
from functools import partial

from warplens.analyse.diff import CONFIDENCE, MARGIN, Difference, diff_sides
from warplens.analyse.findings import Findings
from warplens.analyse.job_findings import late_rank_findings, merge_launches
from warplens.analyse.kernel_variants import kernel_variants
from warplens.analyse.known_facts import KnownFacts
from warplens.analyse.merged_findings import merge_findings
from warplens.analyse.partial_diff import PartialSide, diff_grouping
from warplens.analyse.partial_statistics import grouping_of, statistics_of
from warplens.analyse.partial_tables import merge_partials
from warplens.analyse.statistics import Statistics
from warplens.engines.part_work import PartEngine, part_findings, part_sums, tasks_of
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


def dataset_diff(
    before: Dataset, after: Dataset, engine: PartEngine, *, margin: float = MARGIN, confidence: float = CONFIDENCE
) -> Difference:
    """What changed between two datasets, as `warplens.diff` says it; percentiles come from a sketch."""
    first, second = (_diff_side(dataset, engine) for dataset in (before, after))
    return diff_sides(first, second, margin=margin, confidence=confidence)


def _diff_side(dataset: Dataset, engine: PartEngine) -> PartialSide:
    work = partial(part_sums, grouping=diff_grouping(dataset.meta), selection=RowSelection())
    return PartialSide(merge_partials(engine.tables(work, tasks_of(dataset, RowSelection()))), dataset.meta)


def dataset_findings(
    dataset: Dataset,
    engine: PartEngine,
    *,
    waits: str | None = None,
    given: KnownFacts | None = None,
    selection: RowSelection | None = None,
    collectives: str | None = None,
) -> Findings:
    """What costs time in the kernels of a dataset: judged rank by rank inside launches, and over all ranks for those
    that are late. `collectives` is as in `Answers`. Late ranks are not looked for in a selection by time."""
    chosen, known = selection or RowSelection(), given or KnownFacts()
    dataset.check(chosen)
    work = partial(part_findings, selection=chosen, waits=waits, given=known)
    tables = engine.tables(work, tasks_of(dataset, chosen))
    pieces = [pickle.loads(one) for table in tables for one in table["judged"].to_pylist()]
    labels = {
        (info.rank, info.launch): one.label for one in kernel_variants(dataset.meta.launches) for info in one.launches
    }
    between_ranks = {}
    if chosen.time is None:
        launches = [launch for _, some in pieces for launch in some]
        between_ranks = late_rank_findings(
            merge_launches(launches, labels, dataset.shifts), dataset.outline(), known, collectives
        )
    return merge_findings([one for judged, _ in pieces for one in judged], labels, between_ranks)
