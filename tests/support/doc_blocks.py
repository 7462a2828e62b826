"""The code blocks of a Markdown page, and what the page says about each.

A block has a language: `sh` (commands), `console` (commands with their output), `python`, `cuda`, `json`, or `text` for
what is only shown. Its first line may name the file to save it in (`# gemm.py`, `// faster.cu`). A comment before it
says what a reader would have to know to run it:

    <!-- needs: gpu -->        it runs only where there is one
    <!-- page needs: gpu -->   the same for every block of the page; stands on its first line
    <!-- fragment -->          it is part of a larger program
    <!-- numbers vary -->      the output has the same words each time, but not the same numbers
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

LANGUAGES = {"sh", "console", "python", "cuda", "json", "text"}
NEEDS = {"gpu", "torch", "network", "browser", "nvcc", "ncu"}

_FENCE = re.compile(r"^```(?P<language>\S*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_NOTE = re.compile(r"<!-- (?P<note>[^<>]*?) -->\s*\Z")
_PAGE_NOTE = re.compile(r"\A<!-- page (?P<note>needs: [^<>]*?) -->")
_FILE = re.compile(r"^(?:#|//) (\w[\w.-]*\.(?:py|cu))\n")


@dataclass(frozen=True)
class Block:
    """One code block, the line of its fence, and the notes before it."""

    page: Path
    line: int
    language: str
    text: str
    notes: frozenset[str]

    @property
    def needs(self) -> frozenset[str]:
        """What this machine may not have: `gpu`, `torch`, ..."""
        named = (note.removeprefix("needs:") for note in self.notes if note.startswith("needs:"))
        return frozenset(word.strip() for words in named for word in words.split(","))

    @property
    def file(self) -> str:
        """The name of the file to save the block in; empty if there is none."""
        found = _FILE.match(self.text)
        return found[1] if found else ""

    @property
    def complete(self) -> bool:
        return "fragment" not in self.notes

    @property
    def place(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    """The blocks of a page in order."""
    text = page.read_text()
    whole = _PAGE_NOTE.match(text)
    found: list[Block] = []
    end = 0
    for fence in _FENCE.finditer(text):
        notes = {whole["note"]} if whole else set()
        before = text[end : fence.start()]
        while note := _NOTE.search(before):
            notes.add(note["note"])
            before = before[: note.start()]
        line = text.count("\n", 0, fence.start()) + 1
        found.append(Block(page, line, fence["language"], fence["text"], frozenset(notes)))
        end = fence.end()
    return found


@dataclass(frozen=True)
class Command:
    """A command of a block, and the output that the page shows for it; None where it shows none."""

    line: str
    output: str | None = None


def commands_of(block: Block) -> list[Command]:
    """The commands of a `sh` or `console` block, with continued lines joined."""
    text = block.text.replace("\\\n", " ")
    if block.language == "sh":
        return [Command(line) for line in text.splitlines() if line.strip() and not line.startswith("#")]
    found: list[Command] = []
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        line, _, output = part.partition("\n")
        found.append(Command(line, output))
    return found


def matches(shown: str, said: str, *, numbers: bool = True) -> bool:
    """Whether an output is the one that the page shows: `...` stands for anything, and lines may be wrapped."""
    patterns = [_words(part, numbers) for part in re.split(r"\.\.\.|…", shown)]
    pattern = r".*?".join(re.escape(" ".join(words)) for words in patterns)
    return re.fullmatch(rf"\s*{pattern}\s*", " ".join(_words(said, numbers)), re.DOTALL) is not None


def _words(text: str, numbers: bool) -> list[str]:
    return (text if numbers else re.sub(r"-?\d[\d.,]*", "0", text)).split()
