"""The parameters of a benchmark: their declared values, and the ones that a user writes on the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from warplens.errors import UsageError, did_you_mean

_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_LONG = {"len": "length", "dim": "dimension", "impl": "implementation", "num": "number"}


@dataclass(frozen=True)
class Axis:
    """One parameter: its values as declared, and the only ones allowed where that is known."""

    name: str
    values: tuple[Any, ...]
    allowed: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        if not self.values:
            raise UsageError(f"{self.name}: no values; give at least one")
        check_values(self, self.values)

    @property
    def kind(self) -> type:
        """What its values are: bool, int, float or str; anything else is only for Python."""
        kinds = {type(value) for value in self.values}
        if kinds <= {int, float} and float in kinds:
            return float
        return kinds.pop() if len(kinds) == 1 else object

    def chosen(self, values: Any) -> Axis:
        """The same parameter with other values, from Python: one, or a sequence of them."""
        given = tuple(values) if isinstance(values, (list, tuple, range)) else (values,)
        return Axis(self.name, self._checked(given), self.allowed)

    def parsed(self, text: str, option: str) -> Axis:
        """The same parameter with the values written in `text`, separated by commas."""
        parts = [part.strip() for part in text.split(",")]
        if not any(parts):
            raise UsageError(f"{option}: no values; write them as {_example(self)}")
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
            raise UsageError(f"{option} {part!r}: no such value{did_you_mean(part, known)}")
        return match

    def _checked(self, values: tuple[Any, ...], option: str = "") -> tuple[Any, ...]:
        check_values(self, values, option)
        # Sizes: whoever declared only positive ones did not mean 0.
        positive = self.kind in (int, float) and all(value > 0 for value in self.values)
        for value in values:
            if positive and isinstance(value, (int, float)) and not value > 0:
                raise UsageError(f"{option or self.name} {value}: must be more than 0")
        return values


def check_values(axis: Axis, values: Sequence[Any], option: str = "") -> None:
    """Refuse values that the benchmark does not know, and values given twice."""
    where = option or axis.name
    for value in values:
        if axis.allowed and value not in axis.allowed:
            known = [str(one) for one in axis.allowed]
            raise UsageError(f"{where} {str(value)!r}: no such {axis.name}{did_you_mean(str(value), known)}")
    twice = next((value for at, value in enumerate(values) if value in values[:at]), None)
    if twice is not None:
        raise UsageError(f"{where}: {twice} is given twice")


def spellings(name: str) -> tuple[str, ...]:
    """The options that set a parameter: `seq_len` is --seq-len, --seq-lens, --seq-length or --seq-lengths."""
    plain = name.replace("_", "-")
    head, _, last = plain.rpartition("-")
    words = [last, _LONG[last]] if last in _LONG else [last]
    words += [f"{word}es" if word.endswith(("s", "x", "ch", "sh")) else f"{word}s" for word in words]
    if last.endswith("s"):
        words.append(last[:-1])
    joined = [f"--{head}-{word}" if head else f"--{word}" for word in words]
    return tuple(dict.fromkeys([*joined, f"--{name}"]))


def pick(axes: Iterable[Axis], chosen: Mapping[str, Any]) -> tuple[Axis, ...]:
    """The axes with other values where given, and an error for a name that none has."""
    listed = tuple(axes)
    known = [axis.name for axis in listed]
    for name in chosen:
        if name not in known:
            raise UsageError(f"no parameter {name!r}{did_you_mean(name, known)}")
    return tuple(axis.chosen(chosen[axis.name]) if axis.name in chosen else axis for axis in listed)


def _example(axis: Axis) -> str:
    return ",".join(str(value) for value in axis.values[:3])
