"""Split the command line of `warplens run` into warplens's options and the program's arguments."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from warplens.auto.rules import ALL, CLASSES, DEFAULT, Auto
from warplens.errors import closest


def split(arguments: Sequence[str], with_value: Collection[str]) -> tuple[list[str], list[str]]:
    """Return warplens's options, and the program with its arguments.

    The program's part begins at the script, or after `-m MODULE`. `with_value` names the options that take a value.
    `--auto` is returned with its value attached, because the next word may be either its value or the script.
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


def split_mixed(
    arguments: Sequence[str], with_value: Collection[str], flags: Collection[str]
) -> tuple[list[str], list[str]]:
    """Like `split`, but long options of ours count after the program's name too, up to a `--`."""
    ours, program = split(arguments, with_value)
    rest, kept = program[1:], program[:1]
    while rest:
        word = rest.pop(0)
        name = word.partition("=")[0]
        if word == "--":
            return ours, [*kept, *rest]
        if word == "--auto":
            ours.append(f"--auto={_rules(rest)}")
        elif not word.startswith("--") or name not in (*with_value, *flags):
            kept.append(word)
        else:
            ours.append(word)
            if name == word and name in with_value and rest:
                ours.append(rest.pop(0))
    return ours, kept


def _rules(rest: list[str]) -> str:
    """Return the classes after `--auto`: the next word, removed from `rest`, if it lists classes, else the default."""
    default = ",".join(DEFAULT)
    if not rest or rest[0].startswith("-"):
        return default
    word = rest[0]
    parts = [part.strip() for part in word.split(",")]
    known = [*CLASSES, ALL]
    if all(part in known for part in parts):
        return rest.pop(0)
    misspelt = len(parts) > 1 or any(closest(part, known) for part in parts)
    if misspelt and not Path(word).exists() and not word.endswith(".py"):
        Auto.of(word)
    return default
