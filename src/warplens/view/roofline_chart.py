"""The roofline chart of a report: one point under the roof, as SVG with logarithmic axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from warplens.analyse.roofline import Roofline
from warplens.wording import digits, percent

WIDTH, HEIGHT, MARGIN = 420.0, 240.0, 44.0


def roofs(placed: Sequence[Roofline], letters: Sequence[str]) -> list[dict[str, Any]]:
    """The template's data for each kernel under its roof."""
    several = len(placed) > 1
    return [_roof(one, letter if several else "") for one, letter in zip(placed, letters, strict=False)]


def _roof(one: Roofline, letter: str) -> dict[str, Any]:
    roof = one.ceilings
    compute = f"{digits(one.tflops)} of {digits(roof.tflops)} TFLOP/s ({roof.dtype})" if one.tflops else "not given"
    memory = f"{digits(one.bandwidth)} of {digits(roof.bandwidth)} GB/s" if one.bandwidth else "not given"
    intensity = f"{digits(one.intensity)} FLOP/byte, ridge at {digits(roof.ridge)}" if one.intensity else "unknown"
    facts = [
        ("bound", one.bound),
        ("share of the roof", percent(one.of_roof)),
        ("compute", compute),
        ("memory", memory),
        ("intensity", intensity),
    ]
    return {
        "letter": letter,
        "what": one.what,
        "facts": facts,
        "advice": one.advice,
        "source": f"{roof.device}: {roof.source}",
        "chart": _chart(one, one.intensity, one.tflops) if one.intensity and one.tflops else None,
    }


def _chart(one: Roofline, intensity: float, tflops: float) -> dict[str, Any]:
    """The roof, the point and the labelled decades, in the coordinates of the picture."""
    roof = one.ceilings
    low = math.floor(math.log10(min(intensity, roof.ridge) / 4))
    high = math.ceil(math.log10(max(intensity, roof.ridge) * 4))
    top = math.ceil(math.log10(roof.tflops * 1.2))
    bottom = math.floor(math.log10(min(tflops, roof.bandwidth / 1000 * 10.0**low)))

    def x(value: float) -> float:
        return round(MARGIN + (math.log10(value) - low) / (high - low) * (WIDTH - 2 * MARGIN), 1)

    def y(value: float) -> float:
        return round(HEIGHT - MARGIN - (math.log10(value) - bottom) / (top - bottom) * (HEIGHT - 2 * MARGIN), 1)

    start, end = 10.0**low, 10.0**high
    corners = [(start, roof.bandwidth / 1000 * start), (roof.ridge, roof.tflops), (end, roof.tflops)]
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "left": MARGIN,
        "right": WIDTH - MARGIN,
        "base": HEIGHT - MARGIN,
        "roof": " ".join(f"{x(across)},{y(up)}" for across, up in corners),
        "point": (x(intensity), y(tflops)),
        "columns": [(x(10.0**power), f"{10.0**power:g}") for power in range(low, high + 1)],
        "rows": [(y(10.0**power), f"{10.0**power:g}") for power in range(bottom, top + 1)],
    }
