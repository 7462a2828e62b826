"""A made-up but plausible trace: a persistent, warp-specialised GEMM whose producer feeds two consumers by a ring."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.support.builders import Span, make_trace
from warplens.trace.model import Trace
from warplens.trace.schema import ClockFit, Losses

SMS = 132
STAGES = 3
LOCATIONS = {
    "tile": "gemm.py:31",
    "load": "gemm.py:44",
    "wait empty": "gemm.py:42",
    "wait full": "gemm.py:52",
    "mma": "gemm.py:55",
    "epilogue": "gemm.py:63",
    "store": "gemm.py:68",
}


def gemm(tiles: int = 300, steps: int = 10, sms: int = SMS, slow: float = 1.0, seed: int = 1) -> Trace:
    """`tiles` output tiles over `sms` SMs, `steps` k-steps each; `slow` stretches the loads."""
    rng = random.Random(seed)
    spans: list[Span] = []
    for sm in range(sms):
        now = rng.randint(0, 120)
        lag = 1.25 if sm in (17, 18) else 1.0
        for tile in range(sm, tiles, sms):
            now = _tile(rng, spans, sm, tile, now + 40, steps, slow * lag)
    trace = make_trace(spans, grid=(sms, 1, 1))
    losses = Losses(records_written=2 * len(spans), records_kept=2 * len(spans), tracks=3 * sms)
    clock = ClockFit(
        residual_p50_ns=2.0, residual_p99_ns=11.0, residual_max_ns=19.0, mhz_min=1905.0, mhz_mean=1950.0,
        mhz_max=1980.0, anchors=6 * sms, sms=sms, clocks=sms, step_ns=32.0, method="fitted",
    )  # fmt: skip
    device = {"name": "made-up device", "sm_count": sms, "capability": "9.0"}
    meta = replace(
        trace.meta, losses=losses, clock=clock, devices={"0": device}, locations=LOCATIONS, cost={"slowdown": 1.012}
    )
    return Trace(trace.spans, meta)


def _tile(rng: random.Random, spans: list[Span], sm: int, tile: int, now: int, steps: int, slow: float) -> int:
    """One tile on one SM; returns when its last consumer is done."""

    def mark(region: str, begin: int, end: int, warp: int, **more: object) -> None:
        spans.append(Span(region, begin, end - begin, block=sm, warp=warp, sm=sm, kernel="pipelined_gemm", **more))  # type: ignore[arg-type]

    full, free = [0] * steps, [now] * (steps + STAGES)
    consumed = [now, now]
    done: list[tuple[str, int, int, int]] = []
    at = now
    for step in range(steps):
        begin = max(at, free[step])
        if begin > at:
            done.append(("wait empty", at, begin, 0))
        at = begin + rng.randint(24, 34)
        done.append(("load", begin, at, 0))
        full[step] = at + int(slow * rng.gauss(210, 25))
        for warp in (1, 2):
            start = consumed[warp - 1]
            ready = max(start, full[step] + warp * 6)
            if ready > start:
                done.append(("wait full", start, ready, warp))
            end = ready + rng.randint(128, 150)
            done.append(("mma", ready, end, warp))
            consumed[warp - 1] = end
        free[step + STAGES] = max(consumed)
    mark("tile", now, at, 0)
    spans.append(Span("tile number", now, kind="value", value=float(tile), block=sm, sm=sm, kernel="pipelined_gemm"))
    for region, begin, end, warp in done:
        if warp == 0:
            mark(region, begin, end, 0)
    for warp in (1, 2):
        begin = consumed[warp - 1]
        middle, end = begin + rng.randint(150, 190), begin + rng.randint(330, 420)
        mark("tile", now, end, warp)
        for region, low, high, owner in done:
            if owner == warp:
                mark(region, low, high, warp)
        mark("epilogue", begin, end, warp)
        mark("store", middle, end - 4, warp)
        consumed[warp - 1] = end
    return max(consumed)
