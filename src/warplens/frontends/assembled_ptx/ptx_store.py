"""PTX by the machine code that it was assembled to, one file each, for every process of the user.

`warplens nvcc --auto` and the ptxas in front of a compiler (ptxas_in_front.py) write it; a profile reads it when a
program loads the machine code. Content and name belong together, so no file is ever stale.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import tempfile
import zlib
from collections.abc import Iterable
from pathlib import Path

from warplens.errors import WarplensError
from warplens.files import cache_folder

LARGEST_STORE = 512 << 20
"""Bytes beyond which the files that were written first are deleted."""
KEEPS_PTX = "WARPLENS_KEEP_PTX"
"""Set in the environment of a program with automatic marks: `warplens nvcc` then keeps PTX without being asked."""
_SUFFIX = ".ptx.gz"


def digest(machine_code: bytes) -> str:
    """What machine code is known by. Whoever loads it may pad it with zeros."""
    return hashlib.sha256(machine_code.rstrip(b"\0")).hexdigest()


def keep(machine_code: bytes, text: bytes) -> None:
    """Keep the PTX that `machine_code` was assembled from. Raises OSError where it cannot be written."""
    path = _path(digest(machine_code))
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "wb") as out:
        out.write(gzip.compress(text, 3))
    os.replace(part, path)
    _delete_oldest(path.parent)


def check_writable() -> None:
    """Raise OSError if nothing can be kept: a compiler in another process could not report it."""
    _folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=_folder()):
        pass


def find(machine_codes: Iterable[bytes]) -> str | None:
    """The PTX of the first of these machine codes that was kept; None where none was. Raises WarplensError where the
    file is damaged."""
    for code in machine_codes if _folder().is_dir() else ():
        path = _path(digest(code))
        try:
            return gzip.decompress(path.read_bytes()).decode(errors="replace")
        except FileNotFoundError:
            continue
        except (OSError, EOFError, zlib.error) as error:
            raise WarplensError(f"its PTX in {path} cannot be read ({error}); delete it and compile again") from None
    return None


def _folder() -> Path:
    return cache_folder() / "ptx"


def _path(name: str) -> Path:
    return _folder() / f"{name}{_SUFFIX}"


def _delete_oldest(folder: Path) -> None:
    files = [(entry.stat(), entry.path) for entry in os.scandir(folder) if entry.name.endswith(_SUFFIX)]
    excess = sum(known.st_size for known, _ in files) - LARGEST_STORE
    for known, path in sorted(files, key=lambda file: file[0].st_mtime_ns) if excess > 0 else ():
        if excess > 0:
            os.unlink(path)
            excess -= known.st_size
