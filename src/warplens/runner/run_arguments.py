"""Split the command line of `warplens run` into warplens's options and the program's arguments."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from warplens.auto.rules import ALL, CLASSES, DEFAULT, Auto
from warplens.errors import UsageError, closest


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


_UNITS = {"": 1, "b": 1} | {
    f"{letter}{middle}b": base**power
    for power, letter in enumerate("kmgt", 1)
    for middle, base in (("", 1000), ("i", 1024))
}


def byte_count(text: str, option: str) -> int:
    """Parse a size: plain bytes, or a number with a unit, such as 512MB (decimal) or 2GiB (binary)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _UNITS:
        raise UsageError(f"{option} {text}: expected a size, such as 512MB, 2GiB or a number of bytes")
    return int(float(match[1]) * _UNITS[match[2]])


_SECONDS = {"ms": 0.001, "": 1, "s": 1, "m": 60, "min": 60, "h": 3600}


def seconds(text: str, option: str) -> float:
    """Parse a time: a number of seconds, or a number with a unit, such as 500ms, 30s, 2m or 1h."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _SECONDS or not float(match[1]):
        raise UsageError(f"{option} {text}: expected a time above 0, such as 30s, 500ms, 2m or a number of seconds")
    return float(match[1]) * _SECONDS[match[2]]


def numbers(text: str, option: str) -> list[int]:
    """Parse a list of numbers and ranges such as `0,4-7`."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or (dash and int(last) < int(first)):
            raise UsageError(f"{option} {text}: expected numbers and ranges, such as 0,4-7")
        found += range(int(first), int(last or first) + 1)
    return found
