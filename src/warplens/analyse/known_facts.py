"""What is known of a kernel beyond its trace: its work, its time without marks, and what other tools measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from warplens.analyse.ncu import NcuKernel
from warplens.analyse.region_counters import RegionCounters


@dataclass(frozen=True)
class ResultCheck:
    """The comparison of a result with its reference: `problem` is empty where the result is correct."""

    problem: str = ""
    error: float | None = None
    tolerance: float | None = None


@dataclass(frozen=True)
class KnownFacts:
    """The work per launch and its type, the time without marks and the expected time, the check of the result, ceilings
    measured on the device, and what Nsight Compute measured. `work_of` names the kernel that the work is of; without
    it, the work is that of the trace's only kernel. `counters` are stalls and counters of regions."""

    flops: float | None = None
    bytes: float | None = None
    dtype: str = "fp16"
    time_ns: float | None = None
    expected_ns: float | None = None
    checked: ResultCheck | None = None
    measured: Mapping[str, float] | None = None
    ncu: tuple[NcuKernel, ...] = ()
    work_of: str | None = None
    counters: tuple[RegionCounters, ...] = ()
