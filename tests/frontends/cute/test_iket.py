"""IKET's own marks: kernels compiled with them switched on are recorded under the names of the program."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import cute_gpu  # noqa: F401

# The DSL reads the architecture that this sets when it is imported.
from tests.support.attached import attached

# isort: split
from cutlass import cute

try:
    import cutlass.cute.experimental.iket  # noqa: F401
except (ImportError, NotImplementedError) as missing:
    pytest.skip(f"needs nvidia-cutlass-dsl with IKET: {missing}", allow_module_level=True)

import warplens as wl
from tests.support import cute_runtime
from tests.support.cute_auto_kernels import pointer
from tests.support.cute_runtime import Runtime
from tests.support.golden_ptx import ptxas
from tests.support.iket_program import DROP_IN, REAL, STEPS, N, check_trace, expected, load
from warplens.errors import WarplensError
from warplens.weave.iket_marks import with_iket_marks
from warplens.weave.weaver import weave


@pytest.fixture(autouse=True)
def _front_ends() -> Iterator[None]:
    """What the profiles of a test attach is detached after it."""
    with attached():
        yield


@pytest.fixture(name="cuda")
def _cuda(monkeypatch: pytest.MonkeyPatch) -> Runtime:
    return cute_runtime.install(monkeypatch)


@pytest.fixture(name="program", scope="module")
def _program(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return load(tmp_path_factory.mktemp("iket"), (DROP_IN, REAL))


def compiled(program: Any, *arguments: Any, options: str = "iket") -> Any:
    with tempfile.TemporaryDirectory() as folder:
        keep = f"--keep-ptx --keep-cubin --dump-dir={folder}"
        return cute.compile(program.run, *arguments, options=f"{options} {keep}".strip())


@pytest.mark.parametrize("auto", [None, "loads"])
def test_marks_that_are_switched_on_are_recorded(cuda: Runtime, program: Any, auto: str | None) -> None:
    y = cuda.gpu.space.alloc(np.arange(N, dtype=np.float32))
    arguments = pointer(y), STEPS
    cuda.know(compiled(program, *arguments))
    with wl.profile(auto=auto, records_per_warp=512) as profile:
        cute.compile(program.run, *arguments, options="iket")(*arguments)
    assert [woven for _, woven, _ in cuda.gpu.fired] == [True]
    assert (cuda.gpu.space.read(y, np.float32, N) == expected(np.arange(N))).all()
    if auto is None:
        check_trace(profile.trace)
    assert {"K_Tile", "even", "tail"} <= {row["region"] for row in profile.trace.spans.to_pylist()}
    assert not profile.notes


def test_marks_that_are_off_leave_the_kernel_alone(cuda: Runtime, program: Any) -> None:
    arguments = pointer(cuda.gpu.space.alloc(np.zeros(N, np.float32))), STEPS
    plain = cuda.know(compiled(program, *arguments, options=""))
    assert "pmevent" not in plain.__ptx__
    with pytest.raises(WarplensError, match="no kernel was profiled"):
        with wl.profile() as profile:
            function = cute.compile(program.run, *arguments)
            function(*arguments)
    assert function.__ptx__ is None, "nothing is kept of a program that asks for nothing"
    assert [woven for _, woven, _ in cuda.gpu.fired] == [False]
    assert not profile.notes


def test_woven_marks_assemble_without_spills(program: Any, tmp_path: Path) -> None:
    text = with_iket_marks(compiled(program, pointer(256), STEPS).__ptx__.partition("\0")[0])
    assert "pmevent" not in text
    woven = weave(text)
    assert set(woven.regions.values()) == {"start", "count", "half", "K_Tile", "step 100 %", "even", "tail"}
    (tmp_path / "woven.ptx").write_text(woven.text)
    command = [ptxas(), "-arch=sm_90a", "-v", "-warn-spills", "woven.ptx", "-o", "woven.cubin"]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stderr
    assert " 0 bytes spill stores, 0 bytes spill loads" in told
