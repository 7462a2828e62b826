"""The attention workbench on a machine without a GPU or torch: what it offers, and what it says to bad input."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from warplens.commands import main

ROOT = Path(__file__).resolve().parents[2]
BENCH = str(ROOT / "examples" / "attention" / "bench.py")
BROKEN = str(ROOT / "examples" / "attention" / "broken" / "bench.py")
sys.path.insert(0, str(ROOT / "examples" / "attention"))


def test_the_parameters_are_listed_without_torch_or_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", BENCH, "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["attention"]
    assert {"--seq-len", "--impl", "--head-dim", "--dtype", "--causal", "--batch", "--heads"} == set(listed)
    assert {"naive", "tiled", "flash", "triton_flash", "sdpa"} <= set(listed["--impl"][0].split(","))
    assert main(["bench", BROKEN, "--list", "--json"]) == 0
    assert "uncoalesced" in json.loads(capsys.readouterr().out)["broken"]["--impl"][0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--seq-lengths", "0"], "must be greater than 0"),
        (["--seq-lengths", "many"], "a whole number"),
        (["--impl", "flahs"], "did you mean 'flash'"),
        (["--head-dim", "96"], "64"),
    ],
)
@pytest.mark.parametrize("verb", ["bench", "diagnose"])
def test_bad_input_is_refused_with_what_is_allowed(
    verb: str, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([verb, BENCH, *words]) == 2
    assert said in capsys.readouterr().err


def test_work_is_counted_by_hand() -> None:
    from implementations import bytes_moved, flops

    # 3 queries see 3, 3, 3 keys, or 1, 2, 3: two products of 2 * 8 operations for each pair.
    assert flops(2, 5, 3, 8, causal=False) == 2 * 5 * 9 * 4 * 8
    assert flops(2, 5, 3, 8, causal=True) == 2 * 5 * 6 * 4 * 8
    assert bytes_moved(2, 5, 3, 8, 2) == 4 * 2 * 5 * 3 * 8 * 2
