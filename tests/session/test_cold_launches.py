"""`skip="cold"`: the first launch of a variant is left out where others came home, and never otherwise."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.wave_capture import launch_of, waves
from warplens.errors import WarplensError
from warplens.launch.variant import Variant
from warplens.options import COLD, Options
from warplens.record.capture import VARIANT_LAUNCHES, Launch
from warplens.session import Session


class Pending:
    """A launch that is home, or that failed on its way."""

    def __init__(self, launch: Launch, variant: Variant | None, *, fails: bool = False) -> None:
        self._launch, self._fails = launch, fails
        if variant is not None:
            self.variant = variant

    def collect(self) -> Launch:
        if self._fails:
            raise WarplensError("no memory")
        return self._launch


def session_with(*pending: Pending, skip: int | str = COLD) -> Session:
    session = Session(Options(skip=skip))
    for one in pending:
        session.add(one)
    return session


def launches(count: int, grid: int = 2) -> list[Launch]:
    return [launch_of(waves(grid), extra={"number": number}) for number in range(count)]


def variant_of(session: Session, times: int) -> Variant:
    known = session.variant("matmul", "code", (2, 1, 1))
    for _ in range(times):
        session.variants.choose(known)
    return known


@pytest.mark.parametrize(("skip", "kept"), [(COLD, [1, 2]), (0, [0, 1, 2])])
def test_the_first_of_several_is_left_out_and_counted(skip: int | str, kept: list[int]) -> None:
    session = session_with(skip=skip)
    known = variant_of(session, 3)
    for one in launches(3):
        session.add(Pending(one, known))
    found, _ = session.collect()
    assert [one.extra["number"] for one in found] == kept
    assert session.cold_launches == 3 - len(kept)
    assert {one.extra[VARIANT_LAUNCHES] for one in found} == {3}


def test_the_only_launch_that_came_home_stays() -> None:
    session = session_with()
    known = variant_of(session, 2)
    first, second = launches(2)
    session.add(Pending(first, known))
    session.add(Pending(second, known, fails=True))
    found, problems = session.collect()
    assert [one.extra["number"] for one in found] == [0]
    assert problems == ["no memory"]


def test_launches_of_unknown_variants_are_told_apart_by_their_grid() -> None:
    session = session_with(*(Pending(one, None) for one in [*launches(2, grid=2), *launches(1, grid=3)]))
    found, _ = session.collect()
    assert [(one.grid[0], one.extra["number"]) for one in found] == [(2, 1), (3, 0)]


def test_the_interpreter_has_no_cold_launch() -> None:
    session = session_with(*(Pending(replace(one, clock="cpu"), None) for one in launches(2)))
    assert len(session.collect()[0]) == 2
