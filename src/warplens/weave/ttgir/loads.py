"""Loads: the warp goes on after a load, and waits where the value is first used.

The loads of one source line are one region, up to and including the operation that first uses what they bring, where
nothing but arithmetic stands between: `load`. Else they are two: `load issue`, and `load wait` at that operation.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from warplens.weave.ttgir.operations import classify, is_free, is_mark, is_open
from warplens.weave.ttgir.tree import Op

_VALUE = re.compile(r"%[\w$.-]+")
_LIGHT = ("arith.", "math.", "ttg.local_alloc", "ttg.local_store", "tt.addptr", "tt.fp_to_fp", "tt.clampf", "tt.gather")
"""What a region may take in beside the wait: it costs little by itself."""


@dataclass(frozen=True)
class Loaded:
    """Operations [start, stop) as one region, called `what`; `op` is the load it is named after."""

    start: int
    stop: int
    what: str
    op: Op


def loads(ops: list[Op], same_line: Callable[[Op, Op], bool], cuts: set[int]) -> list[Loaded]:
    """The regions of a block's loads; none of them crosses a cut."""
    found: list[Loaded] = []
    for group in _groups(ops, same_line, cuts):
        first, last = group[0], group[-1]
        use = _first_use(ops, group)
        if use is None:
            found.append(Loaded(first, last + 1, "load issue", ops[first]))
        elif _clear(ops, last + 1, use, cuts):
            light = ops[use].name.startswith(_LIGHT) and use not in cuts
            found.append(Loaded(first, use + 1 if light else last + 1, "load", ops[first]))
        else:
            found.append(Loaded(first, last + 1, "load issue", ops[first]))
            if ops[use].name.startswith(_LIGHT):
                found.append(Loaded(use, use + 1, "load wait", ops[first]))
    return _apart(found)


def _groups(ops: list[Op], same_line: Callable[[Op, Op], bool], cuts: set[int]) -> list[list[int]]:
    groups: list[list[int]] = []
    for index, op in enumerate(ops):
        if (classify(op) or ("",))[0] != "loads":
            continue
        before = groups[-1][-1] if groups else None
        if (
            before is not None
            and same_line(ops[before], op)
            and _clear(ops, before + 1, index, cuts | {-1})
            and index not in cuts
        ):
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


def _clear(ops: list[Op], start: int, stop: int, cuts: set[int]) -> bool:
    """Whether only arithmetic stands in [start, stop), and no cut."""
    return not any(
        index in cuts or classify(ops[index]) is not None or is_open(ops[index]) or is_mark(ops[index])
        for index in range(start, stop)
    )


def _first_use(ops: list[Op], group: list[int]) -> int | None:
    """The first operation of the block that needs a value the group loads; what is free only passes it on."""
    values = {name for index in group for name in _results(ops[index])}
    for index in range(group[-1] + 1, len(ops)):
        op = ops[index]
        if is_open(op):
            return None
        if values & set(_VALUE.findall(_right(op))):
            if not is_free(op):
                return index
            values |= _results(op)
    return None


def _results(op: Op) -> set[str]:
    left, equals, _ = op.header.partition(" = ")
    return set(_VALUE.findall(left)) if equals and left.startswith("%") else set()


def _right(op: Op) -> str:
    left, equals, right = op.header.partition(" = ")
    return right if equals and left.startswith("%") else op.header


def _apart(found: list[Loaded]) -> list[Loaded]:
    """One operation may be what several loads wait for: it is counted to the one that was issued first."""
    taken: set[int] = set()
    kept = []
    for one in found:
        if one.what != "load wait" or one.start not in taken:
            kept.append(one)
            taken.update(range(one.start, one.stop))
    return kept
