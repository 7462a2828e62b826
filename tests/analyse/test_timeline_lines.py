"""Spans of a track that overlap: lines, innermost spans, and time in proportion to their number."""

from __future__ import annotations

from functools import partial

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.support.builders import Span, make_trace
from tests.support.processor_time import least_processor_time
from warplens.analyse.timeline import innermost, lanes
from warplens.trace.model import Trace

SPANS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 12)), min_size=1, max_size=30)


def overlapping(steps: list[tuple[int, int]]) -> Trace:
    """Spans of one track that begin one after the other and nest in nothing."""
    begins = np.cumsum([step for step, _ in steps]).tolist()
    spans = [(begin, lasts) for begin, (_, lasts) in zip(begins, steps, strict=True)]
    return make_trace([Span("a", begin, lasts, depth=0, parent=-1) for begin, lasts in spans])


@given(SPANS)
def test_each_span_is_on_the_first_line_that_is_free(steps: list[tuple[int, int]]) -> None:
    trace = overlapping(steps)
    begin, lasts = trace.numpy("start_ns").tolist(), trace.numpy("dur_ns").tolist()
    busy: list[int] = []
    expected = []
    for at, length in zip(begin, lasts, strict=True):
        line = next((line for line, end in enumerate(busy) if end <= at), len(busy))
        busy += [0] * (line + 1 - len(busy))
        if length:
            busy[line] = at + length
        expected.append(line)
    assert lanes(trace).tolist() == expected


@given(SPANS)
def test_the_span_that_began_last_is_the_innermost(steps: list[tuple[int, int]]) -> None:
    trace = overlapping(steps)
    begin, end = trace.numpy("start_ns"), trace.numpy("start_ns") + trace.numpy("dur_ns")
    found = innermost(trace)
    for moment in range(int(end.max(initial=0))):
        live = np.flatnonzero((begin <= moment) & (end > moment))
        at = np.flatnonzero((found.begin <= moment) & (found.end > moment))
        assert found.row[at].tolist() == live[-1:].tolist()


def test_spans_left_open_take_time_in_proportion_to_their_number() -> None:
    """Eight times as many may take 20 times as long on a busy machine; a search of all lines takes 64 times."""
    small, large = (overlapping([(1, 10**6)] * count) for count in (500, 4000))
    for work in (lanes, innermost):
        brief, long = (least_processor_time(partial(work, one), 3) for one in (small, large))
        assert long < 20 * max(brief, 1e-3)
