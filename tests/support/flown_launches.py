"""Launches on their way to the host, which land when a test says so."""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.small_launches import small_launches
from warplens.errors import WarplensError
from warplens.record.capture import Launch


def plain_launches(count: int, **given: int) -> list[Launch]:
    """Small launches that can be written to a file."""
    return [launch.noting(extra={"true_ns": None}) for launch in small_launches(count, **given).launches]


class Flown:
    """A launch that lands with its records, or with a problem."""

    def __init__(self, made: Launch, *, over: bool = True, fails: bool = False) -> None:
        self._made, self._fails, self._over = made, fails, over
        self.launch: Launch | None = None
        self.problem: WarplensError | None = None

    def over(self) -> bool:
        return self._over

    def land(self, flights: Sequence[Flown]) -> None:
        for one in flights:
            one._land()

    def _land(self) -> None:
        if self._fails:
            self.problem = WarplensError("it failed")
        else:
            self.launch = self._made

    def collect(self) -> Launch:
        if self.launch is None and self.problem is None:
            self._land()
        if self.problem is not None:
            raise self.problem
        assert self.launch is not None
        return self.launch


class Direct:
    """A launch whose records are fetched when the profile ends."""

    def __init__(self, made: Launch) -> None:
        self._made = made

    def collect(self) -> Launch:
        return self._made
