"""A command starts fast: it imports what it uses and nothing else. Modules are counted, not seconds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.synthetic_capture import make_capture
from warplens.analyse.analysis_names import ANALYSIS_NAMES
from warplens.analyse.registry import ANALYSES
from warplens.decode import decode

HEAVY = ("numpy", "pyarrow", "rich", "jinja2", "warplens.trace", "warplens.analyse", "warplens.view")
"""What is not needed to print a help text or a version."""
OTHER_ROOMS = (
    "jinja2",
    "numpy.ma",
    "pyarrow.compute",
    "pyarrow.dataset",
    "warplens.analyse.findings",
    "warplens.analyse.hypotheses",
    "warplens.decode.capture_decoder",
    "warplens.engines.part_work",
    "warplens.export",
    "warplens.frontends",
    "warplens.launch",
    "warplens.ptx.control_flow",
    "warplens.samples",
    "warplens.session",
    "warplens.simulate",
    "warplens.weave.function_weaver",
)
"""What is not needed to read a small trace and print a table of it."""


def imported(*arguments: str) -> list[str]:
    """The modules that `warplens` with some arguments has imported when it ends."""
    program = (
        "import sys, json\nfrom warplens.commands import main\n"
        f"code = main({list(arguments)!r})\nprint(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, "-c", program], env=environment, text=True, capture_output=True, timeout=300)
    code, modules = json.loads(done.stderr.splitlines()[-1])
    assert code == 0, done.stderr
    return list(modules)


def found(names: list[str], unwanted: tuple[str, ...]) -> list[str]:
    return [name for name in names if any(name == one or name.startswith(f"{one}.") for one in unwanted)]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(decode(make_capture(1000, blocks=4)).save(tmp_path_factory.mktemp("start") / "t.warplens"))


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_and_version_import_no_library_but_click(arguments: list[str]) -> None:
    names = imported(*arguments)
    assert found(names, HEAVY) == []
    assert len([name for name in names if name.startswith("warplens")]) < 15


@pytest.mark.parametrize(("verb", "most"), [("info", 100), ("stats", 110)])
def test_a_table_of_a_trace_imports_what_it_needs(trace: str, verb: str, most: int) -> None:
    names = imported(verb, trace)
    assert found(names, OTHER_ROOMS) == []
    assert len([name for name in names if name.startswith("warplens")]) < most


def test_the_terminal_view_imports_no_front_end(trace: str) -> None:
    unused = tuple(name for name in OTHER_ROOMS if name.startswith("warplens."))
    assert found(imported("view", trace, "--terminal"), unused) == []


def test_import_warplens_imports_not_even_typing() -> None:
    program = "import sys; before = set(sys.modules); import warplens; print(sorted(set(sys.modules) - before))"
    command = [sys.executable, "-S", "-c", program]
    shown = subprocess.check_output(command, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, text=True)
    assert "typing" not in shown.split("'")
    assert len(shown.split(",")) < 12, shown


def test_the_names_of_analyses_are_those_of_the_registry() -> None:
    assert tuple(ANALYSES) == ANALYSIS_NAMES


def test_running_a_program_imports_no_analysis_before_it_starts(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import json, sys; open(sys.argv[1], 'w').write(json.dumps(sorted(sys.modules)))")
    listed = tmp_path / "modules.json"
    program = f"from warplens.commands import main; main(['run', {str(script)!r}, {str(listed)!r}])"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, timeout=300, check=True)
    names = json.loads(listed.read_text())
    unused = ("jinja2", "warplens.analyse.findings", "warplens.analyse.hypotheses", "warplens.simulate")
    assert found(names, (*unused, "warplens.calibrate", "warplens.view.html")) == []
