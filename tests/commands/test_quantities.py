"""Sizes, times, amounts, shares and lists of numbers on the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from warplens.commands.shared.quantities import amount, byte_count, count, nanoseconds, numbers, percentage, seconds
from warplens.errors import UsageError


@pytest.mark.parametrize(
    ("parse", "text", "expected"),
    [
        (numbers, "0,4-7", [0, 4, 5, 6, 7]),
        (seconds, "30s", 30),
        (seconds, "500ms", 0.5),
        (seconds, "2m", 120),
        (seconds, "1.5h", 5400),
        (seconds, "7", 7),
        (byte_count, "512MB", 512_000_000),
        (byte_count, "1.5 GiB", 3 << 29),
        (byte_count, "100", 100),
        (nanoseconds, "5ms", 5e6),
        (nanoseconds, "300us", 3e5),
        (nanoseconds, ".3 µs", 300),
        (amount, "137e9", 137e9),
        (amount, "137G", 137e9),
        (amount, "2*4096*4,096", 2 * 4096 * 4096),
        (amount, "36KiB", 36 * 1024),
        (percentage, "5%", 0.05),
        (percentage, "2.5", 0.025),
    ],
)
def test_quantities_are_parsed(parse: Callable[[str, str], Any], text: str, expected: Any) -> None:
    assert parse(text, "--option") == expected


@pytest.mark.parametrize(
    ("parse", "wrong"),
    [
        (numbers, ("", "a", "3-1", "-1", "1-2-3", "²", "9" * 5000)),
        (seconds, ("", "s", "0s", "-3s", "30x", "30s:kill", "1 2s", "9" * 400)),
        (byte_count, ("", "MB", "-1", "1XB", "2 GiB/s", "9" * 400)),
        (nanoseconds, ("", "5", "0ms", "-5ms", "nans", "5m", "9" * 400 + "s")),
        (amount, ("", "x", "2**3", "5kb", "9" * 400)),
        (percentage, ("", "0", "-5%", "nan", "five")),
        (lambda text, option: count(text, option, "a number"), ("", "-1", "1.5", "²", "9" * 5000)),
    ],
)
def test_wrong_quantities_are_refused(parse: Callable[[str, str], Any], wrong: tuple[str, ...]) -> None:
    for text in wrong:
        with pytest.raises(UsageError, match="--option"):
            parse(text, "--option")
