"""What weaving needs goes away while the program runs: the program goes on, and one line says why."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("triton", reason="triton is not installed")

import warplens as wl
import warplens.triton
from tests.support import plain_kernels
from tests.support.fake_gpu import FakeGpu, fake_gpu
from warplens.errors import WarplensError


@pytest.fixture(name="gpu")
def _gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeGpu]:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    kernel = plain_kernels.add
    monkeypatch.setattr(kernel, "device_caches", type(kernel.device_caches)(kernel.device_caches.default_factory))
    with fake_gpu(monkeypatch) as gpu:
        yield gpu


def add(gpu: FakeGpu) -> None:
    x, out = gpu.tensor(np.arange(256, dtype=np.float32)), gpu.tensor(np.zeros(256, np.float32))
    plain_kernels.add[(1,)](x, x, out, 256, 256)
    np.testing.assert_array_equal(out.numpy(), x.numpy() * 2)


def no_folder(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache folder that nothing can be written to; for root, file permissions are none."""
    shutil.rmtree(cache)
    cache.write_text("not a folder")


def no_assembler(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(cache / "gone"))
    monkeypatch.setattr("triton.backends.nvidia.compiler.get_ptxas", lambda *_: (_ for _ in ()).throw(
        FileNotFoundError("ptxas is gone")
    ))  # fmt: skip


@pytest.mark.parametrize(
    ("spoil", "why"), [(no_folder, "Not a directory|File exists"), (no_assembler, "ptxas is gone")]
)
def test_the_kernel_runs_plain_without_what_weaving_needs(
    gpu: FakeGpu,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[Path, pytest.MonkeyPatch], None],
    why: str,
) -> None:
    add(gpu)
    with pytest.raises(WarplensError, match="no kernel was profiled"):
        with wl.profile(auto="all") as profile:
            spoil(tmp_path / "cache", monkeypatch)
            for _ in range(2):
                add(gpu)
    (note,) = profile.notes["add"]
    assert note.startswith("runs unmarked: ")
    assert "\n" not in note
    assert any(one in note for one in why.split("|"))


def test_a_woven_kernel_whose_cached_file_is_damaged_is_made_again(gpu: FakeGpu, tmp_path: Path) -> None:
    with wl.profile(auto="all"):
        add(gpu)
    plain_kernels.add.device_caches.clear()
    texts = {path: path.read_text() for path in (tmp_path / "cache").rglob("*.json")}
    woven = [path for path, text in texts.items() if "warplens" in text and "child_paths" not in text]
    assert woven
    for path in woven:
        path.write_text(texts[path][:-40])
    with wl.profile(auto="all") as profile:
        add(gpu)
    assert not profile.notes
    assert len(profile.trace.meta.launches) == 1
