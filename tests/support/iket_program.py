"""examples/cute/iket.py with some of its text changed, and what its trace must hold."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import warplens as wl
from tests.support.paths import EXAMPLES

DROP_IN, REAL = "from warplens.compat import iket", "from cutlass.cute.experimental import iket"
STEPS, N, WARPS = 5, 128, 4


def load(folder: Path, *changes: tuple[str, str], source: Path = EXAMPLES / "cute" / "iket.py") -> ModuleType:
    """The program with some of its text changed."""
    text = source.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    path = folder / f"iket_program_{abs(hash(text))}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def expected(start: Any) -> Any:
    """What the kernel makes of its array."""
    y = start.astype(np.float32)
    for k in range(STEPS):
        y = (y + np.float32(1)) * np.float32(2 if k % 2 == 0 else 1)
    return y - np.float32(1)


def check_trace(trace: wl.Trace) -> None:
    """Every warp has all ranges, marks and payloads, properly nested."""
    rows = trace.spans.to_pylist()
    tracks: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for row in rows:
        tracks.setdefault((row["block"], row["warp"]), []).append(row)
    assert len(tracks) == WARPS
    for found in tracks.values():
        spans = [(row["region"], row["depth"]) for row in found if row["kind"] == "span"]
        steps = [[("K_Tile", 0), ("step 100 %", 1), *([("even", 2)] if k % 2 == 0 else [])] for k in range(STEPS)]
        assert spans == [*(span for step in steps for span in step), ("tail", 0)]
        assert [row["region"] for row in found if row["kind"] == "instant"] == ["start"]
        values = [(row["region"], row["value"]) for row in found if row["kind"] == "value"]
        assert values == [
            ("count", STEPS), ("half", STEPS / 2), *(("step 100 %", k) for k in range(STEPS)),
            ("tail", STEPS - 8), ("tail", STEPS),
        ]  # fmt: skip
    losses = trace.meta.losses
    assert (losses.records_lost, losses.open_spans, losses.orphan_ends, losses.mismatched_ends) == (0, 0, 0, 0)
    assert {row["kernel"] for row in rows} == {"tiles"}
