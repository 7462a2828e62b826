"""The machine code of one kernel: assembled, read with its control codes, and changed in place.

An instruction has 128 bits. The control code among them says for how many cycles the warp stalls before its next one,
which of six barriers stand until this one's result is written or its operands are read, and for which it waits.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import struct
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from warplens.weave.fit.ptxas_output import read_log

NOP, NONE = 0x7918, 7
STALL, WRITE, READ, WAITS = 41, 46, 49, 52
"""The control code's fields in an instruction's upper word, from Volta to Hopper."""
_BUSY = re.compile("CS2R|MMA|FFMA")
_LINES = re.compile(r"//## .*? line (\d+)|\n(\.L\w+):|/\*(\w{4,})\*/\s+(.*?)\s*;\s+/\* (0x\w+) \*/\s+/\* (0x\w+) \*/")


@dataclass(frozen=True)
class Instruction:
    """An instruction, the line of PTX that it comes from, and where it jumps if that is back."""

    at: int
    text: str
    low: int
    high: int
    line: int
    back_to: int | None

    @property
    def stall(self) -> int:
        return self.high >> STALL & 15

    @property
    def reads(self) -> int:
        """The barrier that stands until its operands are read."""
        return self.high >> READ & 7

    def sets(self, barrier: int) -> bool:
        return barrier in (self.reads, self.high >> WRITE & 7)

    def waits(self, barrier: int) -> bool:
        return bool(self.high >> WAITS + barrier & 1)

    def unwaiting(self, barrier: int) -> Instruction:
        return replace(self, high=self.high & ~(1 << WAITS + barrier))

    def taken_out(self) -> Instruction:
        """A NOP that stalls and waits as this one does, and sets no barrier."""
        return replace(self, text="NOP", low=NOP, high=self.high >> STALL << STALL | NONE << WRITE | NONE << READ)


class Assembled(NamedTuple):
    cubin: bytes
    code: list[Instruction]
    registers: int

    def static(self) -> dict[str, int]:
        stalls = [one.stall for one in hot_loop(self.code)]
        return {"registers": self.registers, "instructions": len(stalls), "stall cycles": sum(stalls)}

    def changed(self, changes: list[Instruction]) -> bytes:
        """The cubin with other instructions in some places."""
        start = self.cubin.index(b"".join(struct.pack("<QQ", one.low, one.high) for one in self.code))
        cubin = bytearray(self.cubin)
        for one in changes:
            struct.pack_into("<QQ", cubin, start + one.at, one.low, one.high)
        return bytes(cubin)


def assemble(text: str, arch: str) -> Assembled:
    """What the toolkit's ptxas makes of PTX with one kernel. Its line information leaves the code as it is."""
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder, "k.ptx"), Path(folder, "k.cubin")
        # NVRTC may be newer than the toolkit; what these kernels use is as old as Hopper.
        source.write_text(re.sub(r"(?m)^\.version .*$", ".version 8.0", text))
        said = run("ptxas", f"-arch={arch}", "-v", "-lineinfo", str(source), "-o", str(cubin))
        return Assembled(cubin.read_bytes(), disassemble(cubin), read_log(said).registers)


def disassemble(cubin: Path) -> list[Instruction]:
    code: list[Instruction] = []
    labels: dict[str, int] = {}
    source = 0
    for line, label, at, text, *words in _LINES.findall(run("nvdisasm", "-c", "-hex", "-gp", str(cubin))):
        if line:
            source = int(line)
        elif label:
            labels[label] = 16 * len(code)
        else:
            jump = re.search(r"\bBRA\b.*\((\.L\w+)\)", text)
            low, high = (int(word, 16) for word in words)
            code.append(Instruction(int(at, 16), text, low, high, source, labels.get(jump[1]) if jump else None))
    return code


def run(name: str, *options: str) -> str:
    """What a program of the CUDA toolkit says: the one in the path, beside nvcc, or in Triton's wheel."""
    nvcc, triton = shutil.which("nvcc"), importlib.util.find_spec("triton")
    folders = [Path(nvcc).resolve().parent] if nvcc else []
    folders += [Path(triton.origin).parent / "backends/nvidia/bin"] if triton and triton.origin else []
    found = shutil.which(name) or shutil.which(name, path=os.pathsep.join(map(str, folders)))
    if found is None:
        raise SystemExit(f"{name} is neither in the path nor beside nvcc: install the CUDA toolkit, or triton")
    made = subprocess.run([found, *options], capture_output=True, text=True)
    if made.returncode:
        raise SystemExit(f"{name} failed: {made.stderr}")
    return made.stdout + made.stderr


def hot_loop(code: list[Instruction]) -> list[Instruction]:
    """The shortest of the loops with most arithmetic and clock reads; ptxas leaves none that does nothing."""
    starts = ((one.back_to, one.at) for one in code if one.back_to is not None and one.back_to < one.at)
    loops = ([one for one in code if start <= one.at <= end] for start, end in starts)
    return max(loops, key=lambda loop: (sum(bool(_BUSY.search(one.text)) for one in loop), -len(loop)), default=[])
