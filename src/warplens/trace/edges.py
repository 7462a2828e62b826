"""The table `Trace.edges`: who waited for whom, one row per wait on a barrier whose arrival is known or missed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from warplens.record.barrier_words import OFFSET_BITS, Operation
from warplens.trace.arrays import dictionary_array, to_arrow
from warplens.trace.barrier_rows import (
    COPIES,
    IMMEDIATE_CYCLES,
    NO_RECORD,
    UNKNOWN_ARRIVAL,
    BarrierWords,
    Int,
    began_before,
    did_wait,
)

if TYPE_CHECKING:
    from warplens.trace.model import Trace

EDGE_KINDS = ("arrive", "copy", "barrier", "cluster", "unknown")
"""What released the wait: an arrival, a copy (from its issue), the last warp at a named barrier or at a cluster
barrier; `unknown` if that was not recorded."""

EDGE_COLUMNS: dict[str, pa.DataType] = {
    "rank": pa.int32(),
    "launch": pa.int32(),
    "kernel": pa.dictionary(pa.int32(), pa.string()),
    "kind": pa.dictionary(pa.int8(), pa.string()),
    "barrier": pa.int64(),
    "phase": pa.int8(),
    "wait": pa.int32(),
    "arrival": pa.int32(),
    "wait_record": pa.int32(),
    "arrival_record": pa.int32(),
    "waited_cycles": pa.int64(),
    "waited_ns": pa.int64(),
    "slack_ns": pa.int64(),
}
"""`barrier` is a shared address or a number, `phase` its parity (-1 if unknown). `wait` and `arrival` are rows of
`Trace.spans`: the span that waits, and the innermost span around the arrival (or its record, if there is none);
`wait_record` and `arrival_record` are the rows with the barrier words. `waited` is 0 where the arrival came first.
`slack_ns` is how long before the wait the arrival came; negative if the wait began first."""


def has_barrier_records(trace: Trace) -> bool:
    """Whether barriers were recorded; without a single value that is known from the kinds of the rows alone."""
    return bool(trace.of_kind("value").any() and (trace.numpy("released_by") != NO_RECORD).any())


def edges(trace: Trace) -> pa.Table:
    """The edges of a trace, ordered by the waits' rows."""
    if not has_barrier_records(trace):
        return pa.schema(list(EDGE_COLUMNS.items())).empty_table()
    released = trace.numpy("released_by")
    record = np.flatnonzero((released >= 0) | (released == UNKNOWN_ARRIVAL))
    if not len(record):
        return pa.schema(list(EDGE_COLUMNS.items())).empty_table()
    arrival_record = released[record].astype(np.int64)
    known = arrival_record >= 0
    source = np.where(known, arrival_record, record)
    value = trace.numpy("value")
    words, of_source = BarrierWords(np.nan_to_num(value[record])), BarrierWords(np.nan_to_num(value[source]))
    wait, arrival = _spans(trace, record, own=True), _spans(trace, source)
    is_copy = of_source.is_any(COPIES)
    start, start_ns = trace.numpy("start_cycle"), trace.numpy("start_ns")
    begun = np.where(began_before(words), wait, record)
    begin, end = start[begun], start[wait] + trace.numpy("dur_cycles")[wait]
    slack = start_ns[begun] - start_ns[source]
    same_clock = trace.numpy("sm")[wait] == trace.numpy("sm")[source]
    waited = np.where(same_clock, did_wait(begin, end, start[source], is_copy), slack < 0)
    waited |= ~same_clock & is_copy & (end - begin > IMMEDIATE_CYCLES)
    waited |= ~known
    columns = {
        "rank": to_arrow(trace.at("rank", record).astype(np.int32)),
        "launch": to_arrow(trace.at("launch", record).astype(np.int32)),
        "kernel": dictionary_array(trace.at("kernel", record).astype(np.int32), trace.kernels),
        "kind": dictionary_array(_kinds(words, is_copy, known).astype(np.int8), EDGE_KINDS),
        "barrier": to_arrow(np.where(words.operation == Operation.SYNC, words.barrier, words.barrier & _MASK)),
        "phase": to_arrow(np.where(words.operation == Operation.WAIT, words.parity, -1).astype(np.int8)),
        "wait": to_arrow(wait.astype(np.int32)),
        "arrival": to_arrow(np.where(known, arrival, -1).astype(np.int32)),
        "wait_record": to_arrow(record.astype(np.int32)),
        "arrival_record": to_arrow(np.where(known, source, -1).astype(np.int32)),
        "waited_cycles": to_arrow(np.where(waited, end - begin, 0)),
        "waited_ns": to_arrow(np.where(waited, start_ns[wait] + trace.numpy("dur_ns")[wait] - start_ns[begun], 0)),
        "slack_ns": to_arrow(np.where(known, slack, 0)),
    }
    return pa.table(columns, schema=pa.schema(list(EDGE_COLUMNS.items())))


_MASK = (1 << OFFSET_BITS) - 1


def _spans(trace: Trace, record: Int, own: bool = False) -> Int:
    """The innermost span around each record (with `own`, only if it has the same name), or the record itself."""
    parent = trace.numpy("parent")[record].astype(np.int64)
    region = trace.codes("region")[0]
    inside = parent >= 0
    if own:
        inside &= region[np.maximum(parent, 0)] == region[record] if len(record) else False
    return np.where(inside, parent, record)


def _kinds(words: BarrierWords, is_copy: np.ndarray, known: np.ndarray) -> Int:
    kinds = np.where(is_copy, EDGE_KINDS.index("copy"), EDGE_KINDS.index("arrive"))
    kinds[words.operation == Operation.SYNC] = EDGE_KINDS.index("barrier")
    kinds[words.operation == Operation.CLUSTER_WAIT] = EDGE_KINDS.index("cluster")
    kinds[~known] = EDGE_KINDS.index("unknown")
    return kinds
