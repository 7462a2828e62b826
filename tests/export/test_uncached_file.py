"""Files that bypass the system's cache hold the same bytes as others, also where the system cannot do that."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path
from typing import Any

import pytest

from warplens.export import uncached_file
from warplens.export.uncached_file import UncachedFile
from warplens.export.write_behind import WriteBehind

REAL = getattr(os, "pwritev", None)


def in_short_pieces(descriptor: int, parts: list[memoryview], offset: int, _: int) -> int:
    """A system that writes fewer bytes than it is given."""
    joined = b"".join(parts)
    return os.pwrite(descriptor, joined[: max(len(joined) // 3, 1)], offset)


def unsupported(*_: Any) -> int:
    raise OSError(errno.EOPNOTSUPP, "not supported")


def supported_once(descriptor: int, parts: list[memoryview], offset: int, _: int) -> int:
    if offset > 5:
        unsupported()
    return os.pwrite(descriptor, b"".join(parts), offset)


@pytest.mark.parametrize("pwritev", [REAL, in_short_pieces, unsupported, supported_once, None])
def test_all_bytes_arrive_in_order(pwritev: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uncached_file, "_UNIT", 16)
    if pwritev is None:
        monkeypatch.delattr(os, "pwritev", raising=False)
    else:
        monkeypatch.setattr(os, "pwritev", pwritev, raising=False)
    numbers = random.Random(3)
    texts = [numbers.randbytes(numbers.choice((0, 1, 15, 16, 17, 100, 1000))) for _ in range(200)]
    with open(tmp_path / "out", "w+b") as file:
        file.write(b"first")
        with UncachedFile(file) as uncached, WriteBehind(uncached) as out:
            for at, text in enumerate(texts):
                out.write(memoryview(text) if at % 2 else text)
    assert (tmp_path / "out").read_bytes() == b"first" + b"".join(texts)


def test_an_error_of_the_thread_reaches_the_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(os, "pwritev", full, raising=False)
    with (
        open(tmp_path / "out", "w+b") as file,
        pytest.raises(OSError, match="no space left"),
        UncachedFile(file) as uncached,
        WriteBehind(uncached) as out,
    ):
        out.write(bytes(1 << 20))
