"""Statistics of what marks record besides time: values, and how often instants were passed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from warplens.analyse.lifetimes import Int, Lifetimes
from warplens.trace.barrier_rows import NO_RECORD

if TYPE_CHECKING:
    from warplens.trace.model import Trace


@dataclass(frozen=True)
class ValueStatistics:
    """The values of one name in one kernel variant, or an instant's passes, which have no value (`kind`).

    `not_finite` counts NaN and Inf, which the other numbers leave out.
    """

    kernel: str
    name: str
    kind: str
    count: int
    not_finite: int = 0
    mean: float | None = None
    std: float | None = None
    p50: float | None = None
    min: float | None = None
    max: float | None = None


_LARGE = 1e150
"""The square of a larger value may not fit a double."""


def recorded_values(trace: Trace, among: Int | None = None) -> Int:
    """The rows of values that the program recorded, without those that barriers left: all, or those among some rows."""
    is_value = trace.of_kind("value")
    rows = np.flatnonzero(is_value) if among is None else among[is_value[among]]
    return rows[trace.numpy("released_by")[rows] == NO_RECORD] if len(rows) else rows


def value_statistics(trace: Trace) -> Sequence[ValueStatistics]:
    """Every value and instant of every kernel variant, in the order of the variants, the most frequent first."""
    rows = {"value": recorded_values(trace), "instant": np.flatnonzero(trace.of_kind("instant"))}
    if not any(len(found) for found in rows.values()):
        return ()
    lives = Lifetimes.of(trace)
    labels, many = list(lives.variants), len(lives.regions)
    out = []
    for kind, found in rows.items():
        key = lives.variant[lives.of_row[found]] * many + lives.region[found]
        order = np.argsort(key, kind="stable")
        keys, starts = np.unique(key[order], return_index=True)
        values = trace.numpy("value")[found[order]]
        for code, part in zip(keys.tolist(), np.split(values, starts[1:]) if len(keys) else (), strict=True):
            kernel, name = labels[code // many], lives.regions[code % many]
            known = part[np.isfinite(part)]
            if kind == "instant" or not len(known):
                lost = 0 if kind == "instant" else len(part)
                out.append(ValueStatistics(kernel, name, kind, len(part), lost))
                continue
            peak = float(np.abs(known).max())
            scale = peak if peak > _LARGE else 1.0
            scaled = known / scale
            out.append(
                ValueStatistics(
                    kernel,
                    name,
                    kind,
                    count=len(part),
                    not_finite=len(part) - len(known),
                    mean=float(scaled.mean()) * scale,
                    std=float(scaled.std()) * scale,
                    p50=float(np.median(scaled)) * scale,
                    min=float(known.min()),
                    max=float(known.max()),
                )
            )
    place = {label: at for at, label in enumerate(labels)}
    return tuple(sorted(out, key=lambda one: (place[one.kernel], -one.count)))
