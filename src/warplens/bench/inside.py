"""One call of a case, profiled: what went on inside the kernel that the benchmark timed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from warplens.analyse.devices import DTYPES
from warplens.analyse.diagnose import Diagnosis, KnownFacts, diagnose
from warplens.analyse.kernel_issues import ResultCheck
from warplens.analyse.lifetimes import Lifetimes
from warplens.bench.case import Case
from warplens.bench.results import Row
from warplens.errors import UsageError
from warplens.session import Profile
from warplens.trace.model import Trace


def profile_case(
    make: Callable[..., Case], params: Mapping[str, Any], path: str | os.PathLike[str] | None = None, **options: Any
) -> Trace:
    """The trace of one call after a first one, which compiled and warmed what there is to."""
    case = make(**params)
    if case.fn is None:
        raise UsageError(f"this combination is not measured: {case.skip}")
    arguments = case.arguments()
    case.fn(*arguments)
    with Profile(path, **options) as profile:
        case.fn(*arguments)
    trace: Trace = profile.trace
    return trace


def diagnose_row(trace: Trace, row: Row, kernel: str | None = None, **more: Any) -> Diagnosis:
    """The diagnosis of a benchmark's row: its declared work, its time without marks, and what its check said."""
    lives = Lifetimes.of(trace)
    longest = max(lives.kernels, key=lambda name: lives.kernel_ns(name) * len(lives.kernels[name]), default=None)
    compared = row.tolerance is not None or row.status == "wrong"
    # A call may be several kernels and the time between them; only the whole of it is compared with the work.
    alone = len(trace.meta.launches) == 1
    rated = row.dtype in DTYPES
    given = KnownFacts(
        flops=row.flops if rated else None,
        bytes=row.bytes,
        dtype=row.dtype if rated else "fp32",
        time_ns=row.median_ns if alone else None,
        checked=ResultCheck(row.note if row.status == "wrong" else "", row.error, row.tolerance) if compared else None,
        **more,
    )
    return diagnose(trace, kernel=kernel or longest, given=given)
