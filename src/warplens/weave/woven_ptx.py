"""What weaving a module gives."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from warplens.ptx.syntax import PtxError
from warplens.record.aggregate_rows import AggregateLayout

_HEADER = "// @woven "
"""Begins the line of a woven text that describes it."""


@dataclass(frozen=True)
class Woven:
    """A woven module: its text, its region names, and the layout of its tracks."""

    text: str
    regions: dict[int, str] = field(default_factory=dict)
    locations: dict[int, str] = field(default_factory=dict)
    entries: dict[str, int] = field(default_factory=dict)
    """The number of marks that each woven kernel can reach."""
    threads: dict[str, int] = field(default_factory=dict)
    """Threads per block of the kernels that fix it (`.reqntid`), which determines their tracks per block."""
    slack: int = 0
    full: str = "stop"
    stores: dict[str, str] = field(default_factory=dict)
    """The store policy of each woven kernel."""
    code: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    """By kernel and number of the region: what the code of the region is made of (`weave/region_code.py`)."""
    between: dict[str, list[list[int]]] = field(default_factory=dict)
    """By kernel, the regions of the code between others (`weave/code_between.py`), three numbers each: of the region
    before it (0 is the warp's start), of the one that follows (0 is its exit), and its own."""
    aggregates: dict[str, AggregateLayout] = field(default_factory=dict)
    """The rows of each kernel that keeps statistics instead of records."""

    def describe(self) -> dict[str, Any]:
        """Everything except the text, as JSON."""
        return {
            "regions": {str(k): v for k, v in self.regions.items()},
            "locations": {str(k): v for k, v in self.locations.items()},
            "entries": self.entries,
            "threads": self.threads,
            "slack": self.slack,
            "full": self.full,
            "stores": self.stores,
            "code": self.code,
            **({"between": self.between} if self.between else {}),
            **({"aggregates": {k: v.describe() for k, v in self.aggregates.items()}} if self.aggregates else {}),
        }

    def with_text(self, text: str) -> Woven:
        """The same with a text, in front of which goes a line that describes it."""
        header = _HEADER + json.dumps(self.describe(), separators=(",", ":")) + "\n"
        return Woven.restore(header + text, self.describe())

    @staticmethod
    def read(text: str) -> Woven | None:
        """What a text that was woven before says of itself; None for any other text."""
        start = text.find(_HEADER)
        if start < 0:
            return None
        line = text[start + len(_HEADER) :].partition("\n")[0]
        try:
            return Woven.restore(text, json.loads(line))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise PtxError(text.count("\n", 0, start) + 1, line, "this is no description of a woven module") from None

    @staticmethod
    def restore(text: str, document: dict[str, Any]) -> Woven:
        return Woven(
            text,
            {int(k): v for k, v in document["regions"].items()},
            {int(k): v for k, v in document["locations"].items()},
            document["entries"],
            document["threads"],
            document["slack"],
            document["full"],
            document["stores"],
            document.get("code", {}),
            document.get("between", {}),
            {k: AggregateLayout.restore(v) for k, v in document.get("aggregates", {}).items()},
        )
