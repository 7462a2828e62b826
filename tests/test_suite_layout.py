"""The layout of the tests: one folder per room of the package, shared helpers in tests/support, and nothing else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT, TESTS

PACKAGE = ROOT / "src" / "warplens"
WITHOUT_ROOM = {"support", "golden", "browser", "gpu", "benchmarks", "examples", "fuzz", "wheel"}
MODULES = sorted(path.relative_to(ROOT) for path in TESTS.rglob("*.py"))
FOLDERS = sorted({folder for path in MODULES for folder in path.relative_to("tests").parents} - {Path()})


def imported(source: str) -> Iterator[str]:
    """Every name that the source may import as a module, inside functions too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield from (module, *(f"{module}.{alias.name}" for alias in node.names))


def forbidden(path: Path, source: str) -> list[str]:
    """The imports of a module under tests/ that are not allowed."""
    of_benchmarks = path.parts[:2] == ("tests", "benchmarks")
    return [
        name
        for name in imported(source)
        if name.startswith(".")
        or any(part.startswith("test_") for part in name.split("."))
        or (name.split(".")[0] == "benchmarks" and not of_benchmarks)
    ]


def test_modules_share_code_through_support_only() -> None:
    found = {str(path): names for path in MODULES if (names := forbidden(path, (ROOT / path).read_text()))}
    assert found == {}


def test_every_folder_has_a_room_of_the_same_name() -> None:
    rooms = [folder for folder in FOLDERS if folder.parts[0] not in WITHOUT_ROOM]
    assert [r for r in rooms if not (PACKAGE / r).is_dir() and not (PACKAGE / r).with_suffix(".py").is_file()] == []


def test_every_folder_of_tests_is_a_package() -> None:
    """Two rooms can only have test modules of the same name if each folder is a package."""
    folders = [folder for folder in FOLDERS if any((TESTS / folder).glob("test_*.py"))]
    assert [folder for folder in folders if not (TESTS / folder / "__init__.py").exists()] == []


@pytest.mark.parametrize(
    ("path", "source", "expected"),
    [
        ("tests/weave/test_weaver.py", "import numpy\nfrom tests.support.builders import Span", False),
        ("tests/weave/test_weaver.py", "from tests.ptx.test_parser import GOLDEN", True),
        ("tests/weave/test_weaver.py", "def f():\n    from tests.ptx import test_parser", True),
        ("tests/weave/test_weaver.py", "from .test_registers import fit", True),
        ("tests/support/builders.py", "import benchmarks.lib.sass", True),
        ("tests/benchmarks/test_ablation.py", "from benchmarks import ablation", False),
    ],
)
def test_forbidden_imports_are_found(path: str, source: str, expected: bool) -> None:
    assert bool(forbidden(Path(path), source)) is expected


def test_no_module_is_longer_than_500_lines() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in (ROOT / "src").rglob("*.py")}
    assert {str(path.relative_to(ROOT)): lines for path, lines in lengths.items() if lines > 500} == {}
