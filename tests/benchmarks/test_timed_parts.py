"""The parts of a benchmark run apart from each other."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.lib import timed_parts, tutorial_runs

_PARTS = """
import json, os, sys, time
from pathlib import Path
from benchmarks.lib.timed_parts import rounds, work_off

def hanging():
    time.sleep(60)

parts = {
    "well": lambda: {"rounds": len(list(rounds(3)))},
    "failing": lambda: {"found": 1 // 0},
    "ending": lambda: os._exit(3),
    "hanging": hanging,
    "lacking": lambda: {"found": __import__("no_such_module")},
    "slow": lambda: {"rounds": sum(not time.sleep(0.2) for _ in rounds(10**6))},
}
work_off({name: parts[name] for name in sys.argv[3:]}, json.loads(sys.argv[2]), Path(sys.argv[1]))
"""


def found_by(tmp_path: Path, limits: dict[str, float], seconds: float) -> dict[str, dict[str, Any]]:
    script = tmp_path / "parts.py"
    script.write_text(_PARTS)

    def command(names: Sequence[str]) -> list[str]:
        return [sys.executable, str(script), str(tmp_path), json.dumps(limits), *names]

    found: dict[str, dict[str, Any]] = {}
    timed_parts.run_parts(command, limits, seconds, tmp_path, found.__setitem__)
    return found


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))


def test_a_part_that_fails_ends_or_hangs_does_not_take_the_others_with_it(tmp_path: Path) -> None:
    limits = {"failing": 5.0, "ending": 5.0, "hanging": 0.5, "lacking": 5.0, "slow": 1.0, "well": 5.0}
    found = found_by(tmp_path, limits, 60)
    assert list(found) == list(limits)
    assert "ZeroDivisionError" in found["failing"]["failed"]
    assert found["ending"]["failed"] == "its process ended with code 3"
    assert found["hanging"]["failed"] == "the time of this part was over"
    assert "no_such_module" in found["lacking"]["not measured"]
    assert 1 <= found["slow"]["rounds"] < 10, "no further round after its time"
    assert found["well"]["rounds"] == 3


def test_all_parts_together_keep_to_their_time(tmp_path: Path) -> None:
    began = time.monotonic()
    found = found_by(tmp_path, {"hanging": 50.0, "well": 5.0}, 1.5)
    assert found["hanging"]["failed"] == "the time of all parts was over"
    assert found["well"] == {"not measured": "1.5 s were over"}
    assert time.monotonic() - began < 30


_TUTORIAL = """
import triton

@triton.testing.perf_report([triton.testing.Benchmark(
    x_names=["M", "N"], x_vals=[1, 2, 3, 4], line_arg="of", line_vals=["a"], line_names=["A"], plot_name=f"plot-{at}",
    args={}) for at in range(2)])
def bench(M, N, of):
    return M * N

bench.run(print_data=True)
"""


def test_tutorials_run_with_fewer_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    for name in ("some", "hangs"):
        (tmp_path / f"{name}.py").write_text(_TUTORIAL + ("import time; time.sleep(60)" if name == "hangs" else ""))
    monkeypatch.setattr(tutorial_runs, "_LAST_S", 2.0)
    monkeypatch.setattr(tutorial_runs, "_LEAST_S", 0.0)
    monkeypatch.setattr(tutorial_runs, "FIRST", (tutorial_runs.Run("some", False, ("1", "2"), 60),))
    timed = (tutorial_runs.Run("some", False, ("1", "3", "7"), 60), tutorial_runs.Run("hangs", False, ("0", "1"), 8))
    monkeypatch.setattr(tutorial_runs, "TIMED", timed)
    folder = tmp_path / "runs"
    folder.mkdir()
    found = tutorial_runs.run_tutorials(tmp_path, folder, 100)
    ((first,), (some,), (hangs,)) = (found[name] for name in ("some, first run", "some", "hangs"))
    assert first["code"] == some["code"] == 0, (first["stderr"], some["stderr"])
    assert first["results"] == {"plot-0": {"M": [2, 4], "N": [2, 4], "A ()": [4, 16]}}
    assert some["results"] == {"plot-0": {"M": [7], "N": [7], "A ()": [49]}}
    assert hangs["stopped after its time by"] == "SIGTERM"
    assert hangs["seconds"] < 30
    assert "lacks" in tutorial_runs.run_tutorials(folder, folder, 1)["not measured"]
