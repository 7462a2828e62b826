"""The compiled library: kept where it can be kept, compiled all the same where it cannot."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from warplens import native

build = native._build.__wrapped__


def test_it_is_kept_in_the_users_cache_and_not_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert build()[0].wl_count
    (kept,) = (tmp_path / "warplens").glob("*.so")
    monkeypatch.setattr(native.subprocess, "run", lambda *_, **__: pytest.fail("compiled again"))
    assert build()[0]._name == str(kept)


def test_a_home_that_cannot_be_written_is_no_reason_to_be_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").write_text("a file, where a folder is looked for")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    library, reason = build()
    assert reason is None
    assert library.wl_count
    assert not Path(library._name).exists(), "a library that is not kept is removed once it is loaded"


@pytest.mark.parametrize(
    "damage", [lambda data: data[: len(data) // 2], lambda data: b"", lambda data: data[:-1] + b"x"]
)
def test_a_damaged_library_in_the_cache_is_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[bytes], bytes]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    program = "import sys; from warplens import native; sys.exit(native.load() is None)"
    subprocess.run([sys.executable, "-c", program], check=True)
    (kept,) = (tmp_path / "warplens").glob("*.so")
    whole = kept.read_bytes()
    kept.write_bytes(damage(whole))
    subprocess.run([sys.executable, "-c", program], check=True)
    assert kept.stat().st_size == len(whole)


def test_the_compiler_may_have_options_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", f"{shutil.which('gcc')} -m64" if os.uname().machine == "x86_64" else "gcc -O2")
    library, reason = build()
    assert reason is None
    assert library.wl_count
    monkeypatch.setenv("CC", "no-such-compiler -m64")
    assert build()[0] is None
    assert "no-such-compiler" in build()[1]
    monkeypatch.setenv("CC", "'unclosed")
    assert build()[0] is None
