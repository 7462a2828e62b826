"""Every block of the README and of docs/ runs as written, or says why it does not run here."""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.support.doc_blocks import LANGUAGES, NEEDS, Block, blocks_of, matches
from tests.support.doc_runner import Reader, reader_folder
from tests.support.paths import ROOT
from warplens.frontends.cuda.nvrtc import compile_ptx
from warplens.record.c_header import INCLUDE

PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
BLOCKS = {page: blocks_of(page) for page in PAGES}
HERE = {"torch"} if find_spec("torch") else set()
"""What some machines have and others lack; a GPU, a network and the rest are never needed by this test."""
ALIASES = {"wl": "warplens", "wlt": "warplens.triton", "wlc": "warplens.cute", "wlcu": "warplens.cuda"}


def place(block: Block) -> str:
    return block.place


def runs_here(block: Block) -> bool:
    return block.complete and block.needs <= HERE


@pytest.mark.parametrize("page", [page for page in PAGES if BLOCKS[page]], ids=lambda page: page.name)
def test_blocks_say_what_they_are(page: Path) -> None:
    """A fence without a language is not run by anybody: name it, or call it `text` if it is only shown."""
    unknown = [block.place for block in BLOCKS[page] if block.language not in LANGUAGES or not block.needs <= NEEDS]
    assert unknown == []


def runnable_pages() -> Iterator[Any]:
    for page in PAGES:
        if any(map(runs_here, BLOCKS[page])):
            # The tutorial records, changes, compiles and compares kernels: more than ten commands, each as a reader's.
            yield pytest.param(page, marks=pytest.mark.slow if page.name == "tutorial.md" else (), id=page.name)


@pytest.mark.parametrize("page", list(runnable_pages()))
def test_blocks_run_in_order(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(reader_folder(tmp_path))
    reader = Reader(tmp_path)
    for block in BLOCKS[page]:
        if runs_here(block):
            try:
                reader.follow(block)
            except Exception as error:
                pytest.fail(f"{os.path.relpath(page, ROOT)}:{block.line}: {type(error).__name__}: {error}")


PYTHON = [block for page in PAGES for block in BLOCKS[page] if block.language == "python"]
CUDA = [block for page in PAGES for block in BLOCKS[page] if block.language == "cuda"]


@pytest.mark.parametrize("block", [block for block in PYTHON if block.file or not runs_here(block)], ids=place)
def test_python_that_does_not_run_here_names_what_exists(block: Block) -> None:
    tree = ast.parse(block.text)
    known = dict(imported_modules(tree))
    wrong = [problem for node in ast.walk(tree) for problem in problems(node, known)]
    assert wrong == []


@pytest.mark.parametrize("page", sorted({block.page for block in PYTHON}), ids=lambda page: page.name)
def test_complete_python_defines_what_it_uses(page: Path) -> None:
    """Blocks of a page share their names; a block that is saved in a file stands alone."""
    complete = [block for block in BLOCKS[page] if block.language == "python" and block.complete]
    together = "".join(block.text for block in complete if not block.file)
    for text in [together, *(block.text for block in complete if block.file)]:
        command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821", "--quiet", "-"]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


def imported_modules(tree: ast.Module) -> Iterator[tuple[str, Any]]:
    """The modules of warplens that a block may use, by the name that it gives them."""
    yield from ((alias, import_module(name)) for alias, name in ALIASES.items())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in (one for one in node.names if one.name.startswith("warplens")):
                whole = import_module(one.name)
                yield (one.asname, whole) if one.asname else ("warplens", import_module("warplens"))


def problems(node: ast.AST, known: dict[str, Any]) -> Iterator[str]:
    """Names and options of warplens that do not exist."""
    if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("warplens"):
        module = import_module(node.module or "")
        named = {one.name: f"{node.module}.{one.name}" for one in node.names if not hasattr(module, one.name)}
        yield from (full for full in named.values() if not hasattr(module, "__path__") or find_spec(full) is None)
    elif isinstance(node, ast.Attribute) and isinstance(owner := resolve(node.value, known), type(ast)):
        if not hasattr(owner, node.attr):
            yield f"{owner.__name__}.{node.attr}"
    elif isinstance(node, ast.Call) and callable(function := resolve(node.func, known)):
        parameters = inspect.signature(function).parameters
        open_ended = any(one.kind is one.VAR_KEYWORD and one.name != "unknown" for one in parameters.values())
        yield from (
            f"{ast.unparse(node.func)}({option.arg}=)"
            for option in node.keywords
            if option.arg and not open_ended and option.arg not in parameters
        )


def resolve(node: ast.expr, known: dict[str, Any]) -> Any:
    """What a dotted name stands for; None if that is not part of warplens."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Attribute) and (owner := resolve(node.value, known)) is not None:
        return getattr(owner, node.attr, None)
    return None


@pytest.mark.parametrize("block", CUDA, ids=place)
def test_cuda_blocks_use_marks_that_exist(block: Block) -> None:
    headers = "".join(header.read_text() for header in INCLUDE.iterdir())
    named = set(re.findall(r"\bWL_[A-Z_]+\b|\bwl::\w+", block.text))
    assert [name for name in named if not re.search(rf"\b{name.removeprefix('wl::')}\b", headers)] == []
    if block.complete:
        pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
        assert ".entry" in compile_ptx(block.text, block.place, "sm_90", [])


def test_some_blocks_of_each_kind_are_found() -> None:
    run = [block for blocks in BLOCKS.values() for block in blocks if runs_here(block)]
    for language, least in (("sh", 8), ("console", 10), ("python", 5), ("json", 1)):
        assert sum(block.language == language for block in run) >= least, language


@pytest.mark.parametrize(
    ("shown", "said", "numbers", "same"),
    [
        ("a  1\nb 2\n", "a 1\nb   2", True, True),
        ("a 1\n", "a 1\nb 2\n", True, False),
        ("a ...\nc", "a 1\nb 2\nc", True, True),
        ("a 1.5 µs", "a 2.75 µs", False, True),
        ("a 1.5 µs", "a 2.75 ms", False, False),
        ("a 1", "a 2", True, False),
    ],
)
def test_outputs_are_compared_word_by_word(shown: str, said: str, numbers: bool, same: bool) -> None:
    assert matches(shown, said, numbers=numbers) is same


def test_a_block_that_is_wrong_is_noticed(tmp_path: Path) -> None:
    known = dict(imported_modules(ast.parse("")))
    for line in ("wl.profil('x')", "wl.profile('x', lunches=3)", "from warplens.triton import regin"):
        assert [problem for node in ast.walk(ast.parse(line)) for problem in problems(node, known)], line
    page = tmp_path / "page.md"
    page.write_text("<!-- needs: gpu -->\n```sh\nwarplens run x.py\n```\n\n```console\n$ warplens stats none\nx\n```\n")
    first, second = blocks_of(page)
    assert first.needs == {"gpu"}
    (tmp_path / "reader").mkdir()
    reader = Reader(tmp_path / "reader")
    with pytest.raises(AssertionError, match="ended with 1"):
        reader.follow(second)
