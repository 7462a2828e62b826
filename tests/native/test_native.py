"""The compiled library: kept where it can be kept, compiled all the same where it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from warplens import native

build = native._build.__wrapped__


def test_it_is_kept_in_the_users_cache_and_not_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert build()[0].wl_count
    (kept,) = (tmp_path / "warplens").iterdir()
    monkeypatch.setattr(native.subprocess, "run", lambda *_, **__: pytest.fail("compiled again"))
    assert build()[0]._name == str(kept)


def test_a_home_that_cannot_be_written_is_no_reason_to_be_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").write_text("a file, where a folder is looked for")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    library, reason = build()
    assert reason is None
    assert library.wl_count
    assert not Path(library._name).exists(), "a library that is not kept is removed once it is loaded"
