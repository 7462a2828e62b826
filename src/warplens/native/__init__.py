"""The hot loops in C, compiled by the system's compiler on first use and cached in the user's cache folder.

This is optional: without a compiler, or with WARPLENS_NATIVE=0, the numpy versions give the same bytes.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy.typing as npt

from warplens.files import cache_folder
from warplens.record import layout

_HERE = Path(__file__).parent
_FLAGS = ("-O3", "-std=c11", "-shared", "-fPIC", "-fno-math-errno", "-ffp-contract=off", "-fwrapv")


def load() -> ctypes.CDLL | None:
    """The compiled library, or None if it is not available; see `why_not`."""
    return None if os.environ.get("WARPLENS_NATIVE") == "0" else _build()[0]


def why_not() -> str | None:
    """The reason why `load` returns None; None if it returns a library."""
    return "WARPLENS_NATIVE=0 is set" if os.environ.get("WARPLENS_NATIVE") == "0" else _build()[1]


@cache
def _build() -> tuple[ctypes.CDLL | None, str | None]:
    definitions = [f"-DWL_{name}={value}" for name, value in _definitions().items()]
    return build_library("native", sorted(_HERE.glob("*.c")), [*_FLAGS, *definitions], ["-lm"])


def build_library(
    name: str, sources: Sequence[Path], flags: Sequence[str], libraries: Sequence[str]
) -> tuple[ctypes.CDLL | None, str | None]:
    """Compile C sources into a library that is cached under `name`. Return it, or None and the reason."""
    compiler = _compiler()
    if not compiler:
        return None, "no C compiler found (cc, gcc or clang)"
    command = [*compiler, *flags]
    digest = hashlib.sha256(" ".join([*command, platform.machine(), platform.libc_ver()[1]]).encode())
    for source in [*sources, *sorted({header for one in sources for header in one.parent.glob("*.h")})]:
        digest.update(source.read_bytes())
    library = cache_folder() / f"{name}-{digest.hexdigest()[:16]}.so"
    try:
        return _cached_or_compiled([*command, *map(str, sources)], library, libraries), None
    except OSError as error:
        return None, f"{library} cannot be used ({error})"
    except subprocess.SubprocessError as error:
        return None, f"{shlex.join(compiler)} failed ({getattr(error, 'stderr', '') or error})"


def _compiler() -> list[str]:
    """The compiler and its own options: CC may be `gcc -m64` or `ccache gcc`; empty where there is none."""
    try:
        if given := shlex.split(os.environ.get("CC", "")):
            return given
    except ValueError:
        return [os.environ["CC"]]  # an unclosed quote: as it stands
    found = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    return [found] if found else []


def _digest_file(library: Path) -> Path:
    return library.with_suffix(".sha256")


def _is_whole(library: Path) -> bool:
    """Whether a cached library is what was compiled: loading one that is cut short would end the process."""
    try:
        return _digest_file(library).read_text() == hashlib.sha256(library.read_bytes()).hexdigest()
    except (OSError, ValueError):
        return False


def _cached_or_compiled(command: list[str], library: Path, libraries: Sequence[str]) -> ctypes.CDLL:
    if _is_whole(library):
        return ctypes.CDLL(str(library))
    try:
        library.parent.mkdir(parents=True, exist_ok=True)
        where, keep = tempfile.TemporaryDirectory(dir=library.parent), True
    except OSError:  # the cache folder cannot be written: compile for this process only
        where, keep = tempfile.TemporaryDirectory(prefix="warplens-"), False
    with where as folder:
        made = Path(folder) / "native.so"
        whole = [*command, "-o", str(made), *libraries]
        subprocess.run(whole, check=True, capture_output=True, text=True, timeout=120)
        if not keep:
            return ctypes.CDLL(str(made))
        digest = Path(folder) / "native.sha256"
        digest.write_text(hashlib.sha256(made.read_bytes()).hexdigest())
        made.replace(library)
        digest.replace(_digest_file(library))
        return ctypes.CDLL(str(library))


def _definitions() -> dict[str, int]:
    names = (
        "SLOT_BYTES", "REGION_SHIFT", "TAG_SHIFT", "MAX_REGION", "CLOCK_BITS", "LIFETIME_BITS", "HEADER_BYTES",
        "TRACK_MAGIC", "MAX_WARPS", "MAX_SM", "SANE", "SLOWEST_NS", "PAUSE_NS",
    )  # fmt: skip
    kinds = {f"KIND_{kind.name}": int(kind) for kind in layout.Kind}
    types = {f"VALUE_{kind.name}": int(kind) for kind in layout.ValueType}
    header = {f"HEADER_{name.upper()}": at for name, (_, at, *_) in (layout.HEADER.fields or {}).items()}
    sizes = {f"HEADER_SIZE_{name.upper()}": kind.itemsize for name, (kind, *_) in (layout.HEADER.fields or {}).items()}
    states = {f"STATE_{state.name}": int(state) for state in layout.TrackState}
    return {name: getattr(layout, name) for name in names} | kinds | types | header | sizes | states


def address(array: npt.NDArray[Any]) -> int:
    """The address of a numpy array. For thousands of arrays, `array.ctypes` takes too long."""
    found: int = array.__array_interface__["data"][0]
    return found


def pointer(array: object) -> ctypes.c_void_p:
    """The address of a contiguous numpy array, or null for None."""
    return ctypes.c_void_p(None if array is None else array.ctypes.data)  # type: ignore[attr-defined]
