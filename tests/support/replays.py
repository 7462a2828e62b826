"""What the replays of CUDA graphs have recorded."""

from __future__ import annotations

from collections import Counter
from typing import Any


def spans_by_launch(trace: Any) -> list[Counter[tuple[str, str, int, int]]]:
    """The spans of each launch: how many of each region, kind, block and warp."""
    found: dict[int, Counter[tuple[str, str, int, int]]] = {}
    for row in trace.spans.to_pylist():
        key = (row["region"], row["kind"], row["block"], row["warp"])
        found.setdefault(row["launch"], Counter())[key] += 1
    return [found.get(number, Counter()) for number in range(len(trace.meta.launches))]


def places(trace: Any) -> list[tuple[Any, Any]]:
    """The graph and the node of each launch."""
    return [(launch.extra.get("graph"), launch.extra.get("node")) for launch in trace.meta.launches]
