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


def verdict(found: Findings, kind: str) -> Finding:
    """What is said of one cause, also where it is a consequence."""
    named = [below for one in found for below in (one, *one.consequences)]
    return next(one for one in (*named, *found.undecided, *found.withheld, *found.refuted) if one.kind == kind)
