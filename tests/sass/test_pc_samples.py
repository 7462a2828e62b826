"""Samples as a trace keeps them: they survive JSON, and a document that holds none is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.support.builders import Span, make_trace
from warplens.sass.pc_samples import PcSampling, SampledCode
from warplens.trace.document import WrongDocument, document_of, parse_document

COUNTS = {0: {"wait": 3}, 32: {"long_scoreboard": 2, "wait": 1}}
CODE = SampledCode.of("k", "digest", COUNTS, 9)


def test_counts_survive_json() -> None:
    assert CODE.counts() == COUNTS
    plain = SampledCode.of("k", "digest", {12: {"wait": 1}}, 5, plain=True, file="/src/k.py")
    sampled = PcSampling((CODE, plain), 20, 1, 2, 3, 1024, ("not sampled: x",))
    assert PcSampling.from_json(json.loads(json.dumps(sampled.to_json()))) == sampled
    assert PcSampling.from_json({}) == PcSampling()


@pytest.mark.parametrize(
    "wrong",
    [
        {"taken": "many"},
        {"codes": 3},
        {"codes": [{}]},
        {"codes": [{"reasons": ["wait"], "rows": [[0, 1, 5]], "total": 5}]},
        {"codes": [{"reasons": ["wait"], "rows": [[0, 0]], "total": 5}]},
        {"codes": [{"reasons": ["wait"], "rows": [[-16, 0, 5]], "total": 5}]},
        {"codes": [{"reasons": ["wait"], "rows": [[]], "total": 5}]},
        {"problems": 1},
    ],
)
def test_a_document_of_something_else_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="these are no samples: "):
        PcSampling.from_json(wrong)
    meta = replace(make_trace([Span("a", 0, 10)]).meta, pc_samples=wrong)
    with pytest.raises(WrongDocument, match="pc_samples: these are no samples"):
        parse_document(document_of(meta))


def test_merged_samples_are_added_and_keep_what_was_said() -> None:
    one = PcSampling((CODE,), 9, dropped=1, period=1024, problems=("a", "b"))
    plain = SampledCode.of("k", "digest", {0: {"wait": 1}}, 5, plain=True, file="k.py")
    other = PcSampling((CODE, plain), 9, overflows=2, period=2048, problems=("b",))
    twice = SampledCode.of("k", "digest", {0: {"wait": 6}, 32: {"long_scoreboard": 4, "wait": 2}}, 18)
    assert PcSampling.merged([one, other]) == PcSampling((twice, plain), 18, 1, 0, 2, 2048, ("a", "b"))
