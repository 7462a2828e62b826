"""Option types for numbers within limits, without the range notation that click adds to the help."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import click


def number_range(
    kind: type[int] | type[float], low: float, high: float = math.inf, *, exclusive: bool = False
) -> Callable[[Any], float]:
    """Return an option type for an int or float from `low` to `high`; `exclusive` leaves both ends out."""

    def convert(value: Any) -> float:
        try:
            number = kind(value)
        except ValueError:
            raise click.BadParameter(f"{value!r} is not a {'whole ' if kind is int else ''}number") from None
        if not (low < number < high if exclusive else low <= number <= high):
            raise click.BadParameter(f"{number:g} is not {allowed}")
        return number

    if exclusive:
        allowed = f"more than {low:g} and less than {high:g}"
    else:
        allowed = f"at least {low:g}" if math.isinf(high) else f"between {low:g} and {high:g}"
    return convert
