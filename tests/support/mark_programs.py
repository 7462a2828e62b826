"""Random programs of marks and the rows that a decoder makes of them, for hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.support.builders import Span

NAMES = (
    "load",
    "mma",
    "",
    'a "quoted" name',
    "two\nlines",
    "<img src=x onerror=alert(1)>",
    "naïve 名前 🚀",
    "\\ % { } '",
    "a" * 300,
)
VALUES = st.one_of(st.integers(-(2**60), 2**60).map(float), st.floats(allow_nan=False, allow_infinity=False))

_MARKS = st.sampled_from(["begin", "begin", "end", "end", "instant", "value"])
_LOOSE = st.sampled_from(
    ["begin", "begin", "end", "end", "instant", "value", "async", "async", "land", "cross", "back"]
)
_IDENTITY = st.tuples(
    st.integers(0, 1),  # rank
    st.integers(0, 1),  # device
    st.integers(0, 2),  # launch
    st.sampled_from([0, 1, 5, 2**31 - 1]),  # block
    st.integers(0, 3),  # warp
    st.sampled_from([0, 0, 0, 7]),  # lane
)


def programs(loose: bool = False, max_tracks: int = 5) -> st.SearchStrategy[list[Span]]:
    """Rows of several tracks. With `loose`, also asynchronous spans, crossed ends and clocks that step back."""
    steps = st.sampled_from([0, 0, 1, 1, 2, 30, 5000, 10**7])
    marks = st.lists(st.tuples(_LOOSE if loose else _MARKS, st.sampled_from(NAMES), steps, VALUES), max_size=30)
    origins = st.sampled_from([0, 0, 1, 10**12])
    return st.dictionaries(_IDENTITY, st.tuples(marks, origins), max_size=max_tracks).map(_rows)


def _rows(tracks: dict[Any, Any]) -> list[Span]:
    rows: list[Span] = []
    for identity, (marks, origin) in tracks.items():
        rows += _track(identity, marks, origin, len(rows))
    return rows


def _track(identity: tuple[int, ...], marks: list[Any], origin: int, base: int) -> list[Span]:
    """What the decoder does: a stack for spans, a bag for asynchronous ones; what stays open ends with the track."""
    rows: list[dict[str, Any]] = []
    stack: list[int] = []
    flying: list[int] = []
    now = origin

    def close(row: int) -> None:
        rows[row]["dur"] = max(now - rows[row]["start"], 0)

    for mark, name, step, value in marks:
        now = max(now - 3, 0) if mark == "back" else now + step
        if mark == "end" and stack:
            close(stack.pop())
        elif mark == "cross" and stack:
            close(stack.pop(len(stack) // 2))
        elif mark == "land" and flying:
            close(flying.pop(0))
        elif mark in ("begin", "async", "instant", "value"):
            row: dict[str, Any] = {"region": name, "start": now, "kind": "span", "depth": len(stack)}
            row["parent"] = base + stack[-1] if stack else -1
            if mark in ("instant", "value"):
                row["kind"] = mark
            if mark == "value":
                row["value"] = value
            if mark in ("begin", "async"):
                (stack if mark == "begin" else flying).append(len(rows))
            rows.append(row)
    for row in stack + flying:
        close(row)
        rows[row]["open"] = True
    rank, device, launch, block, warp, lane = identity
    place = {"rank": rank, "device": device, "launch": launch, "block": block, "warp": warp, "lane": lane}
    place |= {"sm": (block + warp) % 132, "kernel": f"kernel_{launch}"}
    return [Span(**row, **place, cycles=base + at) for at, row in enumerate(rows)]
