"""A program in front of ptxas: it assembles as asked, and keeps the PTX of what was assembled.

`put_in_front` makes a folder with such a ptxas, for compilers that run the ptxas they find. The program starts once for
each module that is assembled, so it imports little.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from warplens.files import cache_folder, content_hash
from warplens.frontends.assembled_ptx.ptx_store import keep

_SOURCE = str(Path(__file__).parents[3])
_OUTPUT = ("-o", "--output-file")
_RELOCATABLE = {"-c", "--compile-only"}


def put_in_front(ptxas: Path, root: Path | None = None) -> Path:
    """Return a folder whose `bin/ptxas` runs `ptxas`. All else in it is what `root`, a CUDA toolkit, has.

    The folder stays: compilers remember where they found their tools, also when the profile is over. Raises OSError
    where it cannot be made.
    """
    start = f"import sys; sys.path.insert(0, {_SOURCE!r}); import {__name__} as own; own.keep_output(sys.argv[1:])"
    keeper = f"{shlex.quote(sys.executable)} -I -S -c {shlex.quote(start)}"
    # Whatever becomes of Python or warplens while the program runs, its kernels are assembled.
    script = f'#!/bin/sh\n{shlex.quote(str(ptxas))} "$@" || exit $?\n{keeper} "$@" > /dev/null 2>&1\nexit 0\n'
    # A toolkit that was updated in its place has other files.
    entries = sorted(str(entry) for place, entry in _entries(root))
    folder = cache_folder() / "ptxas" / content_hash(f"{script}{root}{entries}".encode())
    if not (folder / "bin" / "ptxas").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=folder.parent))
        _fill(made, script, root)
        with suppress(OSError):  # another process may have been first
            made.rename(folder)
        shutil.rmtree(made, ignore_errors=True)
    (folder / "bin" / "ptxas").stat()
    return folder


def _fill(folder: Path, script: str, root: Path | None) -> None:
    (folder / "bin").mkdir()
    for place, entry in _entries(root):
        (folder / place / entry.name).symlink_to(entry)
    (folder / "bin" / "ptxas").write_text(script)
    (folder / "bin" / "ptxas").chmod(0o755)


def _entries(root: Path | None) -> Iterator[tuple[Path, Path]]:
    """What a toolkit has besides ptxas, each with its place in it."""
    for place in (Path(), Path("bin")) if root is not None else ():
        for entry in (root / place).iterdir() if root is not None and (root / place).is_dir() else ():
            if entry.name not in ("bin", "ptxas"):
                yield place, entry


def keep_output(arguments: Sequence[str]) -> None:
    """Keep the PTX file among ptxas's arguments, by the machine code that ptxas wrote. Code that is still to be linked
    is not what a program loads."""
    if _RELOCATABLE.intersection(arguments):
        return
    output, files, words = "elf.o", list[bytes](), iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if name in _OUTPUT:
            output = value if equals else next(words, "")
        elif os.path.isfile(word):
            files.append(Path(word).read_bytes())
    texts = [text for text in files if b".version" in text]
    if len(texts) == 1 and os.path.isfile(output):
        keep(Path(output).read_bytes(), texts[0])
