"""A thread whose launches are recorded is not late when it wants Python's lock."""

from __future__ import annotations

import ctypes
import sys

import pytest

from tests.support.counting_device import Counting, Scene
from warplens.driver import libcuda
from warplens.launch.short_turns import wait_precisely
from warplens.options import Options
from warplens.session.session import Session

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux delays short waits")
_GET_TIMER_SLACK = 30


def _slack() -> int:
    return int(ctypes.CDLL(None).prctl(_GET_TIMER_SLACK))


def test_short_waits_of_a_launching_thread_end_on_time_until_the_profile_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wait_precisely(False)  # a test before this one may have launched in this thread
    gpu, before = Counting(), _slack()
    monkeypatch.setattr(libcuda, "driver", lambda: gpu)
    scene = Scene()
    scene.lend()
    assert _slack() == 1
    session = Session(Options())
    session.collect()
    assert _slack() == before
    scene.buffers.end_threads()


def test_asking_twice_changes_nothing() -> None:
    wait_precisely(False)
    before = _slack()
    wait_precisely()
    wait_precisely()
    assert _slack() == 1
    wait_precisely(False)
    wait_precisely(False)
    assert _slack() == before
