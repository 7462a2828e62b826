"""The benchmark of launches that go through C."""

from __future__ import annotations

import shutil

import pytest

from benchmarks.lib import hook_cost


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
def test_launches_from_cpp_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPLENS_BENCH_CALLS", "200")
    found = hook_cost.measure("cpp")
    recorded = [name for name in found if name.startswith("recorded")]
    assert len(recorded) == 3
    assert all(found[name] > 0 for name in ("without hooks", "no profile", "quota used up", *recorded))
