"""Helion: its generated Triton kernels are woven with the lines of their source, and its tuner times plain ones."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

triton = pytest.importorskip("triton", reason="triton is not installed")

import warplens as wl  # noqa: E402
import warplens.triton  # noqa: E402  so that profiles reach Triton kernels
from tests.support.fake_gpu import FakeGpu, fake_gpu  # noqa: E402
from warplens.ptx.generated_lines import written_line  # noqa: E402
from warplens.ptx.source_lines import SourceLines  # noqa: E402

GENERATED = """\
from __future__ import annotations
import triton
from helion.runtime import default_launcher as _default_launcher

@triton.jit
def _helion_scale(x, out):
    # src[author_code.py:10]: for tile in hl.tile(n):
    # src[author_code.py:11]:     value = x[tile]
    # src[author_code.py:10-12]: ...
    pid = tl.program_id(0)
    offsets = pid * 64
    # src[author_code.py:11]: value = x[tile]
    load = tl.load(x + offsets)
    # src[author_code.py:12]: out[tile] = value * 2
    v_0 = load * 2
    tl.store(out + offsets, v_0)

def scale(x):
    return x
"""


def test_generated_lines_are_those_of_the_authors_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c4ezn.py"
    path.write_text(GENERATED)
    assert [written_line(str(path), line)[1] for line in (10, 11, 13, 15, 16)] == [10, 10, 11, 12, 12]
    assert written_line(str(path), 6)[1] == 10, "a function begins where its first statement does"
    assert written_line(str(path), 13) == ("author_code.py", 11), "a file that no module has keeps its name"
    assert SourceLines({"1": str(path)}).of("1 13 4") == ("author_code.py", 11), "so are the lines of its PTX"
    assert written_line(str(path), 19) == (str(path), 19), "code without a comment is the generated file's"
    author = type(sys)("author_code")
    author.__file__ = str(tmp_path / "author_code.py")
    monkeypatch.setitem(sys.modules, "author_code", author)
    assert written_line(str(path), 13) == (author.__file__, 11)
    plain = tmp_path / "kernels.py"
    plain.write_text(GENERATED.replace("from helion", "from other"))
    assert written_line(str(plain), 13) == (str(plain), 13), "comments of others mean nothing"
    assert written_line("/no/such/file.py", 3) == ("/no/such/file.py", 3)


@pytest.fixture(name="gpu")
def _gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[FakeGpu]:
    pytest.importorskip("helion", reason="needs helion and torch: make test-frontends")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.setenv("TRITON_STORE_BINARY_ONLY", "0")  # the fake driver reads the PTX
    with fake_gpu(monkeypatch, execute=False) as device:
        yield device


def is_woven(fired: Any) -> bool:
    return "@woven" in fired.ptx


def test_kernels_are_woven_with_the_lines_of_the_helion_source(gpu: FakeGpu) -> None:
    from tests.support import helion_kernels as kernels

    with (
        pytest.raises(wl.WarplensError, match="recorded"),
        wl.profile(auto="all", least_occupancy=0.0, records_per_warp=256),
    ):
        for run in kernels.CALLS.values():
            run()
    assert [one.name for one in gpu.fired] == [f"_helion_{name}" for name in kernels.CALLS]
    assert all(map(is_woven, gpu.fired))
    text = "".join(one.ptx for one in gpu.fired)
    for name in ("matmul", "softmax", "scale"):
        assert f"line {Path(kernels.__file__).name}:{kernels.line_of(name)}" in text


def test_the_tuner_chooses_the_same_with_and_without_a_profile(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.support import helion_kernels as kernels

    alone = kernels.tune(gpu, monkeypatch)
    assert alone.chosen == [128], "the fake's clock wants few blocks"
    gpu.fired.clear()
    with pytest.raises(wl.WarplensError), wl.profile(auto=True, least_occupancy=0.0) as profile:
        beside = kernels.tune(gpu, monkeypatch)
    assert (beside.chosen, beside.times) == (alone.chosen, alone.times), (
        "every candidate was timed as without a profile"
    )
    assert [is_woven(one) for one in gpu.fired] == [False] * (len(gpu.fired) - 1) + [True], "only the winner is woven"
    assert profile.seen == {"_helion_scale": 1}
