"""`@wl.benchmark`: a function of parameters that returns a case becomes a sweep over them."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from warplens.analyse.per_kernel import plain
from warplens.bench.axes import Axis, pick
from warplens.bench.case import Case
from warplens.bench.results import Results, Sweep
from warplens.errors import UsageError, did_you_mean

DEVICES = ("cuda", "cpu")


@dataclass(frozen=True)
class Benchmark:
    """A sweep: the function that makes each case, and the axes. Calling it calls the function."""

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
        """Measure every combination. `axes` replaces values (`{"seq_len": [1024, 2048], "head_dim": 128}`); `device`
        is cuda or cpu; the rest are settings of `warplens.bench.Method`, such as `timer="graph"` or `rel_dev=0.01`."""
        from warplens.bench.run import run

        return run([self.choose(axes or {})], device=device, **method)

    def choose(self, chosen: Mapping[str, Any]) -> Benchmark:
        """The same benchmark with other values of its parameters."""
        x, *rest = pick(self.axes, chosen)
        line = rest.pop(0) if self.line else None
        return replace(self, x=x, line=line, fixed=tuple(rest))

    def cases(self) -> Iterator[dict[str, Any]]:
        """Each combination of parameters: the lines of one x follow each other, so that they meet the same clocks."""
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
    **method: Any,
) -> Callable[[Callable[..., Case]], Benchmark]:
    """Make a sweep of a function that returns a `wl.Case`.

    - `x`, `values`: the main axis; `lines`: one more axis, one line of a plot per value; `fixed`: all other
      parameters with their usual value. Each one is an option of `warplens bench FILE.py`.
    - `choices`: the only values a fixed parameter may take. A line's are always the ones declared.
    - `baseline`: the line that the others' speed-up refers to.
    - `device`: `cpu` for functions that run on the CPU. The rest are settings of `warplens.bench.Method`.

    Import torch inside the function rather than at the top of the file: then `--list` and mistakes on the command line
    are answered at once, on any machine.
    """
    from warplens.bench.method import Method

    if device not in DEVICES:
        raise UsageError(f"device {device!r} is not known{did_you_mean(device, DEVICES)}")
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
        raise UsageError(f"parameter {twice!r} is declared twice, among x, lines and fixed")
    for name in allowed:
        if name not in names:
            raise UsageError(f"choices: no parameter {name!r}{did_you_mean(name, names)}")
    if baseline is not None and (line is None or baseline not in line.values):
        raise UsageError(
            f"baseline {baseline!r}: no such line{did_you_mean(str(baseline), map(str, line.values if line else ()))}"
        )

    def wrap(make: Callable[..., Case]) -> Benchmark:
        _check_signature(make, names)
        name = getattr(make, "__name__", "benchmark")
        text = "" if baseline is None else str(baseline)
        return Benchmark(make, name, main, line, others, text, title or name, device, dict(method))

    return wrap


def _axis(name: str, values: Sequence[Any], allowed: Mapping[str, tuple[Any, ...]]) -> Axis:
    listed = plain(values)  # numpy's numbers as Python's own, which the command line can compare with
    if isinstance(listed, str) or not isinstance(listed, Sequence):
        raise UsageError(f"{name}: values={values!r}: expected a list of values")
    return Axis(name, tuple(listed), allowed.get(name, ()))


def _check_signature(make: Callable[..., Case], names: Sequence[str]) -> None:
    """The function must take what is declared and nothing more."""
    parameters = inspect.signature(make).parameters.values()
    where = getattr(make, "__name__", "the benchmark")
    if not any(one.kind is one.VAR_KEYWORD for one in parameters):
        taken = [one.name for one in parameters]
        for name in names:
            if name not in taken:
                raise UsageError(f"{where}() does not take the parameter {name!r}{did_you_mean(name, taken)}")
    for one in parameters:
        required = one.default is one.empty and one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
        if required and one.name not in names:
            hint = did_you_mean(one.name, names)
            raise UsageError(f"{where}() takes {one.name!r}, which x, lines and fixed do not declare{hint}")
