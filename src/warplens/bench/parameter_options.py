"""The options that a benchmark's own parameters make on the command line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from warplens.bench.benchmark_decorator import Benchmark
from warplens.bench.parameter_axes import Axis, spellings
from warplens.errors import UsageError, did_you_mean


def split(tokens: Sequence[str]) -> tuple[str, list[str]]:
    """The file among what is left of a command line, and the rest: the one token that is a .py or .json file."""
    files = [token for token in tokens if not token.startswith("-") and token.lower().endswith((".py", ".json"))]
    if not files:
        stray = [token for token in tokens if not token.startswith("-")]
        raise UsageError(
            f"{stray[0]}: expected a .py file with @wl.benchmark in it, or results (.json)"
            if stray
            else "name a .py file with @wl.benchmark in it; or use --plot or --compare with results"
        )
    rest = list(tokens)
    rest.remove(files[0])
    return files[0], rest


def apply(benchmarks: Sequence[Benchmark], tokens: Sequence[str], own: Iterable[str] = ()) -> list[Benchmark]:
    """The benchmarks with the values given by `--seq-lengths 128,256`, `--seq-lengths=128,256` or `--causal`.

    `own` are the verb's other options: they go first when one has the same name as a parameter, and into the hint.
    """
    taken = set(own)
    options: dict[str, list[tuple[int, Axis]]] = {}
    for at, one in enumerate(benchmarks):
        for axis in one.axes:
            for option in spellings(axis.name):
                if option not in taken:
                    options.setdefault(option, []).append((at, axis))
            options.setdefault(f"--param-{axis.name.replace('_', '-')}", []).append((at, axis))
    chosen: list[dict[str, Any]] = [{} for _ in benchmarks]
    left = list(tokens)
    while left:
        option, _, value = left.pop(0).partition("=")
        if not option.startswith("-"):
            raise UsageError(f"{option!r}: what is this? Values follow an option, separated by commas without spaces")
        if option not in options:
            known = {*taken, *(name for name in options if not name.startswith("--param-"))}
            raise UsageError(f"no option {option}{did_you_mean(option, known)}")
        axes = options[option]
        if not value:
            flag = axes[0][1].kind is bool and (not left or left[0].startswith("-"))
            if not flag and not left:
                raise UsageError(f"{option}: a value is missing")
            value = "true" if flag else left.pop(0)
        for at, axis in axes:
            if axis.name in chosen[at]:
                raise UsageError(f"{option}: {axis.name} is given twice; separate several values by commas")
            chosen[at][axis.name] = axis.parsed(value, option).values
    return [one.choose(values) for one, values in zip(benchmarks, chosen, strict=True)]


def describe(one: Benchmark) -> list[tuple[str, str, str]]:
    """Each parameter's option, its usual values and its role."""
    out = []
    for axis in one.axes:
        role = "x axis" if axis is one.x else "lines" if axis is one.line else "fixed"
        only = f"; one of {', '.join(map(str, axis.allowed))}" if axis.allowed and axis is not one.line else ""
        out.append((spellings(axis.name)[0], ",".join(map(str, axis.values)), role + only))
    return out
