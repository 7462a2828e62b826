"""Questions that are answered in one pass over the rows of a trace, so that several of them read its file once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy.typing as npt

from warplens.trace.model import Trace

Array = npt.NDArray[Any]


class RowPass(Protocol):
    """What is added up block by block of whole tracks."""

    def __init__(self, trace: Trace) -> None: ...

    @property
    def columns(self) -> Sequence[str]:
        """The columns that it needs, as `Trace.blocks` gives them."""
        ...

    def add(self, begin: int, end: int, block: Mapping[str, Array]) -> None: ...


T = TypeVar("T", bound=RowPass)


def go_through(trace: Trace, *passes: RowPass, keep: Collection[str] = ()) -> None:
    """Add all rows of a trace to each pass. Columns in `keep` stay in memory, for later use as a whole."""
    names = list(dict.fromkeys([*(name for one in passes for name in one.columns), *keep]))
    for begin, end, columns in trace.blocks(*names, keep=keep):
        block = dict(zip(names, columns, strict=True))
        for one in passes:
            one.add(begin, end, block)


def pass_over(trace: Trace, kind: type[T], *others: type[RowPass], keep: Collection[str] = ()) -> T:
    """The pass of this kind over all rows, made on first use and kept with the trace. `others` that are needed soon are
    made together with it."""
    if kind not in trace.derived:
        kinds: list[type[RowPass]] = [kind, *others]
        new = [one(trace) for one in kinds if one not in trace.derived]
        go_through(trace, *new, keep=keep)
        trace.derived.update({type(one): one for one in new})
    found: T = trace.derived[kind]
    return found
