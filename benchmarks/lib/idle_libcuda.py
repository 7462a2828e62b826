"""warplens's driver on top of a libcuda that does nothing: what its calls cost the host is real, the GPU is not."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from warplens.driver import libcuda

_SOURCE = Path(__file__).with_suffix(".c")


@contextmanager
def idle_driver() -> Iterator[libcuda.Driver]:
    """Inside the block, everything that asks for the driver gets one without a GPU. Needs a C compiler."""
    opened, asked = ctypes.CDLL, libcuda.driver
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "libcuda.so"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-w", _SOURCE, "-o", library], check=True)
        ctypes.CDLL = lambda name, *rest: opened(library if name == "libcuda.so.1" else name, *rest)  # type: ignore
        try:
            made = libcuda.Driver()
        finally:
            ctypes.CDLL = opened  # type: ignore[misc]
    libcuda.driver = lambda: made  # type: ignore[assignment]
    try:
        yield made
    finally:
        libcuda.driver = asked
