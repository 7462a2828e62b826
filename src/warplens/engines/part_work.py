"""What is computed of one part of a dataset, in this process or in a worker of a cluster."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from warplens.analyse.job_findings import piece_launches
from warplens.analyse.known_facts import KnownFacts
from warplens.analyse.merged_findings import judge_piece
from warplens.analyse.partial_sums import Grouping, partial_sums
from warplens.analyse.partial_tables import merge_partials
from warplens.errors import CaptureError
from warplens.trace.dataset import Dataset, RowSelection
from warplens.trace.io import open_part
from warplens.trace.merge import TimeAxis
from warplens.trace.parts import TracePart
from warplens.trace.rank_placement import RankPlacement
from warplens.trace.select import with_own_launches

CHUNK_ROWS = 1 << 18
"""Rows in memory at once for each part that is being read, unless a launch has larger row groups."""


FINDING_ROWS = 1 << 20
"""The same for findings, which need whole launches and more memory per row."""


@dataclass(frozen=True)
class PartTask:
    """A part to read, the time axis of the dataset, and the file's size and time."""

    path: Path
    axis: TimeAxis
    stamp: tuple[int, int]

    def open(self) -> TracePart:
        """Open the part, which must be the one whose launches the dataset knows."""
        part = open_part(self.path)
        if part.file.stamp != self.stamp:
            remedy = "ask again when the job has ended, or copy the folder first"
            raise CaptureError(self.path, "file", "was changed while the dataset was read", remedy)
        return part


PartWork = Callable[[PartTask], pa.Table]


class PartEngine(Protocol):
    """Runs a function on every part."""

    def tables(self, work: PartWork, tasks: Sequence[PartTask]) -> Iterator[pa.Table]:
        """The result of each task, in the order of the tasks."""
        ...


def tasks_of(dataset: Dataset, selection: RowSelection) -> list[PartTask]:
    """The parts that may hold a selected row."""
    axis = dataset.axis if selection.time else TimeAxis(0, RankPlacement())
    chosen = [part for part in dataset.parts if selection.wanted(part.meta, axis).launches != set()]
    return [PartTask(part.path, axis, part.stamp) for part in chosen]


def part_findings(task: PartTask, selection: RowSelection, waits: str | None, given: KnownFacts) -> pa.Table:
    """The findings of one part and its launches, piece by piece: a finding needs whole launches."""
    part = task.open()
    chunks = part.chunks(selection.wanted(part.meta, task.axis), FINDING_ROWS, whole="launch")
    judged = []
    for chunk in chunks:
        chosen = selection.of_part(chunk, task.axis)
        piece = with_own_launches(chosen.spans, chosen.meta)
        judged.append((judge_piece(piece, waits, given), piece_launches(piece)))
        piece.derived.clear()  # it refers back to the piece, whose memory is needed for the next one
    return pa.table({"judged": pa.array([pickle.dumps(one) for one in judged], pa.binary())})


def part_sums(task: PartTask, grouping: Grouping, selection: RowSelection) -> pa.Table:
    """The partial result of one part."""
    part = task.open()
    chunks = part.chunks(selection.wanted(part.meta, task.axis), CHUNK_ROWS)
    return merge_partials(partial_sums(selection.of_part(chunk, task.axis), grouping) for chunk in chunks)
