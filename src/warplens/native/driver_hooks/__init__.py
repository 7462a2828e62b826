"""A small C library that stands in front of the CUDA driver, so that kernels launched from C++ can be recorded.

It changes the driver's table of exported symbols in memory: a library that looks up `cuLaunchKernel` from then on, by
`dlsym` or by `cuGetProcAddress`, gets a function of ours. Statically linked CUDA runtimes do that when they are first
used. Pointers that libraries had looked up before are replaced in their data. Nothing on disk is touched, and calls go
straight to the driver while no profile runs.
"""

from __future__ import annotations

import ctypes
import os
import platform
from functools import cache
from pathlib import Path

from warplens import native

_HERE = Path(__file__).parent
_FLAGS = ("-O2", "-std=gnu11", "-shared", "-fPIC", "-pthread", "-Wl,-z,nodelete")
SWITCH = "WARPLENS_CPP"
"""0 in this environment variable leaves the driver alone."""


@cache
def load_hooks() -> tuple[ctypes.CDLL | None, str | None]:
    """The compiled library, or None and the reason."""
    if os.environ.get(SWITCH) == "0":
        return None, f"{SWITCH}=0 is set"
    if platform.system() != "Linux":
        return None, f"only Linux is supported, this is {platform.system()}"
    return native.build_library("driver-hooks", sorted(_HERE.glob("*.c")), _FLAGS, ["-ldl"])
