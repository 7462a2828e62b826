"""TTGIR by hand: written per kernel, marked by a person, compiled again, and refused when it does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

triton = pytest.importorskip("triton", reason="triton is not installed")

import tests.support.plain_kernels as kernels  # noqa: E402
import warplens as wl  # noqa: E402
from tests.support.fake_gpu import FakeGpu, fake_gpu  # noqa: E402
from warplens.errors import UsageError, WarplensError  # noqa: E402


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    caches = kernels.add.device_caches
    monkeypatch.setattr(kernels.add, "device_caches", type(caches)(caches.default_factory))
    with fake_gpu(monkeypatch) as gpu:
        yield gpu


def run_add(gpu: FakeGpu, block: int = 128, **options: Any) -> wl.Profile:
    x, y = (gpu.tensor(np.arange(200, dtype=np.float32) + k) for k in (0, 1))
    out = gpu.tensor(np.zeros(200, np.float32))
    with wl.profile(**options) as profile:
        kernels.add[(2,)](x, y, out, 200, block)
    assert np.array_equal(out.numpy(), x.numpy() + y.numpy())
    return profile


def dumped(gpu: FakeGpu, folder: Path) -> Path:
    run_add(gpu, dump_ir=folder)
    (path,) = folder.iterdir()
    return path


def insert(path: Path, *lines: str, before: str) -> None:
    text = path.read_text().splitlines()
    at = next(i for i, line in enumerate(text) if before in line)
    path.write_text("\n".join([*text[:at], *lines, *text[at:]]) + "\n")


def test_marks_in_a_dumped_file_are_recorded(gpu: FakeGpu, tmp_path: Path) -> None:
    path = dumped(gpu, tmp_path / "ir")
    assert path.name.startswith("add-")
    assert "// kernel: add\n" in path.read_text()
    insert(path, 'proton.record start "both loads"', before="tt.load")
    insert(path, '  proton.record end "both loads" loc(#loc)', 'warplens.begin "write"', before="tt.store")
    insert(
        path, 'warplens.value "bound" %n : i32', 'warplens.end "write"', 'warplens.instant "done"', before="tt.return"
    )
    trace = run_add(gpu, override=tmp_path / "ir").trace
    rows = [row for row in trace.spans.to_pylist() if row["track"] == 0]
    assert [(row["region"], row["kind"]) for row in rows] == [
        ("both loads", "span"), ("write", "span"), ("bound", "value"), ("done", "instant"),
    ]  # fmt: skip
    assert rows[2]["value"] == 200


def test_automatic_marks_join_those_in_the_file(gpu: FakeGpu, tmp_path: Path) -> None:
    path = dumped(gpu, tmp_path / "ir")
    insert(path, 'warplens.begin "mine"', before="tt.load")
    insert(path, 'warplens.end "mine"', before="tt.store")
    trace = run_add(gpu, override=tmp_path / "ir", auto="stores,loads", least_occupancy=0).trace
    assert [name.split()[0] for name in trace.regions] == ["mine", "load", "store"]
    assert trace.meta.losses.mismatched_ends == 0


def test_an_edited_file_is_not_served_from_the_cache_of_before(gpu: FakeGpu, tmp_path: Path) -> None:
    path = dumped(gpu, tmp_path / "ir")
    for name in ("first", "second"):
        insert(path, f'warplens.instant "{name}"', before="tt.store")
        assert name in run_add(gpu, override=tmp_path / "ir").trace.regions


def test_a_file_of_other_code_is_refused_with_the_reason(
    gpu: FakeGpu, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = dumped(gpu, tmp_path / "ir")
    insert(path, 'warplens.instant "x"', before="tt.store")
    with pytest.raises(WarplensError, match="no kernel was profiled"):
        run_add(gpu, block=256, override=tmp_path / "ir")
    assert f"add: {path.name} in {tmp_path / 'ir'} was dumped from a different version" in capsys.readouterr().err
    with pytest.raises(WarplensError, match="was dumped from a different version of this kernel"):
        run_add(gpu, block=256, override=tmp_path / "ir", strict=True)


def test_what_is_no_mlir_is_named_by_its_line(gpu: FakeGpu, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = dumped(gpu, tmp_path / "ir")
    insert(path, 'warplens.instant "x"', "this is not MLIR", before="tt.store")
    wrong = next(n for n, line in enumerate(path.read_text().splitlines(), 1) if "not MLIR" in line)
    with pytest.raises(WarplensError, match=rf"{path.name}:{wrong}:\d+: "):
        run_add(gpu, override=tmp_path / "ir")
    assert "error:" not in capfd.readouterr().err, "MLIR's own words are part of ours"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('proton.record begin "x"', "write start or end"),
        ('warplens.beginn "x"', "did you mean 'warplens.begin'"),
        ("warplens.begin x", "name in quotes|is not a mark"),
        ('warplens.value "x"', 'warplens.value "name" %x : TYPE with one of i32, i64, f32, f64'),
        ('warplens.value "x" %n : i8', "one of i32"),
    ],
)
def test_a_mistyped_mark_is_named_by_its_line(gpu: FakeGpu, tmp_path: Path, text: str, said: str) -> None:
    path = dumped(gpu, tmp_path / "ir")
    insert(path, text, before="tt.store")
    with pytest.raises(UsageError, match=said) as error:
        run_add(gpu, override=tmp_path / "ir")
    assert f"{path}:" in str(error.value)


def test_a_folder_that_is_not_there_is_refused(gpu: FakeGpu, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no such folder; dump_ir="):
        run_add(gpu, override=tmp_path / "nowhere")


def test_tritons_own_override_is_what_automatic_marks_go_into(
    gpu: FakeGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRITON_DUMP_DIR", str(tmp_path / "ttgir"))
    monkeypatch.setenv("TRITON_OVERRIDE_DIR", str(tmp_path / "ttgir"))
    monkeypatch.setenv("TRITON_KERNEL_DUMP", "1")
    run_add(gpu, auto="stores", least_occupancy=0)
    monkeypatch.setenv("TRITON_KERNEL_DUMP", "0")
    folder = next(path.parent for path in (tmp_path / "ttgir").rglob("*.ttgir"))
    for path in folder.iterdir():
        if path.suffix != ".ttgir":
            path.unlink()
    text = (folder / "add.ttgir").read_text()
    (folder / "add.ttgir").write_text(text.replace("arith.addf", "arith.mulf"))
    monkeypatch.setenv("TRITON_KERNEL_OVERRIDE", "1")
    monkeypatch.setenv("TRITON_ALWAYS_COMPILE", "1")
    kernels.add.device_caches.clear()
    x, out = gpu.tensor(np.arange(200, dtype=np.float32)), gpu.tensor(np.zeros(200, np.float32))
    with wl.profile(auto="stores", least_occupancy=0) as profile:
        kernels.add[(2,)](x, x, out, 200, 128)
    assert np.array_equal(out.numpy(), x.numpy() ** 2), "the user's file was compiled"
    assert profile.trace.regions[0].startswith("store plain_kernels.py:")
    assert "Overriding kernel with file" in capfd.readouterr().out
