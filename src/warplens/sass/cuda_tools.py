"""Find NVIDIA's command line tools: on PATH, in a CUDA toolkit, or in Triton's wheel."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from warplens.files import in_package
from warplens.sass.cubin_file import SassError

_HINT = "install the CUDA toolkit, or Triton, whose wheel has it; or set WARPLENS_{} to its path"


def find_tool(name: str) -> str:
    """The path of nvdisasm, cuobjdump or ptxas; raises a `SassError` that says how to get it."""
    found = known_tool(name)
    if found is None:
        raise SassError(f"{name} was not found: {_HINT.format(name.upper())}")
    return found


def known_tool(name: str) -> str | None:
    """The path of a tool; None where there is none. WARPLENS_NVDISASM and the like name one explicitly."""
    return next(iter(all_tools(name)), None)


def all_tools(name: str) -> list[str]:
    """Every copy of a tool, the one to use first."""
    given = os.environ.get(f"WARPLENS_{name.upper()}")
    if given is not None:
        return [given] if os.access(given, os.X_OK) else []
    found = [shutil.which(name), *(str(folder / name) for folder in _folders())]
    usable = (path for path in found if path and os.path.isfile(path) and os.access(path, os.X_OK))
    return list({os.path.realpath(path): path for path in usable}.values())


def _folders() -> Iterator[Path]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable]) / "bin"
    yield Path("/usr/local/cuda/bin")
    yield from in_package("triton", "backends/nvidia/bin")
    yield from sorted(Path("/usr/local").glob("cuda-*/bin"), reverse=True)
    yield from in_package("nvidia.cu13", "bin")
