"""The parameters of a benchmark: their declared values, and parsing of values from the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from warplens.errors import UsageError, check_name, did_you_mean

_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_LONG = {"len": "length", "dim": "dimension", "impl": "implementation", "num": "number"}


@dataclass(frozen=True)
class Axis:
    """One parameter: its values, and the allowed values if they are restricted."""

    name: str
    values: tuple[Any, ...]
    allowed: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        if not self.values:
            raise UsageError(f"{self.name}: the list of values is empty; give at least one")
        check_values(self, self.values)

    @property
    def kind(self) -> type:
        """The type of the values: bool, int, float or str; object for others, which cannot be parsed."""
        kinds = {type(value) for value in self.values}
        if kinds <= {int, float} and float in kinds:
            return float
        return kinds.pop() if len(kinds) == 1 else object

    def chosen(self, values: Any) -> Axis:
        """Return this parameter with other values: one value, or a sequence of values."""
        given = tuple(values) if isinstance(values, (list, tuple, range)) else (values,)
        return Axis(self.name, self._checked(given), self.allowed)

    def parsed(self, text: str, option: str) -> Axis:
        """Return this parameter with the comma-separated values in `text`."""
        parts = [part.strip() for part in text.split(",")]
        if not any(parts):
            raise UsageError(f"{option}: no values; give some, such as {_example(self)}")
        return Axis(self.name, self._checked(tuple(self._parse(part, option) for part in parts), option), self.allowed)

    def _parse(self, part: str, option: str) -> Any:
        if self.kind is bool:
            if part.lower() in (*_TRUE, *_FALSE):
                return part.lower() in _TRUE
            raise UsageError(f"{option} {part!r}: expected true or false")
        if self.kind in (int, float):
            try:
                return self.kind(part.replace("_", ""))
            except ValueError:
                what = "a whole number" if self.kind is int else "a number"
                raise UsageError(f"{option} {part!r}: expected {what}, such as {_example(self)}") from None
        if self.kind is str:
            return part
        match = next((value for value in self.allowed or self.values if str(value) == part), None)
        if match is None:
            known = [str(value) for value in self.allowed or self.values]
            raise UsageError(f"{option} {part!r}: unknown value{did_you_mean(part, known)}")
        return match

    def _checked(self, values: tuple[Any, ...], option: str = "") -> tuple[Any, ...]:
        check_values(self, values, option)
        # Parameters whose declared values are all positive are sizes, for which 0 is a mistake.
        positive = self.kind in (int, float) and all(value > 0 for value in self.values)
        for value in values:
            if positive and isinstance(value, (int, float)) and not value > 0:
                raise UsageError(f"{option or self.name} {value}: must be greater than 0")
        return values


def check_values(axis: Axis, values: Sequence[Any], option: str = "") -> None:
    """Raise an error for values that are not allowed or given twice."""
    where = option or axis.name
    for value in values:
        if axis.allowed and value not in axis.allowed:
            known = [str(one) for one in axis.allowed]
            raise UsageError(f"{where} {str(value)!r}: unknown {axis.name}{did_you_mean(str(value), known)}")
    twice = next((value for at, value in enumerate(values) if value in values[:at]), None)
    if twice is not None:
        raise UsageError(f"{where}: {twice} was given twice")


def spellings(name: str) -> tuple[str, ...]:
    """Return the options that set a parameter: for `seq_len`, --seq-len, --seq-lens, --seq-length and --seq-lengths."""
    plain = name.replace("_", "-")
    head, _, last = plain.rpartition("-")
    words = [last, _LONG[last]] if last in _LONG else [last]
    words += [f"{word}es" if word.endswith(("s", "x", "ch", "sh")) else f"{word}s" for word in words]
    if last.endswith("s"):
        words.append(last[:-1])
    joined = [f"--{head}-{word}" if head else f"--{word}" for word in words]
    return tuple(dict.fromkeys([*joined, f"--{name}"]))


def replace_values(axes: Iterable[Axis], chosen: Mapping[str, Any]) -> tuple[Axis, ...]:
    """Return the axes with the values in `chosen`; raise an error for a name that is not a parameter."""
    listed = tuple(axes)
    known = [axis.name for axis in listed]
    for name in chosen:
        check_name(f"no parameter {name!r}", name, known)
    return tuple(axis.chosen(chosen[axis.name]) if axis.name in chosen else axis for axis in listed)


def _example(axis: Axis) -> str:
    return ",".join(str(value) for value in axis.values[:3])
