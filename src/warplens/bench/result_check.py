"""Check a result: no NaN, no Inf, and close to a float64 reference."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

TOLERANCES = {"fp64": 1e-10, "fp32": 1e-4, "tf32": 4e-3, "fp16": 4e-3, "bf16": 3e-2, "fp8": 0.25}
"""The maximum relative error: about eight roundings for types with a short mantissa, long sums for the others."""

_NAMES = {"float64": "fp64", "double": "fp64", "float32": "fp32", "float": "fp32", "float16": "fp16", "half": "fp16"}
_NAMES |= {"bfloat16": "bf16"}


@dataclass(frozen=True)
class CheckResult:
    """`error` is the largest relative error, None without a reference; `problem` is empty if the result is right."""

    error: float | None
    problem: str


def dtype_name(dtype: Any) -> str:
    """Return the short name of a type: `fp16` for torch.float16, `float16` or `half`; unknown names are unchanged."""
    text = str(getattr(dtype, "name", None) or getattr(dtype, "__name__", dtype)).rpartition(".")[2]
    return "fp8" if text.startswith(("float8", "fp8")) else _NAMES.get(text, text)


def check(results: Any, references: Any, tolerance: float, wide: Callable[[Any], Any]) -> CheckResult:
    """Compare one or several results with their references; without references, look only for NaN and Inf.

    The relative error of an element is its absolute error divided by the sum of the reference's magnitude there and the
    root mean square of the whole reference, so that elements near 0 do not give huge errors.
    """
    if results is None:
        return CheckResult(
            None, "the function returned None, but there is a reference" if references is not None else ""
        )
    found, wanted = _parts(results), _parts(references)
    if references is not None and len(found) != len(wanted):
        return CheckResult(None, f"{len(found)} results, but {len(wanted)} in the reference")
    worst: float | None = None
    for at, one in enumerate(found):
        where = f"result {at}: " if len(found) > 1 else ""
        reference = None if references is None else wide(wanted[at])
        try:
            numbers = wide(one)
        except (TypeError, ValueError):
            if reference is None:
                continue
            return CheckResult(worst, f"{where}a {type(one).__name__} cannot be compared with the reference")
        verdict = _one(numbers, reference, tolerance)
        if verdict.error is not None:
            worst = verdict.error if worst is None else max(worst, verdict.error)
        if verdict.problem:
            return CheckResult(worst, where + verdict.problem)
    return CheckResult(worst, "")


def _one(result: Any, reference: Any, tolerance: float) -> CheckResult:
    if reference is not None and tuple(result.shape) != tuple(reference.shape):
        return CheckResult(None, f"shape {tuple(result.shape)}, but the reference has {tuple(reference.shape)}")
    # Use only operators, which numpy, torch and CuPy share; NaN is not equal to itself.
    nan, inf = result != result, abs(result) == math.inf
    if reference is not None:
        nan, inf = nan & (reference == reference), inf & (abs(reference) != math.inf)
    size = math.prod(result.shape)
    for name, bad in (("NaN", nan), ("Inf", inf)):
        count = int(bad.sum())
        if count:
            return CheckResult(None, f"{count:,} of {size:,} values are {name}")
    if reference is None or not size:
        return CheckResult(None, "")
    finite = (reference == reference) & (abs(reference) != math.inf)
    missed = int((~finite & (result != reference) & ((result == result) | (reference == reference))).sum())
    if missed:
        return CheckResult(None, f"{missed:,} of {size:,} values differ where the reference is NaN or Inf")
    right, got = reference[finite], result[finite]
    scale = abs(right) + float((right * right).mean()) ** 0.5 if int(finite.sum()) else abs(right)
    apart = abs(got - right)
    error = float((apart / (scale + (scale == 0))).max()) if int(finite.sum()) else 0.0
    if not error <= tolerance:
        return CheckResult(error, f"relative error {error:.2g}, allowed {tolerance:.2g}")
    return CheckResult(error, "")


def _parts(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)
