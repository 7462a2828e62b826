"""Write files safely: never overwrite without being asked, never leave a partial file; and find installed folders."""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from warplens.errors import WarplensError

_PART = ".part"
_LONGEST_NAME = 255
"""The longest file name in bytes on the file systems of Linux and macOS."""
_STALE_S = 3600
"""A part that was not written to for so long belongs to a process that was killed."""


@contextmanager
def atomic_write(path: str | os.PathLike[str], *, force: bool = True) -> Iterator[BinaryIO]:
    """Open a binary file that appears at `path` only if the block ends without an error.

    A disk that is full, or a limit on the size of files, is a WarplensError that names the file.
    """
    target = check_writable(path, force=force)
    prefix = _part_prefix(target)
    _remove_stale_parts(target.parent, prefix)
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=prefix, suffix=_PART)
    except OSError as error:
        raise WarplensError(f"{target}: cannot write to this folder ({error.strerror}); choose another one") from None
    try:
        try:
            with os.fdopen(handle, "w+b") as out:
                yield out
            os.chmod(temporary, 0o666 & ~_umask())
            _put_in_place(Path(temporary), target, force)
        except OSError as error:
            if error.errno not in _NO_ROOM and error.filename not in (None, temporary, str(target)):
                raise  # another file's
            raise WarplensError(
                f"{target}: cannot be written ({error.strerror or error}); free some space or choose another folder"
            ) from error
    except BaseException:  # raised again: no half-written file may stay, Ctrl-C included
        Path(temporary).unlink(missing_ok=True)
        raise


def content_hash(data: bytes) -> str:
    """A short hash that tells whether a file is still the same."""
    return hashlib.sha256(data).hexdigest()[:16]


_NO_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


def _put_in_place(temporary: Path, target: Path, force: bool) -> None:
    """Give a finished file its name. Without `force`, a file that appeared meanwhile stays, and this is an error."""
    if force:
        os.replace(temporary, target)
        return
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise _exists(target) from None
    except OSError:  # a file system without hard links
        check_writable(target)
        os.replace(temporary, target)
        return
    temporary.unlink()


def _part_prefix(target: Path) -> str:
    """The begin of the temporary names of a target: hidden, its own, and short enough for any file system."""
    spare = _LONGEST_NAME - len(f"..{'x' * 8}{_PART}")
    name = os.fsencode(target.name)
    if len(name) > spare:
        name = name[: spare - 17] + b"~" + hashlib.sha256(name).hexdigest()[:16].encode()
    return f".{os.fsdecode(name)}."


def _remove_stale_parts(folder: Path, prefix: str) -> None:
    """Remove what processes that were killed while they wrote the same file have left behind."""
    try:
        names = [entry.name for entry in os.scandir(folder) if entry.name.startswith(prefix)]
    except OSError:
        return
    for name in names:
        if not re.fullmatch(r"[a-z0-9_]{8}", name[len(prefix) :].removesuffix(_PART)) or not name.endswith(_PART):
            continue
        part = folder / name
        try:
            if time.time() - part.stat().st_mtime > _STALE_S:
                part.unlink()
        except OSError:
            continue  # another process was faster, or may do more than this one


def check_writable(path: str | os.PathLike[str], *, force: bool = False) -> Path:
    """Return `path` as a Path; raise an error if it exists and `force` is off, or if its folder is missing."""
    target = Path(path)
    if target.exists() and not force:
        raise _exists(target)
    if not target.parent.is_dir():
        raise WarplensError(f"{target}: the folder {target.parent} does not exist; create it first")
    return target


def _exists(target: Path) -> WarplensError:
    return WarplensError(f"{target}: already exists; pass --force (force=True) to overwrite it")


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


def in_package(package: str, folder: str) -> Iterator[Path]:
    """The folder of a package that is installed, without importing it."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return
    for place in spec.submodule_search_locations or () if spec else ():
        yield Path(place) / folder
