"""Real PTX of every producer: marks to sprinkle over it, and the assembler that takes it."""

from __future__ import annotations

import shutil

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
