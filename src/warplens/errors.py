"""The errors of warplens. Each message says what happened, the value, what is allowed and what to do next."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from typing import TypeVar

from warplens.text import one_line, printable


class WarplensError(Exception):
    """An error that the user can act on. The CLI prints its message and exits with `exit_code`."""

    exit_code = 1

    def __str__(self) -> str:
        """The message; names in it come from files and programs, and must not steer the terminal that shows it."""
        return printable(super().__str__())


E = TypeVar("E", bound=WarplensError)


def without_frames(error: E) -> E:
    """A new copy of the error. An error that is kept must not be the one that was raised: it holds the frames that it
    passed, whose variables, such as the tensors of the program, would stay alive."""
    fresh = type(error).__new__(type(error))
    fresh.args = error.args
    fresh.__dict__.update(error.__dict__)
    return fresh


class UsageError(WarplensError):
    """An invalid request: an unknown name, or a value out of range."""

    exit_code = 2


class ThresholdCrossed(WarplensError):
    """A threshold was crossed, such as a limit of `--fail-on`."""

    exit_code = 3


class CaptureError(WarplensError):
    """A capture or trace file that is not valid."""

    def __init__(self, path: object, field: str, problem: str, remedy: str) -> None:
        super().__init__(one_line(f"{path}: {field}: {problem}; {remedy}"))
        self.path, self.field, self.problem, self.remedy = str(path), field, problem, remedy


def closest(word: str, known: Iterable[str]) -> str:
    """Return the known name closest to the word, or an empty string if none is similar."""
    if not isinstance(word, str):  # a number in the place of a name, as in trace.stats()[0]
        return ""
    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)), "")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `" (did you mean 'load'?)"`, or the list of known names if none is similar."""
    names = sorted(set(known))
    if close := closest(word, names):
        return f" (did you mean {close!r}?)"
    if not names:
        return " (there are none)"
    shown = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
    return f" (known: {shown})"


def check_name(problem: str, name: str, known: Collection[str]) -> None:
    """Raise a `UsageError` with a suggestion unless the name is known."""
    if name not in known:
        raise UsageError(problem + did_you_mean(name, known))
