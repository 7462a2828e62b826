"""Real PTX of every producer: marks to sprinkle over it, and the assembler that takes it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import paths
from warplens.ptx import tree

GOLDEN = paths.GOLDEN / "ptx"


def sprinkle(text: str, every: int = 5) -> str:
    """A begin and an end, in turn, after every few instructions of every function."""
    module = tree.parse(text)
    count = 0

    def walk(body: list[tree.Node]) -> None:
        nonlocal count
        for node in list(body):
            if isinstance(node, tree.Scope):
                walk(node.body)
            elif isinstance(node, tree.Instruction) and node.opcode not in ("ret", "exit", "bra", "brx", "trap"):
                count += 1
                if count % every == 0:
                    letter = "BE"[count // every % 2]
                    at = next(i for i, other in enumerate(body) if other is node)
                    body.insert(at + 1, tree.Raw.of(f"\t// @warplens {letter} part\n"))

    for function in module.functions:
        walk(function.body or [])
    return module.text()


def ptxas() -> str:
    """The path of the assembler; a test is skipped where there is none."""
    if found := shutil.which("ptxas"):
        return found
    pytest.importorskip("triton", reason="no ptxas here")
    from triton.backends.nvidia.compiler import get_ptxas

    return str(get_ptxas(90).path)


def assemble(text: str, name: str, folder: Path, arch: str = "") -> str:
    """Assemble a text that was made of the file `name`, for its own target or `arch`; return what ptxas says. A test is
    skipped where ptxas is too old for the file."""
    target = re.search(r"^\.target\s+(\w+)", text, re.M)
    assert target is not None
    (folder / "k.ptx").write_text(text.rstrip("\0"))  # the CuTe DSL ends its text with one, ptxas refuses it
    command = [ptxas(), f"--gpu-name={arch or target[1]}", "-v", "k.ptx", "-o", "k.cubin"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if "Unsupported .version" in done.stderr:
        pytest.skip(f"this ptxas is older than {name}")
    assert done.returncode == 0, done.stderr
    return done.stderr
