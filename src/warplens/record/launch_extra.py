"""What analyses read from a launch's `extra`, and what must be there: a file may hold anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from warplens.record.aggregate_rows import AGGREGATE
from warplens.record.capture import (
    AUTOMATIC,
    BLOCK_LIVES,
    BY_RATE,
    CODE,
    COUNTER_BITS,
    FULL,
    HANG,
    HOST_NS,
    LARGEST_NUMBER,
    MACHINE_CODE,
    OVERHEAD_BUDGET,
    RATE_ERROR,
    SAMPLED,
    VARIANT,
    VARIANT_LAUNCHES,
    VARIANT_NUMBER,
)

_LARGEST_COUNT = 1 << 62
_SHARE = ("blocks", "of")
_KNOWN = ("with_records", "known", "sms")


def wrong_extra(extra: Mapping[str, Any]) -> tuple[str, str] | None:
    """The first value that is not what analyses expect: its name, and what is expected. `None` stands for no value."""
    # Thousands of launches are looked at when a profile ends, and each has a few of the names only.
    for name, value in extra.items():
        if name in _EXPECTED and _is_wrong(name, value):
            return next((one, told) for one, (told, _) in _EXPECTED.items() if _is_wrong(one, extra.get(one)))
    return None


def _is_wrong(name: str, value: Any) -> bool:
    return value is not None and not _EXPECTED[name][1](value)


def without_empty(extra: Mapping[str, Any]) -> dict[str, Any]:
    """The same without the names whose value is None."""
    return {name: value for name, value in extra.items() if value is not None or name not in _EXPECTED}


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LARGEST_COUNT


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= LARGEST_NUMBER


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_object(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_code(value: Any) -> bool:
    return _is_object(value) and all(_is_object(one) and all(map(_is_number, one.values())) for one in value.values())


def _is_share(value: Any) -> bool:
    """Some of at least one block; what is known of all of them is there as a whole or not at all."""
    if not _is_object(value) or not all(map(_is_count, value.values())) or not all(name in value for name in _SHARE):
        return False
    told = [name in value for name in _KNOWN]
    counts = [value.get(name, 0) for name in ("with_records", *_SHARE)]
    return counts == sorted(counts) and max(value.get("known", 1), 1) <= value["of"] and all(told) == any(told)


_COUNT = ("a whole number from 0 to 2^62", _is_count)
_TEXT = ("a text", _is_text)
_OBJECT = ("an object", _is_object)
_EXPECTED: dict[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(
        (
            "registers", "registers_plain", "local_bytes", "spills", "spilled_bytes", "shared_bytes",
            "shared_bytes_kernel", "capacity", "most_written", "records_per_warp", "records_needed", HOST_NS,
            VARIANT_NUMBER, VARIANT_LAUNCHES, COUNTER_BITS, BY_RATE,
        ),
        _COUNT,
    ),
    **dict.fromkeys((FULL, MACHINE_CODE, BLOCK_LIVES), _TEXT),
    **dict.fromkeys((VARIANT, HANG, AGGREGATE, OVERHEAD_BUDGET), _OBJECT),
    RATE_ERROR: ("a number", _is_number),
    AUTOMATIC: ("true or false", lambda value: isinstance(value, bool)),
    CODE: ("an object of numbers for each region", _is_code),
    SAMPLED: ("counts of blocks, of which some were recorded", _is_share),
}  # fmt: skip
