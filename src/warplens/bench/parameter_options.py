"""Command-line options for the parameters of a benchmark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from warplens.bench.benchmark_decorator import Benchmark
from warplens.bench.parameter_axes import Axis, spellings
from warplens.errors import UsageError, did_you_mean


def split_file(tokens: Sequence[str]) -> tuple[str, list[str]]:
    """Return the benchmark or result file among these arguments, and the other arguments."""
    files = [token for token in tokens if not token.startswith("-") and token.lower().endswith((".py", ".json"))]
    if not files:
        stray = [token for token in tokens if not token.startswith("-")]
        raise UsageError(
            f"{stray[0]}: expected a .py file that contains an @wl.benchmark, or a .json file of results"
            if stray
            else "no benchmark file; give a .py file that contains an @wl.benchmark, or use --plot or --compare"
        )
    rest = list(tokens)
    rest.remove(files[0])
    return files[0], rest


def apply_options(benchmarks: Sequence[Benchmark], tokens: Sequence[str], own: Iterable[str] = ()) -> list[Benchmark]:
    """Apply options such as `--seq-lengths 128,256`, `--seq-lengths=128,256` or `--causal` to the benchmarks.

    `own` are the verb's own options. They take precedence over a parameter of the same name (which is then set with
    `--param-NAME`), and are included in suggestions.
    """
    reserved = set(own)
    options: dict[str, list[tuple[int, Axis]]] = {}
    for at, one in enumerate(benchmarks):
        for axis in one.axes:
            for option in spellings(axis.name):
                if option not in reserved:
                    options.setdefault(option, []).append((at, axis))
            options.setdefault(f"--param-{axis.name.replace('_', '-')}", []).append((at, axis))
    chosen: list[dict[str, Any]] = [{} for _ in benchmarks]
    left = list(tokens)
    while left:
        option, _, value = left.pop(0).partition("=")
        if not option.startswith("-"):
            raise UsageError(
                f"{option!r}: unexpected argument; separate the values of an option by commas without spaces"
            )
        if option not in options:
            known = {*reserved, *(name for name in options if not name.startswith("--param-"))}
            raise UsageError(f"no such option {option}{did_you_mean(option, known)}")
        axes = options[option]
        if not value:
            flag = axes[0][1].kind is bool and (not left or left[0].startswith("-"))
            if not flag and not left:
                raise UsageError(f"{option}: expected a value")
            value = "true" if flag else left.pop(0)
        for at, axis in axes:
            if axis.name in chosen[at]:
                raise UsageError(f"{option}: {axis.name} was given twice; separate several values by commas")
            chosen[at][axis.name] = axis.parsed(value, option).values
    return [one.choose(values) for one, values in zip(benchmarks, chosen, strict=True)]


def describe_parameters(one: Benchmark) -> list[tuple[str, str, str]]:
    """Return the option, default values and role of each parameter."""
    out = []
    for axis in one.axes:
        role = "x axis" if axis is one.x else "lines" if axis is one.line else "fixed"
        only = f"; one of {', '.join(map(str, axis.allowed))}" if axis.allowed and axis is not one.line else ""
        out.append((spellings(axis.name)[0], ",".join(map(str, axis.values)), role + only))
    return out
