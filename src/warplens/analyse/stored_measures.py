"""The measures of a whole trace that its file keeps, so that its statistics need not read the rows.

They stand in the footer, which has a checksum, and are those of a pass over the rows to the last digit, which JSON
keeps. A file whose measures are missing, of another version or malformed is read row by row.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from warplens.analyse.value_statistics import ValueStatistics
from warplens.text import one_line

VERSION = 1
"""Counts up when a measure is computed in another way."""
WHOLE = ("count", "total", "min", "max", "exclusive", "total_ns", "min_ns", "max_ns", "exclusive_ns")
"""The measures that are whole numbers."""
FRACTIONS = (
    *("mean", "std", "p50", "p95", "p99", "warp_spread", "sm_spread"),
    *("mean_ns", "std_ns", "p50_ns", "p95_ns", "p99_ns"),
)


@dataclass(frozen=True)
class Measures:
    """What the rows say about each region of each group: the statistics without what follows from the document.

    The keys of `by_key` and `unended` count the regions of the first group's first variant, then those of its next
    variant, and so on. `unended` counts the spans whose end was not recorded.
    """

    regions: Sequence[str]
    labels: Sequence[str]
    by_key: Mapping[int, Mapping[str, Any]]
    unended: Mapping[int, int]
    values: Sequence[ValueStatistics]

    def to_bytes(self, rows: int) -> bytes:
        """The document that a file of so many rows keeps; empty where a number is not finite."""
        document = {
            "version": VERSION,
            "rows": rows,
            "regions": list(self.regions),
            "labels": list(self.labels),
            "measures": {
                str(key): {name: int(one[name]) for name in WHOLE} | {name: float(one[name]) for name in FRACTIONS}
                for key, one in self.by_key.items()
            },
            "unended": {str(key): int(many) for key, many in self.unended.items()},
            "values": [asdict(one) for one in self.values],
        }
        try:
            return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
        except ValueError:
            return b""

    @classmethod
    def from_bytes(cls, kept: bytes, rows: int, labels: Sequence[str]) -> Measures | None:
        """The measures of a file with so many rows and these variants; None where they are to be computed."""
        try:
            document = json.loads(kept) if kept else {}
            if document.get("version") != VERSION or document["rows"] != rows or document["labels"] != list(labels):
                return None
            keys = range(len(document["regions"]) * len(labels))
            return cls(
                [one_line(_text(name)) for name in document["regions"]],
                labels,
                {_key(key, keys): _numbers(one) for key, one in document["measures"].items()},
                {_key(key, keys): _whole(many) for key, many in document["unended"].items()},
                [_value(one) for one in document["values"]],
            )
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None


def _key(text: str, keys: range) -> int:
    return keys[keys.index(int(text))]


def _numbers(measures: Any) -> dict[str, Any]:
    return {name: _whole(measures[name]) for name in WHOLE} | {name: _fraction(measures[name]) for name in FRACTIONS}


def _value(one: Any) -> ValueStatistics:
    checked: dict[str, Any] = {field.name: _number_or_none(one[field.name]) for field in fields(ValueStatistics)[5:]}
    checked |= {name: one_line(_text(one[name])) for name in ("kernel", "name", "kind")}
    checked |= {name: _whole(one[name]) for name in ("count", "not_finite")}
    return ValueStatistics(**checked)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is no whole number")
    return value


def _fraction(value: Any) -> float:
    if not isinstance(value, float) or not math.isfinite(value):
        raise TypeError(f"{value!r} is no finite number")
    return value


def _number_or_none(value: Any) -> float | None:
    return None if value is None else _whole(value) if isinstance(value, int) else _fraction(value)
