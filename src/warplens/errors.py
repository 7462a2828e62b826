"""What warplens raises: one message that says what happened, with what value, and what to do next."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class WarplensError(Exception):
    """A failure the user can act on. The CLI prints its text and exits with `exit_code`."""

    exit_code = 1


class UsageError(WarplensError):
    """The request itself was wrong: an unknown name, a value out of range."""

    exit_code = 2


class ThresholdCrossed(WarplensError):
    """A `--fail-on` condition held."""

    exit_code = 3


class CaptureError(WarplensError):
    """A capture or trace file that cannot be read as what it claims to be."""

    def __init__(self, path: object, field: str, problem: str, remedy: str) -> None:
        super().__init__(f"{path}: {field}: {problem}; {remedy}")
        self.path, self.field, self.problem, self.remedy = str(path), field, problem, remedy


def closest(word: str, known: Iterable[str]) -> str:
    """The known name that is most like the word; empty where none is like it."""
    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)), "")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`" (did you mean 'load'?)"`, or the list of what is allowed when nothing is close."""
    names = sorted(set(known))
    if close := closest(word, names):
        return f" (did you mean {close!r}?)"
    if not names:
        return " (there are none)"
    shown = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
    return f" (known: {shown})"
