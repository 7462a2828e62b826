"""Traces of torch.profiler with damaged bytes and odd JSON."""

from __future__ import annotations

import gzip
import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import warplens as wl
from tests.fuzz.harness import damage, odd_document
from tests.support.paths import GOLDEN
from warplens.analyse.torch.alignment import align
from warplens.analyse.torch.kineto import read_torch
from warplens.analyse.torch.operators import summarise

_EVENTS = 40
"""Consecutive events of the golden trace in each case, wherever they begin."""


def case(draw: random.Random, folder: Path) -> None:
    """Damage a real trace, read it, summarise it and align it."""
    path = folder / draw.choice(("t.json", "t.json.gz"))
    document = _document()
    begin = draw.randrange(max(len(document["traceEvents"]) - _EVENTS, 1))
    document = document | {"traceEvents": document["traceEvents"][begin : begin + _EVENTS]}
    if draw.random() < 0.7:
        made: Any = document
        for _ in range(draw.randint(1, 4)):
            made = odd_document(made, draw) if draw.random() < 0.2 else _odd_event(made, draw)
        text = json.dumps(made).encode()
    else:
        text = damage(json.dumps(document).encode(), draw)
    if path.suffix == ".gz":
        text = gzip.compress(text, 1)
        text = damage(text, draw) if draw.random() < 0.2 else text
    path.write_bytes(text)
    found = read_torch(path)
    summarise(found).to_json()
    align(_trace(), found)


def _odd_event(document: Any, draw: random.Random) -> Any:
    try:
        at = draw.randrange(len(document["traceEvents"]))
        events = list(document["traceEvents"])
        events[at] = odd_document(events[at], draw)
        return document | {"traceEvents": events}
    except (KeyError, TypeError, ValueError):
        return odd_document(document, draw)


@cache
def _document() -> dict[str, Any]:
    with gzip.open(GOLDEN / "torch" / "layer.torch.json.gz") as file:
        document: dict[str, Any] = json.load(file)
    return document


@cache
def _trace() -> wl.Trace:
    return wl.load(GOLDEN / "torch" / "layer.warplens")
