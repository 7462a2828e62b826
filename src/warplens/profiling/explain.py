"""Sentences about a profile that lost records or recorded nothing, with the remedy."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from warplens.driver import libcuda
from warplens.errors import WarplensError
from warplens.options import Options
from warplens.record.capture import Launch
from warplens.trace.model import Trace


def explain_losses(launches: list[Launch], trace: Trace) -> list[str]:
    """What was lost, and the size that keeps it."""
    losses = trace.meta.losses
    if not losses.records_lost:
        return []
    ringed = any(launch.extra.get("shared_bytes") and launch.full == "ring" for launch in launches)
    remedy = "buffer='global' or full='stop'" if ringed else f"records_per_warp={losses.most_written}"
    return [
        f"{losses.records_lost:,} of {losses.records_written:,} records were lost, their tracks were full; "
        f"{remedy} keeps all of them"
    ]


def explain_no_kernel(options: Options, seen: Mapping[str, int], notes: Mapping[str, Sequence[str]]) -> str:
    """What to say when no kernel was recorded: what ran, and what would have been."""
    if not seen and not _interprets_triton() and (missing := no_gpu()):
        return f"no kernel was profiled: {missing}"
    if not seen:
        return (
            "no kernel was profiled: none that warplens can record was launched; check that the program gets to its "
            "kernels, and that they have marks or auto= (--auto) is given; `warplens run --list-kernels` lists them"
        )
    ran = _listed(seen)
    if options.kernels is not None and not any(options.wants_kernel(kernel) for kernel in seen):
        return f"no kernel was profiled: kernels={options.kernels!r} matches none of those that ran: {ran}"
    if not options.marks and _interprets_triton():
        return f"no kernel was profiled: none of those that TRITON_INTERPRET=1 ran reached a mark in its source: {ran}"
    if not options.marks:
        return f"no kernel was profiled: none of those that ran has marks: {ran}; auto= (--auto) marks them as they are"
    why = "; ".join(f"{kernel}: {text}" for kernel in seen for text in notes.get(kernel, ()))
    return f"no kernel was profiled: no automatic mark could be placed in those that ran: {ran}{why and f'. {why}'}"


def _interprets_triton() -> bool:
    """Whether Triton runs its kernels on the CPU, by the switch that Triton reads."""
    return os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "yes", "on", "y")


def no_gpu() -> str:
    """Say that this machine has no GPU, and what works without one; empty where there is one."""
    try:
        libcuda.driver()
    except WarplensError:
        return (
            "this machine has no NVIDIA GPU; TRITON_INTERPRET=1 runs Triton kernels on the CPU (see `warplens doctor`)"
        )
    return ""


def _listed(seen: Mapping[str, int]) -> str:
    """The kernels that ran, the most often launched first."""
    names = [
        f"{kernel} ({count:,})" if count else kernel for kernel, count in sorted(seen.items(), key=lambda one: -one[1])
    ]
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
