"""A small C library that brings Python into a compiled program, for `warplens run PROGRAM`."""

from __future__ import annotations

import sysconfig
from pathlib import Path

from warplens import native
from warplens.errors import WarplensError

_HERE = Path(__file__).parent
_FLAGS = ("-O2", "-std=gnu11", "-shared", "-fPIC", "-Wl,-z,nodelete")


def build_host() -> Path:
    """The compiled library, to be preloaded. Loading it into this process does nothing."""
    library, reason = native.build_library("program-host", sorted(_HERE.glob("*.c")), _FLAGS, ["-ldl"])
    if library is None or not library._name or not Path(library._name).exists():
        raise WarplensError(f"a compiled program cannot be recorded here: {reason or 'the cache cannot be written'}")
    return Path(library._name)


def python_library() -> Path:
    """The shared library of this Python."""
    folder, name = sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("INSTSONAME")
    for candidate in (Path(folder or "") / (name or ""), Path(folder or "") / "libpython3.so"):
        if name and ".so" in candidate.name and candidate.is_file():
            return candidate
    raise WarplensError(
        "a compiled program cannot be recorded here: this Python has no shared library; "
        "use one built with --enable-shared (conda, pyenv with it, or the package libpython3)"
    )
