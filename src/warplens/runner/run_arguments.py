"""Where warplens's own options end and the program begins."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from warplens.auto.rules import ALL, CLASSES, DEFAULT, Auto
from warplens.errors import UsageError, closest


def split(arguments: Sequence[str], with_value: Collection[str]) -> tuple[list[str], list[str]]:
    """Ours and the program's: everything from the script on, or from what follows `-m MODULE`, is the program's.

    `with_value` names the options that take the next word. `--auto` comes back with its value attached, since the
    next word may be a list of rules or the script.
    """
    ours: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return ours, rest
        if not word.startswith("-") or word == "-":
            return ours, [word, *rest]
        if word == "-m" or (word.startswith("-m") and not word.startswith("--")):
            module = [word[2:]] if len(word) > 2 else rest[:1]
            return [*ours, "-m", *module], rest if len(word) > 2 else rest[1:]
        if word == "--auto":
            ours.append(f"--auto={_rules(rest)}")
            continue
        ours.append(word)
        if word in with_value and rest:
            ours.append(rest.pop(0))
    return ours, []


def _rules(rest: list[str]) -> str:
    """The rules after a bare `--auto`, taken from `rest` when the next word is a list of them."""
    default = ",".join(DEFAULT)
    if not rest or rest[0].startswith("-"):
        return default
    word = rest[0]
    parts = [part.strip() for part in word.split(",")]
    known = [*CLASSES, ALL]
    if all(part in known for part in parts):
        return rest.pop(0)
    meant = len(parts) > 1 or any(closest(part, known) for part in parts)
    if meant and not Path(word).exists() and not word.endswith(".py"):
        Auto.of(word)
    return default


def numbers(text: str, option: str) -> list[int]:
    """`0,4-7` as the numbers it means."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or (dash and int(last) < int(first)):
            raise UsageError(f"{option} {text}: write numbers and ranges from 0, such as 0,4-7")
        found += range(int(first), int(last or first) + 1)
    return found
