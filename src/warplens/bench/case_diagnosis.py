"""Profile one call of a benchmark's case, and diagnose it together with the measured result."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from warplens.analyse.devices import DTYPES
from warplens.analyse.diagnose import Diagnosis, diagnose
from warplens.analyse.known_facts import KnownFacts, ResultCheck
from warplens.analyse.lifetimes import Lifetimes
from warplens.bench.benchmark_case import Case
from warplens.bench.results import ResultRow
from warplens.errors import UsageError
from warplens.profiling.profile import Profile
from warplens.trace.model import Trace


def profile_case(
    make: Callable[..., Case], params: Mapping[str, Any], path: str | os.PathLike[str] | None = None, **options: Any
) -> Trace:
    """Return the trace of one call, after a first call that compiles and warms up."""
    case = make(**params)
    if case.fn is None:
        raise UsageError(f"this combination is skipped: {case.skip}")
    arguments = case.arguments()
    case.fn(*arguments)
    with Profile(path, **options) as profile:
        case.fn(*arguments)
    trace: Trace = profile.trace
    return trace


def diagnose_row(
    trace: Trace, row: ResultRow, kernel: str | None = None, waits: str | None = None, **more: Any
) -> Diagnosis:
    """Diagnose a row with its declared work, its time without marks and the outcome of its check."""
    lives = Lifetimes.of(trace)
    longest = max(lives.variants, key=lambda name: lives.kernel_ns(name) * len(lives.variants[name]), default=None)
    compared = row.tolerance is not None or row.status == "wrong"
    # The declared work is that of a whole call; its time applies to the kernel only if the call is one launch.
    one_launch = len(trace.meta.launches) == 1
    rated = row.dtype in DTYPES
    given = KnownFacts(
        flops=row.flops if rated else None,
        bytes=row.bytes,
        dtype=row.dtype if rated else "fp32",
        time_ns=row.median_ns if one_launch else None,
        checked=ResultCheck(row.note if row.status == "wrong" else "", row.error, row.tolerance) if compared else None,
        work_of=kernel or longest,
        **more,
    )
    return diagnose(trace, kernel=kernel or longest, given=given, waits_like=waits)
