"""`warplens run --ncu`: a run without marks for kernels, and one with the same marks for regions."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.ncu_pages import sass_page
from tests.support.sass_kernels import UNROLLED, code_of, needs_tools
from tests.support.verified_trace import traced
from warplens.analyse.ncu import NcuKernel
from warplens.analyse.ncu_source import parse_source_pages
from warplens.analyse.region_counters import BY_ADDRESS
from warplens.errors import WarplensError
from warplens.options import Options
from warplens.runner import companion_ncu, nsight_compute
from warplens.runner.companion_ncu import NcuCompanion, marked_command
from warplens.runner.program import TargetProgram
from warplens.sass.disassembly import disassemble


def words(options: Options, **program: Any) -> list[str]:
    given = {"target": "train.py", "arguments": ("--steps", "3"), **program}
    return marked_command(TargetProgram(**given), options, Path("t.warplens"))[3:]


def test_the_marked_run_has_the_same_marks() -> None:
    plain = words(Options())
    assert plain[:7] == ["run", "-o", "t.warplens", "--launches", "1", "--skip", "0"]
    assert plain[-3:] == ["train.py", "--steps", "3"]
    assert not any(word.startswith("--auto") for word in plain)
    auto = words(Options.of({"auto": "loads,mma", "kernels": "attn.*", "clock": "64"}))
    assert "--auto=loads,mma" in auto
    assert auto[auto.index("--kernels") + 1] == "attn.*"
    assert auto[auto.index("--clock") + 1] == "64"
    ranges = words(Options.of({"regions": {"soft": "a.py:1-2"}}), module=True, target="pkg")
    assert ranges[ranges.index("--region") + 1] == "soft=a.py:1-2"
    assert ranges[-4:] == ["-m", "pkg", "--steps", "3"]


@pytest.fixture
def companion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NcuCompanion:
    monkeypatch.setattr(companion_ncu, "find_ncu", lambda: "/usr/bin/ncu")
    monkeypatch.setattr(companion_ncu, "run_ncu", lambda *a, **b: (NcuKernel("k"),))
    profile: Any = SimpleNamespace(options=Options(), trace=traced(code_of(UNROLLED)))
    return NcuCompanion(TargetProgram("t.py"), profile, tmp_path / "t.warplens", force=False)


@needs_tools
def test_regions_get_their_counters_from_the_marked_run(
    companion: NcuCompanion, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def run(command: list[str], report: Path, **options: Any) -> Any:
        asked.update(options, report=report)
        function = disassemble(code_of(UNROLLED).cubin or b"")["k"]
        return parse_source_pages(sass_page(function, lambda one: {"executed": 1, "wait": 1}))

    monkeypatch.setattr(companion_ncu, "run_ncu_marked", run)
    made = companion.after()
    assert made.counters is not None
    assert {(one.region, one.basis) for one in made.counters.regions} == {("load", BY_ADDRESS), ("math", BY_ADDRESS)}
    assert re.match(asked["kernels"], "k")
    assert asked["report"].name == "t.marked.ncu-rep"
    assert made.document["regions"]["regions"][0]["kernel"] == "k"
    assert made.document["problem"] == ""


@needs_tools
def test_a_marked_run_that_fails_costs_only_the_regions(
    companion: NcuCompanion, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any, **options: Any) -> Any:
        raise WarplensError("ncu exited with code 9")

    monkeypatch.setattr(companion_ncu, "run_ncu_marked", fail)
    made = companion.after()
    assert (made.counters, made.lines) == (None, ["regions have no counters: ncu exited with code 9"])
    assert made.ncu_kernels


def test_the_marked_run_collects_only_what_the_source_page_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nsight_compute, "find_ncu", lambda: "ncu")
    marked = nsight_compute.ncu_command(["prog"], "r", kernels="^(k)", launches=8, sections=("SourceCounters",))
    assert "--set" not in marked
    assert marked[marked.index("--section") + 1] == "SourceCounters"
    assert "full" in nsight_compute.ncu_command(["prog"], "r")
