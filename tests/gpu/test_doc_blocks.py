"""Commands of the README and of docs/ that profile a program `train.py`, as a reader with a GPU runs them."""

from __future__ import annotations

import shlex
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.doc_blocks import blocks_of, commands_of
from tests.support.doc_runner import Reader
from tests.support.paths import ROOT

torch = pytest.importorskip("torch", reason="torch is not installed")
if not torch.cuda.is_available():
    pytest.skip("no CUDA GPU here", allow_module_level=True)

pytestmark = pytest.mark.gpu
TRAIN = """
import argparse, torch, triton, triton.language as tl
import warplens.triton as wlt

@triton.jit
def attn(x, y, n, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    with wlt.region("read"):
        value = tl.load(x + at, mask=at < n)
    for _ in range(16):
        value = tl.exp(value - tl.max(value, 0))
    tl.store(y + at, value, mask=at < n)

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=12)
x = torch.rand(1 << 18, device="cuda")
for _ in range(parser.parse_args().steps):
    y = torch.empty_like(x)
    attn[(256,)](x, y, x.numel(), 1024)
torch.cuda.synchronize()
"""
ELSEWHERE = ("torchrun", "attn.py", "package.train", "matmul.", "--live", "$EDITOR")
"""Parts of commands that need more GPUs, or other programs than this one."""

WRITES = {"run": ["train.warplens"], "report": ["train.html"]}


def commands() -> dict[Path, list[str]]:
    """By page, the commands about train.py and its trace, in order."""
    found = {}
    for page in [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]:
        blocks = [block for block in blocks_of(page) if block.language == "sh" and block.complete]
        lines = [
            command.line for block in blocks if "gpu" in block.needs <= {"gpu", "ncu"} for command in commands_of(block)
        ]
        mine = [line for line in lines if not any(part in line for part in ELSEWHERE)]
        found[page] = [line for line in mine if {"train.py", "train.warplens"} & set(shlex.split(line, comments=True))]
    return {page: lines for page, lines in found.items() if lines}


def follow(page: Path, lines: list[str], folder: Path) -> list[str]:
    """Run the commands of a page in a folder of its own; returns what did not work."""
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    reader = Reader(folder)
    reader.environment["TRITON_CACHE_DIR"] = str(folder / "cache")
    problems = []
    for line in lines:
        for made in WRITES.get(line.split()[1], ()):  # nothing is overwritten, so a reader moves files away
            (folder / made).unlink(missing_ok=True)
        code, said, errors = reader.in_shell(line)
        if code:
            problems.append(f"{page.name}: `{line}` ended with {code}: {errors[-800:] or said[-800:]}")
    return problems


def test_commands_about_a_program_of_the_reader(tmp_path: Path) -> None:
    pages = commands()
    assert sum(map(len, pages.values())) >= 10
    with ThreadPoolExecutor(6) as pool:
        every = pool.map(lambda page: follow(page, pages[page], tmp_path / page.stem), pages)
    found = [problem for problems in every for problem in problems]
    assert not found, "\n".join(found)
