"""A call tree for Hatchet and Proton's viewer: `proton-viewer -m normalized_cycles out.hatchet`.

Readers add the values of children to each node, so every value is exclusive.
`normalized_cycles` is the sum over launches of the mean over the launch's warps. Open spans have no cycles, as in the
statistics.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from warplens.files import atomic_write
from warplens.trace.arrays import run_starts
from warplens.trace.model import Trace

MAX_DEPTH = 200
"""Deeper spans are added to their ancestor at this depth, since JSON readers recurse."""

Array = npt.NDArray[Any]


def write(trace: Trace, path: Path, *, force: bool = True, annotate: bool | None = None) -> None:
    """Write a `.hatchet`."""
    # Proton's viewer expects the devices as second entry, even if there are none.
    document: list[Any] = [region_tree(trace), {"CUDA": device_table(trace)}]
    with atomic_write(path, force=force) as out:
        out.write(json.dumps(document, separators=(",", ":")).encode())


def region_tree(trace: Trace) -> dict[str, Any]:
    """The root of a tree of kernels and their regions, with exclusive cycles."""
    span = trace.of_kind("span")
    parent = np.where(span, trace.numpy("parent"), -1)
    kernel, kernels = trace.codes("kernel")
    region, regions = trace.codes("region")
    roots = [new_node(name) for name in kernels]
    nodes: list[dict[str, Any]] = []
    node_of = np.full(len(trace), -1)
    outer, owner = roots, kernel.astype(np.int64)
    level = np.flatnonzero(span & (parent < 0))
    for _ in range(MAX_DEPTH):
        keys, first, member = np.unique(
            owner[level] * len(regions) + region[level], return_index=True, return_inverse=True
        )
        made = [new_node(regions[key % len(regions)]) for key in keys.tolist()]
        for at in np.argsort(first).tolist():
            outer[int(keys[at]) // len(regions)]["children"].append(made[at])
        node_of[level] = len(nodes) + member.reshape(-1)
        nodes += made
        waiting = np.flatnonzero(span & (node_of < 0))
        level = waiting[node_of[parent[waiting]] >= 0]
        if not len(level):
            break
        outer, owner = nodes, np.where(span, node_of[parent], 0)
    for row in np.flatnonzero(span & (node_of < 0)).tolist():
        node_of[row] = node_of[parent[row]]
    _fill(trace, nodes, node_of[span], span)
    return new_node("ROOT", [root for root in roots if root["children"]])


def _fill(trace: Trace, nodes: list[dict[str, Any]], node: Array, span: Array) -> None:
    """Add the exclusive cycles of spans to their nodes."""
    measured = span & ~trace.numpy("open")
    cycles, parent = trace.numpy("dur_cycles"), trace.numpy("parent")
    inner = measured & (parent >= 0)
    spent = np.bincount(parent[inner], cycles[inner], minlength=len(cycles))
    own = np.where(measured, np.maximum(cycles - spent, 0), 0)[span]
    total = np.bincount(node, own, len(nodes))
    average = np.bincount(node, own / _warps(trace)[span], len(nodes))
    for entry, sum_, mean in zip(nodes, total.tolist(), average.tolist(), strict=True):
        entry["metrics"] = {"cycles": int(sum_), "normalized_cycles": mean}


def _warps(trace: Trace) -> Array:
    """The number of recorded warps of each row's launch."""
    track = trace.numpy("track")
    heads = run_starts(track)
    launch = trace.numpy("launch").astype(np.int64) * (1 << 16) + trace.numpy("rank")
    keys, group = np.unique(launch, return_inverse=True)
    return np.bincount(group.reshape(-1)[heads], minlength=len(keys))[group.reshape(-1)]


def new_node(name: str, children: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """A frame of the tree."""
    metrics = {"cycles": 0, "normalized_cycles": 0.0}
    return {"frame": {"name": name, "type": "function"}, "metrics": metrics, "children": children or []}


def device_table(trace: Trace) -> dict[str, dict[str, Any]]:
    """Device information for Proton's viewer, as far as it is known."""
    return {
        str(device.get("index", at)): {
            "arch": str(device.get("capability", "")).replace(".", ""),
            "num_sms": device.get("sm_count", 0),
            "clock_rate": device.get("clock_mhz", 0.0) * 1000,
            "memory_clock_rate": 0,
            "bus_width": 0,
        }
        for at, device in enumerate(trace.meta.devices.values())
    }
