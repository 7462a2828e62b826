"""Run a compiled program with Python inside, so that its kernels are recorded as those of a script are."""

from __future__ import annotations

import base64
import os
import pickle
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from warplens.errors import UsageError, WarplensError
from warplens.native.driver_hooks import load_hooks
from warplens.native.program_host import build_host, python_library

REQUEST = "WARPLENS_HOST_REQUEST"
"""The environment variable that carries a `ProfileRequest` into the program."""
_KEPT = ("LD_PRELOAD", "PYTHONHOME", "PYTHONPATH")
_INTERPRETER = 3
"""PT_INTERP: the program is linked dynamically."""


@dataclass(frozen=True)
class ProfileRequest:
    """What to record of a compiled program, and how to report it."""

    path: Path
    options: Mapping[str, Any]
    program: tuple[str, ...]
    json_output: int | None = None
    """The file descriptor for the JSON document; None for a report in text."""
    launches_given: bool = False
    merge_variants: bool = False


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
    environment[REQUEST] = base64.b64encode(pickle.dumps(request)).decode()
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
    if text is None:
        return None
    request = pickle.loads(base64.b64decode(text))
    return request if isinstance(request, ProfileRequest) else None
