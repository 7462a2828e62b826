"""Write files safely: never overwrite without being asked, and never leave a partial file."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from warplens.errors import WarplensError


@contextmanager
def atomic_write(path: str | os.PathLike[str], *, force: bool = True) -> Iterator[BinaryIO]:
    """Open a binary file that appears at `path` only if the block ends without an error."""
    target = check_writable(path, force=force)
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
    except OSError as error:
        raise WarplensError(f"{target}: cannot write to this folder ({error.strerror}); choose another one") from None
    try:
        with os.fdopen(handle, "wb") as out:
            yield out
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def check_writable(path: str | os.PathLike[str], *, force: bool = False) -> Path:
    """Return `path` as a Path; raise an error if it exists and `force` is off, or if its folder is missing."""
    target = Path(path)
    if target.exists() and not force:
        raise WarplensError(f"{target}: already exists; pass --force (force=True) to overwrite it")
    if not target.parent.is_dir():
        raise WarplensError(f"{target}: the folder {target.parent} does not exist; create it first")
    return target


def safe_name(text: str) -> str:
    """Convert a text to a file name: characters that are special to file systems or shells become `_`."""
    return re.sub(r"[^\w.=+-]", "_", text)


def cache_folder() -> Path:
    """Return the folder for files that can be recreated, in the user's cache; it may not exist yet."""
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(root) / "warplens"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
