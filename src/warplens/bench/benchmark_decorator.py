"""`@wl.benchmark`: turn a function that returns a case into a sweep over its parameters."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from warplens.analyse.per_kernel import plain
from warplens.bench.benchmark_case import Case
from warplens.bench.measurement_method import Method
from warplens.bench.parameter_axes import Axis, replace_values
from warplens.bench.results import Results, Sweep
from warplens.errors import UsageError, check_name, did_you_mean

DEVICES = ("cuda", "cpu")


@dataclass(frozen=True)
class Benchmark:
    """A sweep: the function that creates each case, and its parameters. Calling it calls the function."""

    make: Callable[..., Case]
    name: str
    x: Axis
    line: Axis | None
    fixed: tuple[Axis, ...]
    baseline: str
    title: str
    device: str
    settings: Mapping[str, Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Case:
        return self.make(*args, **kwargs)

    @property
    def axes(self) -> tuple[Axis, ...]:
        return (self.x, *((self.line,) if self.line else ()), *self.fixed)

    @property
    def sweep(self) -> Sweep:
        line = self.line.name if self.line else ""
        return Sweep(self.name, self.x.name, line, tuple(axis.name for axis in self.fixed), self.baseline, self.title)

    def run(self, axes: Mapping[str, Any] | None = None, *, device: str | None = None, **method: Any) -> Results:
        """Measure every combination of parameters.

        `axes` replaces values, for example `{"seq_len": [1024, 2048], "head_dim": 128}`. `device` is cuda or cpu. The
        other arguments are settings of `warplens.bench.Method`, such as `timer="graph"` or `rel_dev=0.01`.
        """
        from warplens.bench.benchmark_job import BenchmarkJob

        job = BenchmarkJob([self.choose(axes or {})], device=device, **method)
        for _ in job:
            pass
        return job.results()

    def choose(self, chosen: Mapping[str, Any]) -> Benchmark:
        """Return this benchmark with other values of its parameters."""
        x, *rest = replace_values(self.axes, chosen)
        line = rest.pop(0) if self.line else None
        return replace(self, x=x, line=line, fixed=tuple(rest))

    def cases(self) -> Iterator[dict[str, Any]]:
        """Yield each combination of parameters; lines with the same x are adjacent, to run at similar clocks."""
        outer = [*self.fixed, self.x, *((self.line,) if self.line else ())]
        for values in itertools.product(*(axis.values for axis in outer)):
            given = dict(zip((axis.name for axis in outer), values, strict=True))
            yield {axis.name: given[axis.name] for axis in self.axes}


def benchmark(
    *,
    x: str,
    values: Sequence[Any],
    lines: Mapping[str, Sequence[Any]] | None = None,
    fixed: Mapping[str, Any] | None = None,
    choices: Mapping[str, Sequence[Any]] | None = None,
    baseline: Any = None,
    title: str = "",
    device: str = "cuda",
    **method: str | float,
) -> Callable[[Callable[..., Case]], Benchmark]:
    """Turn a function that returns a `wl.Case` into a sweep over its parameters.

    - `x`, `values`: the parameter on the x axis and its values.
    - `lines`: a second parameter, with one line in the plots per value.
    - `fixed`: all other parameters with their default values. Every parameter is an option of `warplens bench FILE.py`.
    - `choices`: the allowed values of a fixed parameter. The parameter of `lines` only takes its declared values.
    - `baseline`: the line that speed-ups are relative to.
    - `device`: `cpu` for functions that run on the CPU.

    The other arguments are settings of `warplens.bench.Method`.

    Import torch inside the function rather than at the top of the file, so that `--list` and usage errors are fast and
    work on any machine.
    """
    check_name(f"unknown device {device!r}", device, DEVICES)
    Method.named(**method)
    allowed = {name: tuple(listed) for name, listed in (choices or {}).items()}
    if lines is not None and len(lines) != 1:
        raise UsageError(f"lines={dict(lines)!r}: expected one parameter, such as lines={{'impl': ['naive', 'flash']}}")
    main = _axis(x, values, allowed)
    line = next((Axis(name, tuple(listed), tuple(listed)) for name, listed in (lines or {}).items()), None)
    others = tuple(_axis(name, (value,), allowed) for name, value in (fixed or {}).items())
    names = [axis.name for axis in (main, *((line,) if line else ()), *others)]
    twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if twice:
        raise UsageError(f"parameter {twice!r} is declared twice in x, lines and fixed")
    for name in allowed:
        check_name(f"choices: no parameter {name!r}", name, names)
    if baseline is not None and (line is None or baseline not in line.values):
        known = map(str, line.values if line else ())
        raise UsageError(f"baseline {baseline!r}: not one of the lines{did_you_mean(str(baseline), known)}")

    def wrap(make: Callable[..., Case]) -> Benchmark:
        _check_signature(make, names)
        name = getattr(make, "__name__", "benchmark")
        text = "" if baseline is None else str(baseline)
        return Benchmark(make, name, main, line, others, text, title or name, device, dict(method))

    return wrap


def _axis(name: str, values: Sequence[Any], allowed: Mapping[str, tuple[Any, ...]]) -> Axis:
    listed = plain(values)  # numpy scalars become Python numbers, which compare equal to parsed ones
    if isinstance(listed, str) or not isinstance(listed, Sequence):
        raise UsageError(f"{name}: values={values!r}: expected a list of values")
    return Axis(name, tuple(listed), allowed.get(name, ()))


def _check_signature(make: Callable[..., Case], names: Sequence[str]) -> None:
    """Raise an error unless the function's parameters match the declared ones."""
    parameters = inspect.signature(make).parameters.values()
    where = getattr(make, "__name__", "the benchmark")
    if not any(one.kind is one.VAR_KEYWORD for one in parameters):
        accepted = [one.name for one in parameters]
        for name in names:
            check_name(f"{where}() has no parameter {name!r}", name, accepted)
    for one in parameters:
        required = one.default is one.empty and one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
        if required and one.name not in names:
            hint = did_you_mean(one.name, names)
            raise UsageError(f"{where}() requires {one.name!r}, which is not declared in x, lines or fixed{hint}")
