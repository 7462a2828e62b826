"""A few of the random CUDA kernels of `python -m tests.fuzz kernels`: see tests/fuzz/kernels.py."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fuzz import kernels
from tests.fuzz.mark_log import Passed, kept_of, nesting
from tests.support.cuda_compilers import needs_nvrtc
from warplens.record.layout import Kind


@needs_nvrtc
@pytest.mark.parametrize("seed", ["7:1", "7:3", "7:4", "7:6", "7:9", "7:11"])
def test_a_woven_kernel_computes_the_same_and_records_what_it_passes(tmp_path: Path, seed: str) -> None:
    kernels.case(random.Random(seed), tmp_path)


@needs_nvrtc
def test_the_check_notices_a_record_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random("7:4")
    one = kernels.make_case(draw)
    honest = kernels.weave

    def twice(text: str, **options: object) -> object:
        return honest(text.replace("// @warplens B", "// @warplens I extra\n\t// @warplens B"), **options)

    monkeypatch.setattr(kernels, "weave", twice)
    with pytest.raises(RuntimeError, match="slots are written|expected|counts of"):
        for kernel in one.kernels:
            kernels.check_kernel(draw, one, kernel, tmp_path, weavings=12)


def test_what_a_full_track_keeps() -> None:
    begin, value, end = Passed(Kind.BEGIN, "a"), Passed(Kind.VALUE, "v", value=1.0, slots=2), Passed(Kind.END, "a")
    passed = [begin, value, end]
    assert kept_of(passed, 2, "stop") == [begin]
    assert kept_of(passed, 3, "stop") == [begin, value]
    assert kept_of(passed, 2, "ring") == [end]
    assert kept_of(passed, 3, "ring") == [value, end]
    assert nesting(passed) == {("a",): 1}
    with pytest.raises(ValueError, match="stay open"):
        nesting([begin])
