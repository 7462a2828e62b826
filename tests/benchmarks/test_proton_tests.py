"""How Proton's own tests are run on warplens."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import proton_tests

TESTS = """\
import os
import triton.profiler as proton
import triton.profiler.language as pl

def test_ours(library):
    assert proton.__name__ == "warplens.compat.proton"
    assert os.environ["TRITON_CUPTI_LIB_PATH"] == library

def test_theirs():
    assert False, "one line"
"""


def test_a_triton_without_cupti_gets_that_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    (tmp_path / "without" / proton_tests.CUPTI).mkdir(parents=True)
    library = tmp_path / "with" / proton_tests.CUPTI / "libcupti.so"
    library.parent.mkdir(parents=True)
    library.touch()
    monkeypatch.delenv("TRITON_CUPTI_LIB_PATH", raising=False)
    monkeypatch.setattr("sys.path", [str(tmp_path / "without"), str(tmp_path / "with")])
    (tmp_path / "test_instrumentation.py").write_text(TESTS)
    fixture = f"import pytest\n\n@pytest.fixture\ndef library():\n    return {str(library.parent)!r}\n"
    (tmp_path / "conftest.py").write_text(fixture)
    found = proton_tests.run(tmp_path)
    assert found["test_ours"] == "passed"
    assert found["test_theirs"].startswith("failure: ")
