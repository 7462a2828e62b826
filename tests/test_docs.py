"""Check that the links, paths and commands in the documentation exist."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from warplens.commands import cli, main

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
GUIDES = [page for page in PAGES if page.parent.name != "results"]
"""Pages under docs/results quote commands as they were run at a commit, so their paths may be old."""

LINK = re.compile(r"\]\(([^)\s]+)\)")
PATH = re.compile(r"(?<![\w/.-])(?:docs|examples|benchmarks|tests)/[\w./-]*\w")
CODE = re.compile(r"^```.*?^```|`[^`\n]+(?:\n[^`\n]+)?`", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?<!import )\bwarplens ([a-z]+)\b([^`\n#|;]*)")
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
PARAMETERS = {"--n", "--impl", "--seq-len", "--seq-lengths", "--head-dim", "--causal", "--batch", "--heads"}
"""Options of the benchmarks that the pages quote; `bench` and `diagnose` pass them on."""


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_relative_links_resolve(page: Path) -> None:
    broken = []
    for link in LINK.findall(CODE.sub("", page.read_text())):
        target, _, anchor = link.partition("#")
        if "://" in link:
            continue
        file = page.parent / target if target else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(link)
    assert not broken


@pytest.mark.parametrize("page", GUIDES, ids=name)
def test_quoted_paths_exist(page: Path) -> None:
    missing = [path for path in PATH.findall(page.read_text()) if not (ROOT / path).exists()]
    assert not missing


def test_architecture_names_every_room_once() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    table = text.partition("## Rooms")[2].partition("\n\n`tests/")[0]
    named = [one for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for one in re.findall(r"`([^`]+)`", row)]
    package = ROOT / "src" / "warplens"
    folders = [f"{path.name}/" for path in package.iterdir() if path.is_dir() and path.name != "__pycache__"]
    assert sorted(named) == sorted([*folders, *(path.name for path in package.glob("*.py"))])


def test_files_named_in_the_architecture_exist() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    named = set(re.findall(r"`((?:\w+/)*\w+\.(?:py|c|h))`", text))
    assert len(named) > 40
    assert [
        name for name in sorted(named) if not (ROOT / "src/warplens" / name).exists() and not (ROOT / name).exists()
    ] == []


def test_every_benchmark_is_listed_once() -> None:
    folder = ROOT / "benchmarks"
    listed = re.findall(r"^\| `([\w.]+)` \|", (folder / "README.md").read_text(), re.MULTILINE)
    scripts = [path.stem for path in folder.glob("*.py") if path.stem != "__init__"]
    packages = [path.parent.name for path in folder.glob("*/__main__.py")]
    assert sorted(listed) == sorted([*scripts, *packages, *(path.name for path in folder.glob("*.sh"))])


def commands(page: Path) -> list[tuple[str, str]]:
    """Return the verb and the arguments of every `warplens` command in the code of a page."""
    blocks = [block for block in CODE.findall(page.read_text()) if not block.startswith(("```python", "```cpp"))]
    return COMMAND.findall("\n".join(blocks).replace("\\\n", " "))


def own_flags(verb: str, arguments: str) -> list[str]:
    """Return the flags that belong to warplens, without those of the program that the verb starts."""
    if verb in ("run", "verify"):
        arguments = re.split(r"\.py\b|(?<=\s)-m\s", arguments)[0]
    return [flag for flag in FLAG.findall(arguments) if flag not in PARAMETERS]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_quoted_verbs_and_flags_exist(page: Path) -> None:
    unknown = []
    for verb, arguments in commands(page):
        command = cli.get_command(click.Context(cli), verb)
        if command is None:
            unknown.append(f"warplens {verb}")
        elif verb != "nvcc":  # its other arguments are nvcc's
            known = {option for parameter in command.params for option in [*parameter.opts, *parameter.secondary_opts]}
            unknown += [f"warplens {verb} {flag}" for flag in own_flags(verb, arguments) if flag not in known]
    assert not unknown


def test_commands_of_the_readme_are_found() -> None:
    found = commands(ROOT / "README.md")
    assert {"run", "stats", "report", "view", "diff", "export"} <= {verb for verb, _ in found}
    assert any("--fail-on" in arguments for verb, arguments in found if verb == "diff")


def test_readme_shows_the_output_of_stats(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", str(ROOT / "tests/golden/captures/triton_matmul.wlcap")]) == 0
    shown = capsys.readouterr().out
    page = (ROOT / "README.md").read_text()
    assert all(line.rstrip() in page for line in shown.splitlines())
    assert "dot" in shown
