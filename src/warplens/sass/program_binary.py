"""The cubins and the PTX inside a program or a static library that nvcc made, or in a cubin by itself."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from warplens.ptx.syntax import PtxError
from warplens.ptx.tree import parse
from warplens.record.name_table import scan
from warplens.sass.cubin_file import SassError, read_cubin_file
from warplens.sass.cuda_tools import find_tool
from warplens.sass.disassembly import TIMEOUT_S
from warplens.sass.machine_code import MachineCode

_MARKS = ("%wl_mark_", "wl_lead")
"""What the text of a marked kernel has besides its comments: declared marks, or the register of direct ones."""

_ARCHIVE = b"!<arch>\n"


def is_binary(path: Path) -> bool:
    """Whether a file is a program, a library or a cubin, by its first bytes."""
    with path.open("rb") as file:
        return file.read(len(_ARCHIVE)).startswith((b"\x7fELF", _ARCHIVE))


def read_binary(path: str | Path) -> list[MachineCode]:
    """The kernels with marks in a program, a library or a cubin."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise SassError(f"{path}: {error.strerror or error}") from None
    if not data.startswith((b"\x7fELF", _ARCHIVE)):
        raise SassError(f"{path}: neither a program nor a cubin")
    if data[:4] == b"\x7fELF" and int.from_bytes(data[18:20], "little") == 190:
        return codes_in([data], [])
    cubins, texts = _extract(str(path))
    if not cubins:
        raise SassError(f"{path}: holds no machine code of a GPU")
    found = codes_in(list(cubins), texts)
    return [replace(code, architecture=cubins.get(code.cubin or b"", "")) for code in found]


def codes_in(cubins: list[bytes], texts: list[str]) -> list[MachineCode]:
    """The marked kernels of cubins, each with the text it was assembled from if that is among `texts`."""
    by_kernel: dict[str, str] = {}
    for text in texts:
        for kernel in _kernels(text) if any(mark in text for mark in _MARKS) else ():
            by_kernel[kernel] = text
    found = []
    for cubin in cubins:
        file = read_cubin_file(cubin)
        names = _names(cubin)
        for kernel in file.kernels:
            text = by_kernel.get(kernel, "")
            if text or any(mark in file.ptx for mark in _MARKS):
                found.append(MachineCode(kernel, text, cubin, names))
    return found


def _names(cubin: bytes) -> Mapping[str, str]:
    return {f"#{number}": name for number, name in scan(cubin).regions.items()}


def _kernels(text: str) -> list[str]:
    try:
        return [entry.name for entry in parse(text).entries]
    except PtxError:
        return []


def _extract(path: str) -> tuple[dict[bytes, str], list[str]]:
    """The cubins, each with its architecture, and the texts of PTX."""
    tool = find_tool("cuobjdump")
    with tempfile.TemporaryDirectory(prefix="warplens-sass-") as folder:
        for kind in ("-xelf", "-xptx"):
            command = [tool, kind, "all", str(Path(path).resolve())]
            try:
                subprocess.run(command, cwd=folder, capture_output=True, timeout=TIMEOUT_S)
            except (OSError, subprocess.TimeoutExpired) as error:
                raise SassError(f"cuobjdump cannot be run: {error}") from None
        made = sorted(Path(folder).iterdir())
        cubins = {file.read_bytes(): _architecture(file.name) for file in made if file.suffix == ".cubin"}
        return cubins, [file.read_text(errors="replace") for file in made if file.suffix == ".ptx"]


def _architecture(name: str) -> str:
    """As cuobjdump writes it into the name of a file, such as gemm.1.sm_90a.cubin."""
    found = re.search(r"\.(sm_\w+)\.", name)
    return found[1] if found else ""
