"""What is computed of one part of a dataset, in this process or in a worker of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from warplens.analyse.partial_sums import Grouping, partial_sums
from warplens.analyse.partial_tables import merge_partials
from warplens.trace.dataset import Dataset, RowSelection
from warplens.trace.io import open_part

CHUNK_ROWS = 1 << 18
"""Rows in memory at once for each part that is being read, unless a launch has larger row groups."""


@dataclass(frozen=True)
class PartTask:
    """A part to read, and how long after time zero of the dataset its times begin."""

    path: Path
    shift_ns: int


PartWork = Callable[[PartTask], pa.Table]


class PartEngine(Protocol):
    """Runs a function on every part."""

    def tables(self, work: PartWork, tasks: Sequence[PartTask]) -> Iterator[pa.Table]:
        """The result of each task, in the order of the tasks."""
        ...


def tasks_of(dataset: Dataset, selection: RowSelection) -> list[PartTask]:
    """The parts that may hold a selected row."""
    shifts = {part.path: dataset.shift_ns(part) for part in dataset.parts}
    chosen = [part for part in dataset.parts if selection.wanted(part.meta, shifts[part.path]).launches != set()]
    return [PartTask(part.path, shifts[part.path]) for part in chosen]


def part_sums(task: PartTask, grouping: Grouping, selection: RowSelection) -> pa.Table:
    """The partial result of one part."""
    part = open_part(task.path)
    chunks = part.chunks(selection.wanted(part.meta, task.shift_ns), CHUNK_ROWS)
    return merge_partials(partial_sums(selection.of_part(chunk, task.shift_ns), grouping) for chunk in chunks)
