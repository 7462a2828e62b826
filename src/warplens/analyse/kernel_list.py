"""List which kernels ran, how often, for how long, and whether warplens can mark them."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from warplens.ptx.symbols import plain_name

_LIBRARY = re.compile(
    r"cublas|cudnn|cutlass|nvjet|xmma|cufft|cusparse|cusolver|nccl|flash_(fwd|bwd)|fmha", re.IGNORECASE
)
_TORCH = re.compile(r"\bat(_cuda)?::|\bc10::|torch")


@dataclass(frozen=True)
class ListedKernel:
    """One kernel; times are None where they were not measured, and `reason` says why it cannot be marked."""

    kernel: str
    launches: int
    total_ns: int | None
    mean_ns: float | None
    p50_ns: float | None
    markable: bool
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def list_kernels(
    times: Mapping[str, Sequence[int]], seen: Mapping[str, int], notes: Mapping[str, Sequence[str]]
) -> list[ListedKernel]:
    """Every kernel, the one with the most time first.

    `seen` counts the launches of kernels whose code passed through a front end. Since nothing is woven while listing,
    `notes` on a kernel say why it could not be.
    """
    rows = []
    matched = set()
    for name, durations in times.items():
        known = _known(name, seen)
        matched.add(known)
        noted = "; ".join(notes.get(known or name, ()))
        reason = noted or ("" if known else _reason(name))
        total = sum(durations)
        mean, p50 = total / len(durations), statistics.median(durations)
        rows.append(ListedKernel(known or name, len(durations), total, mean, p50, not reason, reason))
    for name, count in seen.items():
        if name not in matched:
            reason = "; ".join(notes.get(name, ()))
            rows.append(ListedKernel(name, count, None, None, None, not reason, reason))
    return sorted(rows, key=lambda row: (-(row.total_ns or 0), -row.launches))


def _known(name: str, seen: Mapping[str, int]) -> str:
    """The front end's name of a kernel that CUPTI reports: CUPTI shows C++ kernels with their parameters."""
    if name in seen:
        return name
    plain = plain_name(re.sub(r"^void ", "", name).partition("(")[0].partition("<")[0])
    return plain if plain in seen else ""


def _reason(name: str) -> str:
    if _LIBRARY.search(name):
        return "library kernel, compiled ahead of time: it has no PTX to weave marks into"
    if _TORCH.search(name):
        return "PyTorch kernel, compiled ahead of time: it has no PTX to weave marks into"
    return "its PTX did not pass through Triton or a compiler that warplens knows"
