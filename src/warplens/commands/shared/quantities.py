"""Quantities on the command line: sizes, times, amounts of work, shares, and lists of numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from warplens.errors import UsageError

_NUMBER = re.compile(r"((?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?)\s*([a-zµ]*)")
_PERCENTAGE = re.compile(r"[0-9]+(\.[0-9]*)?|\.[0-9]+")
_MOST_DIGITS = 18
_BINARY = {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_BYTES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, **_BINARY}
_SECONDS = {"ms": 0.001, "": 1, "s": 1, "m": 60, "min": 60, "h": 3600}
_NANOSECONDS = {"ns": 1, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}
_AMOUNTS = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15, **_BINARY}


def byte_count(text: str, option: str) -> int:
    """Parse a size: plain bytes, or a number with a unit, such as 512MB (decimal) or 2GiB (binary)."""
    size = _scaled(text, _BYTES)
    if size is None or math.isinf(size):
        raise UsageError(f"{option} {text}: expected a size, such as 512MB, 2GiB or a number of bytes")
    return int(size)


def seconds(text: str, option: str) -> float:
    """Parse a time: a number of seconds, or a number with a unit, such as 500ms, 30s, 2m or 1h."""
    time = _scaled(text, _SECONDS)
    if not time or math.isinf(time):
        raise UsageError(f"{option} {text}: expected a time above 0, such as 30s, 500ms, 2m or a number of seconds")
    return time


def nanoseconds(text: str, option: str) -> float:
    """Parse the time of a kernel, which needs a unit: 5ms, 300us, 0.1s."""
    time = _scaled(text, _NANOSECONDS)
    if not time or math.isinf(time):
        raise UsageError(f"{option} {text!r}: expected a time such as 5ms, 300us or 0.1s")
    return time


def amount(text: str | None, option: str) -> float | None:
    """Parse a number with an optional suffix, or a product of such numbers: 137e9, 137G, 2*4096*4096."""
    if text is None:
        return None
    total = 1.0
    for part in text.replace("_", "").replace(",", "").split("*"):
        factor = _scaled(part, _AMOUNTS)
        if factor is None:
            raise UsageError(f"{option} {text!r}: expected a number such as 137e9, 137G or 2*4096*4096*4096")
        total *= factor
    if not math.isfinite(total):
        raise UsageError(f"{option} {text!r}: the number is too large")
    return total


def percentage(text: str, option: str) -> float:
    """Parse `5%` or `5` as 0.05."""
    number = text.strip().removesuffix("%").strip()
    if not _PERCENTAGE.fullmatch(number) or float(number) <= 0:
        raise UsageError(f"{option} {text!r}: expected a percentage above 0, such as 5%")
    return float(number) / 100


def share(text: str, option: str, expected: str) -> float:
    """Parse `5%` or `0.05` as 0.05."""
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise UsageError(f"{option} {text}: expected {expected}") from None


def count(text: str, option: str, expected: str) -> int:
    """Parse a whole number; `expected` says what else the option takes."""
    number = _whole(text)
    if number is None:
        raise UsageError(f"{option} {text}: expected {expected}")
    return number


def numbers(text: str, option: str, expected: str = "numbers and ranges, such as 0,4-7") -> list[int]:
    """Parse a list of numbers and ranges such as `0,4-7`."""
    found: list[int] = []
    for part in text.split(","):
        ends = [_whole(end) for end in part.strip().split("-", 1)]
        first, last = ends[0], ends[-1]
        if first is None or last is None or last < first:
            raise UsageError(f"{option} {text}: expected {expected}")
        found += range(first, last + 1)
    return found


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None


def _scaled(text: str, units: Mapping[str, float]) -> float | None:
    """A number times its unit; None if `text` is something else."""
    match = _NUMBER.fullmatch(text.strip().lower())
    return None if match is None or match[2] not in units else float(match[1]) * units[match[2]]
