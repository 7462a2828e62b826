"""A rank notes its clocks and writes its part while it runs, so that a rank that is killed leaves what it had."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import warplens as wl
from tests.support.hanging_kernel import launch_hanging
from tests.support.run_program import environment, program
from tests.support.stamping_driver import StampingDriver
from tests.support.until import until
from warplens.analyse.trace_quality import warnings_of
from warplens.driver import libcuda
from warplens.options import Options
from warplens.profiling import rank_watch
from warplens.record.rank_notes import WALL, RankNotes
from warplens.session import Session
from warplens.trace.io import rank_part, read

KILLED = """
import sys, time
import warplens as wl
from tests.support.hanging_kernel import launch_hanging
from tests.support.stamping_driver import StampingDriver
from warplens.calibrate import record_cost
from warplens.driver import libcuda
from warplens.profiling import rank_watch

driver = StampingDriver()
libcuda.driver = lambda: driver
record_cost.constants = dict
rank_watch.FIRST_PART_S = rank_watch.SAMPLE_S = 0.05
with wl.profile("run.warplens"):
    for _ in range(int(sys.argv[1])):
        launch_hanging(driver, exits=True)
        time.sleep(0.02)
"""


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[StampingDriver]:
    fake = StampingDriver(offset_ns=time.time_ns() - time.monotonic_ns())
    monkeypatch.setattr(libcuda, "driver", lambda: fake)
    from warplens.calibrate import record_cost

    monkeypatch.setattr(record_cost, "constants", dict)
    monkeypatch.setattr(rank_watch, "FIRST_PART_S", 0.05)
    monkeypatch.setattr(rank_watch, "SAMPLE_S", 0.02)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    return fake


def launches_in(part: Path) -> int:
    return len(read(part).meta.launches) if part.exists() else 0


def test_a_part_appears_while_the_rank_runs_and_grows(driver: StampingDriver, tmp_path: Path) -> None:
    part = rank_part(tmp_path / "run.warplens", 1)
    with wl.profile(tmp_path / "run.warplens"):
        launch_hanging(driver, exits=True)
        assert until(lambda: launches_in(part) == 1)
        launch_hanging(driver, exits=True)
        assert until(lambda: launches_in(part) == 2)
        assert len(read(part)) > 0
        first = part.stat().st_mtime_ns
        time.sleep(0.3)
        assert part.stat().st_mtime_ns == first, "nothing new, so nothing is written"
        launch_hanging(driver, exits=True)
    assert launches_in(part) == 3


def test_the_clocks_are_noted_with_their_round_trips(driver: StampingDriver, tmp_path: Path) -> None:
    with wl.profile(tmp_path / "run.warplens") as prof:
        launch_hanging(driver, exits=True)
        time.sleep(0.3)
    (document,) = prof.trace.meta.rank_notes.values()
    notes = RankNotes.from_json(document)
    assert notes.host.key
    assert set(notes.samples) == {WALL, "0"}
    assert len(notes.samples["0"]) > 3
    assert all(one.before_ns < one.after_ns for one in notes.samples["0"])
    wall = {one.clock_ns - one.before_ns for one in notes.samples[WALL]}
    device = {one.clock_ns - one.before_ns for one in notes.samples["0"]}
    assert abs(min(wall) - min(device)) < 50_000_000, "this device counts Unix time"


def test_a_rank_without_a_kernel_says_so_and_does_not_end_the_job(
    driver: StampingDriver, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with wl.profile(tmp_path / "run.warplens") as prof:
        pass
    assert not len(prof.trace)
    assert "rank 1: no kernel was profiled" in capsys.readouterr().err


def test_a_program_that_was_started_alone_notes_nothing(
    driver: StampingDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WORLD_SIZE")
    with wl.profile(tmp_path / "t.warplens") as prof:
        launch_hanging(driver, exits=True)
    assert not prof.trace.meta.rank_notes
    assert not driver.stamped


def test_of_many_samples_the_quicker_ones_stay(driver: StampingDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_watch, "_MOST_SAMPLES", 8)
    watch = rank_watch.RankWatch(Session(Options.of({})), 1, None)
    for _ in range(100):
        watch.sample()
    samples = watch.notes().samples[WALL]
    assert 4 <= len(samples) <= 8
    assert list(samples) == sorted(samples)


def test_a_rank_that_is_killed_leaves_what_it_had_finished(tmp_path: Path) -> None:
    path = program(tmp_path, KILLED)
    ranks = [
        subprocess.Popen(
            [sys.executable, str(path), launches],
            cwd=tmp_path,
            env=environment(tmp_path, RANK=str(rank), WORLD_SIZE="2"),
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, launches in enumerate(["5", "100000"])
    ]
    assert ranks[0].wait(60) == 0, ranks[0].stderr and ranks[0].stderr.read()
    part = rank_part(tmp_path / "run.warplens", 1)
    assert until(lambda: launches_in(part) >= 3)
    ranks[1].send_signal(signal.SIGKILL)
    ranks[1].communicate()
    assert ranks[1].returncode == -signal.SIGKILL
    trace = wl.load(tmp_path / "run.warplens")
    found = [info.rank for info in trace.launches]
    assert found.count(0) == 5, "the other rank ended long before, and waited for nobody"
    assert found.count(1) >= 3
    assert trace.meta.rank_clocks["ranks"].keys() == {"0", "1"}
    (said,) = (line for line in warnings_of(trace) if "not ended" in line)
    assert said.startswith("rank 1 has not ended: killed, or still running")
