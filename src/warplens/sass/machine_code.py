"""The machine code of a kernel that was recorded, and how to get a copy of it that has a line table."""

from __future__ import annotations

import functools
import hashlib
import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from warplens.errors import WarplensError
from warplens.sass.cubin_file import NoLineTable, SassError, read_cubin_file
from warplens.sass.cuda_tools import all_tools, find_tool
from warplens.sass.disassembly import TIMEOUT_S
from warplens.sass.numbered_lines import numbered_ptx
from warplens.sass.region_verifier import verify_cubin
from warplens.sass.verified_regions import KernelVerification

AS_RUN = "the machine code that ran"


@dataclass(frozen=True)
class MachineCode:
    """What a front end knows of a recorded kernel's code: the PTX with marks, the cubin, or both.

    Without a cubin the driver assembled the PTX. Marks that record by themselves need no PTX: the cubin has it.
    """

    symbol: str
    ptx: str = ""
    cubin: bytes | None = None
    names: Mapping[str, str] = field(default_factory=dict, compare=False)
    """The names of regions that marks only number."""
    missing: str = ""
    """Why there is neither PTX nor cubin."""
    automatic: bool = False
    """Whether rules placed its marks."""
    numbered: bool = False
    """Whether the cubin was made of the PTX with numbered lines (numbered_lines.py)."""
    source: str = AS_RUN
    """Where the cubin comes from, in words."""
    architecture: str = field(default="", compare=False)
    """Such as sm_90a, for a cubin out of a program, which may hold several."""
    plain: bytes | None = field(default=None, compare=False, repr=False)
    """The cubin of the same kernel without marks, where the front end has it."""

    @property
    def digest(self) -> str:
        """A short name of this code."""
        return _digest(self.symbol, self.ptx, self.cubin)


@functools.lru_cache(maxsize=256)
def _digest(symbol: str, ptx: str, cubin: bytes | None) -> str:
    """Cached, because every launch of a kernel asks for it."""
    text = ptx.encode(errors="replace") + b"\0" + (cubin or b"")
    return hashlib.sha256(symbol.encode() + b"\0" + text).hexdigest()[:16]


def verify_code(code: MachineCode, kernel: str = "") -> KernelVerification:
    """Verify the regions of recorded code. What goes wrong is one line in the result's `problem`."""
    name = kernel or code.symbol
    try:
        return _verify(code, name)
    except WarplensError as error:
        return KernelVerification(name, problem=" ".join(str(error).split()))
    except Exception as error:  # a listing or a text that no one foresaw must not cost the trace
        return KernelVerification(name, problem=f"verification failed: {type(error).__name__}: {error}"[:200])


def _verify(code: MachineCode, name: str) -> KernelVerification:
    """Verify the cubin; where it has no line table, another assembly of the same PTX that has one."""

    def verify(cubin: bytes, source: str, ptx: str = code.ptx, numbered: bool = False) -> KernelVerification:
        return verify_cubin(
            cubin, code.symbol, ptx, code.names, name=name, source=source, automatic=code.automatic, numbered=numbered
        )

    if code.cubin is None:
        if not code.ptx:
            raise SassError(code.missing or "its machine code was not kept")
        return verify(assemble_with_lines(code.ptx), _other_assembler())
    try:
        if not code.numbered:
            return verify(code.cubin, code.source)
        try:
            return verify(code.cubin, code.source, numbered=True)
        except NoLineTable:  # the linker may have kept the lines of the PTX instead
            return verify(code.cubin, code.source, numbered_ptx(code.ptx))
    except NoLineTable:
        if not code.ptx:
            raise
        return verify(*_again(code, code.cubin))


def _again(code: MachineCode, cubin: bytes) -> tuple[bytes, str]:
    """Assemble the PTX with a line table, and say whether that gives the same machine code. Code that ran may not be
    replaced by other code; code that was made for this purpose may, with a word."""
    arch, problem = _architecture(cubin, code.ptx), ""
    other: bytes | None = None
    wanted = read_cubin_file(cubin).code(code.symbol)
    for tool in all_tools("ptxas"):
        try:
            made = assemble_with_lines(code.ptx, arch, tool)
        except SassError as error:
            problem = problem or str(error)
            continue
        if read_cubin_file(made).code(code.symbol) == wanted:
            return made, f"{code.source}, with the line table of a second, identical assembly"
        problem, other = "assembling its PTX again gives other machine code", other or made
    if other is not None and code.source != AS_RUN:
        return other, _other_assembler()
    reason = problem or "there is no ptxas to make one"
    raise NoLineTable(f"its cubin has no line table, and {reason}; compile it with line information")


def _other_assembler() -> str:
    return f"{_ptxas_version()} on the same PTX, not the assembler that made the code that ran"


def assemble_with_lines(ptx: str, arch: str = "", tool: str = "") -> bytes:
    """Assemble PTX by ptxas with a line table, which does not change the machine code."""
    tool = tool or find_tool("ptxas")
    target = re.search(r"^\s*\.target\s+(\w+)", ptx, re.M)
    with tempfile.TemporaryDirectory(prefix="warplens-sass-") as folder:
        source, made = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        source.write_text(ptx.replace("\0", ""))
        arch = arch or (target[1] if target else "sm_90")
        command = [tool, "-lineinfo", f"-arch={arch}", str(source), "-o", str(made)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SassError(f"ptxas cannot be run: {error}") from None
        if done.returncode:
            said = (done.stderr or done.stdout).strip().partition("\n")[0].replace(str(source), "PTX")
            raise SassError(f"ptxas cannot assemble its PTX: {said[:200]}")
        return made.read_bytes()


def _architecture(cubin: bytes, ptx: str) -> str:
    """The target of a cubin, such as sm_90a. Its flags have the number, its PTX also the letter after it."""
    flags = int.from_bytes(cubin[48:52], "little")
    # ABI version 8 (CUDA 13) moved the number of the architecture by one byte.
    number = (flags >> 8) & 0xFF if cubin[8] >= 8 else flags & 0xFF
    target = re.search(r"^\s*\.target\s+(sm_(\d+)\w*)", ptx, re.M)
    return target[1] if target and int(target[2]) == number else f"sm_{number}"


@functools.cache
def _ptxas_version() -> str:
    done = subprocess.run([find_tool("ptxas"), "--version"], capture_output=True, text=True, timeout=TIMEOUT_S)
    found = re.search(r"V(\d+\.\d+)", done.stdout)
    return f"ptxas {found[1]}" if found else "ptxas"
