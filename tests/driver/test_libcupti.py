"""Which libcupti is used: a copy that the process has loaded, then those of packages and toolkits."""

from __future__ import annotations

from pathlib import Path

import pytest

from warplens.driver import libcupti
from warplens.driver.libcupti import Cupti, cupti, find_cupti
from warplens.errors import WarplensError


def make(folder: Path, name: str = "libcupti.so.13") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(b"")
    return folder / name


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WARPLENS_CUPTI", raising=False)
    monkeypatch.setattr(libcupti, "_loaded", lambda: iter(()))
    monkeypatch.setattr(libcupti, "_folders", lambda: iter(()))


def test_a_loaded_copy_comes_before_all_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = make(tmp_path / "toolkit")
    monkeypatch.setattr(libcupti, "_folders", lambda: iter([tmp_path / "none", tmp_path / "toolkit"]))
    assert find_cupti() == str(other)
    monkeypatch.setattr(libcupti, "_loaded", lambda: iter(["/torch/libcupti.so.13"]))
    assert find_cupti() == "/torch/libcupti.so.13"


def test_the_environment_names_a_copy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = make(tmp_path, "libcupti.so.12")
    monkeypatch.setattr(libcupti, "_loaded", lambda: iter(["/torch/libcupti.so.13"]))
    monkeypatch.setenv("WARPLENS_CUPTI", str(given))
    assert find_cupti() == str(given)
    monkeypatch.setenv("WARPLENS_CUPTI", str(tmp_path / "gone.so"))
    assert find_cupti() is None


def test_loaded_libraries_are_read_from_the_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.undo()
    maps = tmp_path / "maps"
    maps.write_text(
        "7f00-7f01 r-xp 00000000 08:01 11 /lib/libc.so.6\n"
        "7f02-7f03 r-xp 00000000 08:01 12 /x/nvidia/cu13/lib/libcupti.so.13\n7f04-7f05 rw-p 00000000 00:00 0\n"
    )
    monkeypatch.setattr(libcupti, "_MAPS", maps)
    assert list(libcupti._loaded()) == ["/x/nvidia/cu13/lib/libcupti.so.13"]
    monkeypatch.setattr(libcupti, "_MAPS", tmp_path / "none")
    assert list(libcupti._loaded()) == []


def test_packages_come_before_the_toolkit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    made = make(tmp_path / "site" / "made_package" / "lib")
    (made.parents[1] / "__init__.py").write_text("")
    monkeypatch.setattr(libcupti, "_PACKAGES", (("made_package", "lib"), ("no_such_package.inside", "lib")))
    folders = list(libcupti._folders())
    assert folders[0] == made.parent
    assert folders[1] == tmp_path / "cuda" / "extras/CUPTI/lib64"


def test_without_a_library_the_error_says_how_to_get_it() -> None:
    cupti.cache_clear()
    with pytest.raises(WarplensError, match=r"libcupti was not found: .*pip install nvidia-cuda-cupti"):
        cupti()


def test_a_file_that_is_no_library_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(WarplensError, match="libcupti cannot be used") as failure:
        Cupti(str(make(tmp_path)))
    assert "\n" not in str(failure.value)
