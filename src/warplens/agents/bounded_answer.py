"""Answers that fit: a page of entries within a budget of tokens, and the cursor of the next one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from warplens.analyse.evidence_packet import tokens
from warplens.errors import UsageError

BUDGET = 2000
MOST = 8000
_DIGITS = 18
_SIGNIFICANT = 4
"""Digits of a number that an agent can act on; the others cost it tokens."""


def check_budget(budget: int) -> int:
    """A budget that leaves room for an answer, and for the agent's other work."""
    if not 200 <= budget <= MOST:
        raise UsageError(f"budget={budget}: tokens of an answer must be within 200..{MOST}")
    return budget


def page(entries: Sequence[Any], cursor: str, budget: int) -> tuple[list[Any], str]:
    """As many entries as fit, from the cursor on, and the cursor of the rest; empty when nothing is left."""
    start = 0
    if cursor:
        if not cursor.isdecimal() or len(cursor) > _DIGITS or int(cursor) >= len(entries):
            raise UsageError(f"cursor={cursor!r}: pass the cursor of the last answer, or none for the first page")
        start = int(cursor)
    end, spent = start, 0
    while end < len(entries):
        spent += tokens(entries[end])
        if spent > budget and end > start:
            break
        end += 1
    return list(entries[start:end]), str(end) if end < len(entries) else ""


def shortened(value: Any, characters: int = 400) -> Any:
    """A value whose texts are cut: a name in a trace may be of any length."""
    if isinstance(value, str):
        return value if len(value) <= characters else value[: characters - 1] + "…"
    if isinstance(value, dict):
        return {shortened(name, 120): shortened(one, characters) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [shortened(one, characters) for one in value]
    return value


def tidied(value: Any) -> Any:
    """An answer whose fractions have few digits, and whose entries say nothing about what is empty."""
    if isinstance(value, float):
        rounded = float(f"{value:.{_SIGNIFICANT}g}")
        return int(rounded) if rounded.is_integer() else rounded
    if isinstance(value, dict):
        return {name: tidied(one) for name, one in value.items() if one != "" or name == "cursor"}
    if isinstance(value, list | tuple):
        return [tidied(one) for one in value]
    return value
