"""Traces of kernels with a known cause, on an H200, for the findings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.support.builders import Span, make_trace
from warplens.analyse.finding import Finding
from warplens.analyse.findings import Findings
from warplens.record.capture import CODE
from warplens.trace.model import Trace

SMS = 132
_DEVICE = {"name": "NVIDIA H200", "capability": "9.0", "sm_count": SMS, "clock_mhz": 1980.0}


def kernel(spans: list[Span], code: dict[str, dict[str, float]] | None = None, **extra: Any) -> Trace:
    """A trace of an H200; `code` is what the weaver counted in each region."""
    made = make_trace(spans)
    more = {**extra, **({CODE: code} if code else {})}
    launches = tuple(replace(info, extra=more) for info in made.meta.launches)
    return Trace(made.spans, replace(made.meta, launches=launches, devices={"0": _DEVICE}))


def loop(parts: dict[str, int], rounds: int = 8, blocks: int = SMS, warps: int = 4) -> list[Span]:
    """Every warp runs the regions one after the other, in rounds; all warps in step."""
    spans = []
    for block in range(blocks):
        for warp in range(warps):
            at = 0
            for _ in range(rounds):
                for region, lasts in parts.items():
                    spans.append(Span(region, at, lasts, block, warp, sm=block % SMS))
                    at += lasts
    return spans


def rounds_with_barrier(work: Any, region: str = "sync") -> list[Span]:
    """Warps that work for `work(round, warp)` and then wait for the slowest of their block."""
    spans = []
    for block in range(SMS):
        at = 0
        for turn in range(10):
            lasts = [int(work(turn, warp)) for warp in range(8)]
            for warp, one in enumerate(lasts):
                spans.append(Span("walk", at, one, block, warp))
                spans.append(Span(region, at + one, max(lasts) - one + 10, block, warp))
            at += max(lasts) + 10
    return spans


def pipeline(load: int, work: int, consumers: int = 4, rounds: int = 16) -> list[Span]:
    """Warp 0 loads two stages ahead; the others work on each stage once it is full."""
    spans = []
    full, freed = [0] * rounds, [0] * rounds
    at = done = 0
    for turn in range(rounds):
        room = freed[turn - 2] if turn >= 2 else 0
        ready = max(at, room) + load
        full[turn], begin = ready, max(done, ready)
        freed[turn] = begin + work
        for block in range(SMS):
            spans.append(Span("wait empty", at, max(room - at, 1), block, 0))
            spans.append(Span("load", max(at + 1, room), load - 1, block, 0))
            for warp in range(1, 1 + consumers):
                spans.append(Span("wait full", done, max(ready - done, 1), block, warp))
                spans.append(Span("mma", max(begin, done + 1), work - 1, block, warp))
        at, done = ready, freed[turn]
    return spans


def verdict(found: Findings, kind: str) -> Finding:
    """What is said of one cause, also where it is a consequence."""
    named = [below for one in found for below in (one, *one.consequences)]
    return next(one for one in (*named, *found.undecided, *found.withheld, *found.refuted) if one.kind == kind)
