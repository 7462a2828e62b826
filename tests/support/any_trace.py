"""Random traces of any shape, for what must hold for every trace."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.support.builders import Span, make_trace
from warplens.trace.model import Trace


@st.composite
def any_trace(draw: st.DrawFn) -> Trace:
    """Several ranks, kernels, launches and lanes; nested, asynchronous, empty and open spans; instants and values."""
    spans = []
    for _ in range(draw(st.integers(1, 8))):
        launch = draw(st.integers(0, 2))
        block = draw(st.integers(0, 3))
        where = {
            "rank": draw(st.integers(0, 1)),
            "launch": launch,
            "block": block,
            "warp": draw(st.integers(0, 2)),
            "lane": draw(st.sampled_from([0, 0, 5])),
            "sm": block % 2,
            "kernel": f"kernel{launch % 2}",
        }
        at = draw(st.integers(0, 100))
        for _ in range(draw(st.integers(1, 4))):
            lasts = draw(st.integers(0, 60))
            name = draw(st.sampled_from(["load", "mma", "wait", "x"]))
            spans.append(Span(name, at, lasts, depth=0, open=draw(st.integers(0, 9)) == 0, **where))
            if draw(st.booleans()):
                inner = draw(st.integers(0, 80))  # may outlive its parent, as asynchronous spans do
                spans.append(Span(draw(st.sampled_from(["load", "wait", "y"])), at, inner, depth=1, **where))
            if draw(st.booleans()):
                kind = draw(st.sampled_from(["instant", "value"]))
                spans.append(Span("stage", at, kind=kind, value=draw(st.floats(-5, 5)), depth=1, **where))
            at += lasts + draw(st.integers(0, 5))
    return make_trace(_distinct(spans))


def _distinct(spans: list[Span]) -> list[Span]:
    """One run of spans per track: the ones drawn first."""
    first: dict[tuple[int, ...], int] = {}
    kept, group, last = [], -1, None
    for span in spans:
        if span.track != last:
            group, last = group + 1, span.track
        if first.setdefault(span.track, group) == group:
            kept.append(span)
    return kept
