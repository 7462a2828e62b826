"""Run a compiled program with Python inside, so that its kernels are recorded as those of a script are."""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path
from typing import NoReturn

from warplens.errors import UsageError, WarplensError
from warplens.native.driver_hooks import load_hooks
from warplens.native.program_host import build_host, python_library
from warplens.runner.profile_request import ProfileRequest

REQUEST = "WARPLENS_HOST_REQUEST"
"""The environment variable that carries a `ProfileRequest` into the program."""
_KEPT = ("LD_PRELOAD", "PYTHONHOME", "PYTHONPATH")
_INTERPRETER = 3
"""PT_INTERP: the program is linked dynamically."""


def is_compiled(target: str) -> bool:
    """Whether a program is an executable file of machine code."""
    try:
        with open(target, "rb") as file:
            head = file.read(20)
    except OSError:
        return False
    return head.startswith(b"\x7fELF") and os.access(target, os.X_OK)


def become(request: ProfileRequest) -> NoReturn:
    """Turn this process into the program. Its exit code, output and process id are its own."""
    target = os.path.realpath(request.program[0])
    if not _is_dynamic(target):
        raise UsageError(f"{request.program[0]}: is linked statically, so nothing can be preloaded into it")
    hooks, reason = load_hooks()
    if hooks is None:
        raise WarplensError(f"a compiled program cannot be recorded here: {reason}")
    environment = dict(os.environ)
    for name in _KEPT:
        kept = f"WARPLENS_HOST_{name.removeprefix('LD_')}"
        if name in environment:
            environment[kept] = environment[name]
    before = environment.get("LD_PRELOAD", "")
    environment.update(
        LD_PRELOAD=":".join(filter(None, (str(build_host()), before))),
        PYTHONHOME=f"{sys.base_prefix}:{sys.base_exec_prefix}",
        PYTHONPATH=os.pathsep.join(sys.path),
        WARPLENS_HOST_PYTHON=str(python_library()),
        WARPLENS_HOST_PROGRAM=target,
    )
    environment[REQUEST] = request.to_text()
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(target, list(request.program), environment)


def _is_dynamic(target: str) -> bool:
    data = Path(target).read_bytes()[: 1 << 16]
    try:
        (table,) = struct.unpack_from("<Q", data, 32)
        size, count = struct.unpack_from("<2H", data, 54)
        return any(struct.unpack_from("<I", data, table + size * i)[0] == _INTERPRETER for i in range(count))
    except struct.error:
        return False


def received() -> ProfileRequest | None:
    """The request that was given to this process; the program does not see it."""
    text = os.environ.pop(REQUEST, None)
    return None if text is None else ProfileRequest.from_text(text)
