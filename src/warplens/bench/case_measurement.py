"""Measure one case: create it, check its result, measure memory and time, and compare it with the roof."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from warplens.analyse.roofline import Ceilings, place
from warplens.bench.backend import Backend, Call, out_of_memory
from warplens.bench.benchmark_case import Case
from warplens.bench.measurement_method import Method
from warplens.bench.result_check import TOLERANCES, check, dtype_name
from warplens.bench.results import ResultRow
from warplens.bench.sample_statistics import deviation, summarise, thinned
from warplens.bench.stopping_rule import collect
from warplens.bench.throttle import throttled
from warplens.errors import UsageError

Roof = Callable[[str], "Ceilings | None"]
"""A function that returns the roof for a type, or None if it is unknown."""

_MIN_WARMUP_CALLS = 3


@dataclass(frozen=True)
class CaseMeasurement:
    """Measures cases on one backend with one method."""

    backend: Backend
    method: Method
    roof: Roof

    def row(self, make: Callable[..., Case], empty: ResultRow) -> ResultRow:
        """Measure `make(**params)`. An error is stored in the row, so that the next case still runs."""
        try:
            return self._row(make, empty)
        except Exception as error:  # the case is the user's own code and may raise anything
            status = "oom" if out_of_memory(error) else "failed"
            text = " ".join(str(error).split())[:200]
            note = "out of memory" if status == "oom" else f"{type(error).__name__}: {text}" if text else repr(error)
            return replace(empty, status=status, note=note)

    def _row(self, make: Callable[..., Case], empty: ResultRow) -> ResultRow:
        before = self.backend.memory()
        case = make(**empty.params)
        if not isinstance(case, Case):
            raise UsageError(f"{empty.benchmark}() returned {type(case).__name__}; expected a wl.Case")
        if case.skip or case.fn is None:
            return replace(empty, status="skipped", note=case.skip)
        work, arguments = case.fn, case.arguments()
        inputs = _less(self.backend.memory(), before)
        reference, unchecked = self._reference(case, arguments)
        first = work(*arguments)
        dtype = dtype_name(case.dtype or empty.params.get("dtype") or _dtype_of(first))
        tolerance = TOLERANCES.get(dtype, 0.0) if case.tolerance is None else case.tolerance
        verdict = check(first, reference, tolerance, self.backend.wide)
        del first
        extra = self._extra(lambda: work(*arguments))
        calls = self.backend.prepare(self._calls(case, arguments), self.method)
        self._warm_up(calls)
        self.backend.clocks()
        turn = itertools.cycle(calls)
        measured = collect(
            lambda count: self.backend.sample(list(itertools.islice(turn, count)), self.method),
            self.method,
            self.backend.seconds,
        )
        readings = self.backend.clocks()
        problem = verdict.problem
        if not problem:
            verdict = check(calls[0](), reference, tolerance, self.backend.wide)
            problem = f"right in the first call, but after timing: {verdict.problem}" if verdict.problem else ""
        series = measured.series
        row = replace(
            empty,
            status="wrong" if problem else "ok",
            note=problem or unchecked,
            unmet=measured.unmet,
            throttled=throttled(readings, series),
            samples=len(series),
            deviation=_finite(deviation(series)),
            dtype=dtype,
            flops=None if case.flops is None else float(case.flops),
            bytes=None if case.bytes is None else float(case.bytes),
            peak_bytes=None if inputs is None or extra is None else inputs + extra,
            extra_bytes=extra,
            error=verdict.error,
            tolerance=None if reference is None else tolerance,
            clock_mhz=(readings[0].mhz, readings[-1].mhz) if readings else None,
            series_ns=thinned(series),
        )
        times: Mapping[str, Any] = summarise(series)
        return self._placed(replace(row, **times))

    def _reference(self, case: Case, arguments: tuple[Any, ...]) -> tuple[Any, str]:
        """Compute the reference before the first call can change the inputs; return it and why it is missing, if so."""
        if not callable(case.reference):
            return case.reference, ""
        try:
            return case.reference(*arguments), ""
        except Exception as error:  # every library has its own error for a lack of memory; others are raised again
            if not out_of_memory(error):
                raise
            self.backend.recover()
            return None, "not checked: the reference ran out of memory"

    def _extra(self, call: Call) -> int | None:
        """Return the additional memory that one call uses at its peak."""
        before = self.backend.memory()
        result = call()
        peak = self.backend.peak()
        del result
        return _less(peak, before)

    def _calls(self, case: Case, arguments: tuple[Any, ...]) -> Sequence[Call]:
        assert case.fn is not None
        sets = [arguments]
        if self.method.cache == "rotate":
            made = case.arguments if callable(case.inputs) else lambda number: self.backend.copy(arguments)
            sets += [made(number) for number in range(1, self.backend.input_sets(arguments))]
        return [_bound(case.fn, one) for one in sets]

    def _warm_up(self, calls: Sequence[Call]) -> None:
        begin = self.backend.seconds()
        for number, call in enumerate(itertools.cycle(calls), 1):
            self.backend.sample([call], self.method)
            spent = self.backend.seconds() - begin
            if spent >= self.method.timeout or (spent >= self.method.warmup and number >= _MIN_WARMUP_CALLS):
                return

    def _placed(self, row: ResultRow) -> ResultRow:
        time = row.median_ns
        if not time or not (row.flops or row.bytes):
            return row
        rates: Mapping[str, Any] = {
            "tflops": row.flops / time / 1000 if row.flops else None,
            "gbps": row.bytes / time if row.bytes else None,
        }
        roof = self.roof(row.dtype)
        # A type without a compute peak, such as int64, is compared with the memory peak only.
        flops = row.flops if roof and roof.dtype == row.dtype else None
        if roof is None or not (flops or row.bytes):
            return replace(row, **rates)
        point = place(row.line or row.benchmark, time, flops, row.bytes, roof)
        return replace(row, **rates, of_roof=point.of_roof, bound=point.bound)


def _bound(work: Callable[..., Any], arguments: tuple[Any, ...]) -> Call:
    return lambda: work(*arguments)


def _dtype_of(result: Any) -> Any:
    first = result[0] if isinstance(result, (tuple, list)) and result else result
    return getattr(first, "dtype", "")


def _less(after: int | None, before: int | None) -> int | None:
    return None if after is None or before is None else after - before


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
