"""Launches are decoded while the program runs: the trace is the one that decoding at the end gives."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import warplens as wl
from tests.support.flown_launches import Direct, Flown, plain_launches
from tests.support.paths import ROOT
from tests.support.until import until
from warplens.decode import decode, decoded_part
from warplens.launch.block_sampler import RankedBlocks
from warplens.launch.collected_run import CollectedRun
from warplens.launch.collector import Collector
from warplens.profiling import background_decoder, profile
from warplens.profiling.background_decoder import BackgroundDecoder
from warplens.profiling.profile import Profile
from warplens.record.capture import Capture, Launch
from warplens.trace import io, row_groups

LAUNCHES = plain_launches(40, blocks=3)
ACTIONS = ["make", "make", "fail", "direct", "land", "land", "work"]
LARGE = plain_launches(4, blocks=40, spans=6)


def collecting(profile: Profile) -> Collector:
    """What brings the launches of a context home, and decodes them in its own thread."""
    return Collector(lambda: False, idle=profile.buffers.idle)


def is_decoded(profile: Profile, launches: int) -> Callable[[], bool]:
    return lambda: len(profile._background._store.sources) == launches


def rows_at_the_end(launches: list[Launch], **options: Any) -> Any:
    """The spans of a profile that decodes nothing before its end."""
    with wl.profile(**options) as prof:
        for launch in launches:
            prof.add(Direct(launch))
    return prof.trace.spans


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_whatever_lands_when_every_launch_is_in_the_trace_once(data: st.DataObject) -> None:
    """Launches that land in any order, fail, are fetched at the end, or have not landed when the profile ends."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(background_decoder, "_PART_LAUNCHES", data.draw(st.integers(1, 4)))
        run, made = CollectedRun(), iter(LAUNCHES)
        background = BackgroundDecoder(run)
        waiting: list[Flown] = []
        for action in data.draw(st.lists(st.sampled_from(ACTIONS), max_size=40)):
            if action == "work":
                background.work()
            elif action == "land" and waiting:
                one = waiting.pop(data.draw(st.integers(0, len(waiting) - 1)))
                one.land([one])
            elif action == "direct":
                run.add(Direct(next(made)))
            elif action in ("make", "fail"):
                waiting.append(Flown(next(made), fails=action == "fail"))
                run.add(waiting[-1])
        decoded = background.stop()
        launches = [launch for _, launch in run.collect()[0]]
    capture = Capture(launches)
    trace, expected = decode(capture, decoded=decoded), decode(capture)
    assert trace.spans.equals(expected.spans)
    assert trace.meta == expected.meta


def test_launches_are_decoded_once_and_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    original = decoded_part.read_windows
    monkeypatch.setattr(
        decoded_part, "read_windows", lambda launches, mhz: counted.append(len(launches)) or original(launches, mhz)
    )
    with wl.profile() as prof:
        collector = collecting(prof)
        for launch in LAUNCHES:
            one = Flown(launch)
            prof.add(one)
            collector.add(one)
        assert until(is_decoded(prof, len(LAUNCHES)))
        before = list(counted)
        collector.close()
    assert sum(before) == len(LAUNCHES)
    assert counted == before
    assert prof.trace.spans.equals(rows_at_the_end(LAUNCHES))


@pytest.mark.parametrize("options", [{}, {"skip": "cold"}, {"trace_bytes": 1 << 16}])
def test_a_program_that_fails_in_mid_run_leaves_the_same_trace(tmp_path: Path, options: dict[str, Any]) -> None:
    """The last launches have not landed, and launches are left out or cut after they were decoded."""
    path = tmp_path / "t.warplens"
    with pytest.raises(ZeroDivisionError), wl.profile(path, **options) as prof:
        collector = collecting(prof)
        for number, launch in enumerate(LARGE * 3):
            one = Flown(launch.noting(raw=launch.raw.copy()), over=number < 10)
            prof.add(one)
            collector.add(one)
        assert until(lambda: len(prof._background._store.sources) == 10 or len(prof._background.ranked) == 10)
        collector.close()
        _ = 1 // 0
    expected = rows_at_the_end(LARGE * 3, **options)
    assert prof.trace.spans.equals(expected)
    assert wl.load(path).spans.equals(expected)


@pytest.mark.parametrize(("options", "late"), [({}, 5), ({"skip": "cold"}, 20)])
def test_columns_are_encoded_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], late: int
) -> None:
    """All but those that need the clock fit or all names. Where a launch is left out afterwards, rows have other
    numbers, and everything is encoded again."""
    monkeypatch.setattr(row_groups, "MOST_ROWS", 101)
    monkeypatch.setattr(row_groups, "_LEAST_ROWS", 50)
    monkeypatch.setattr(io, "_ROWS_AT_ONCE", 8)
    path = tmp_path / "t.warplens"
    encoded: list[tuple[int, int]] = []
    original = io.encode_columns
    monkeypatch.setattr(
        io, "encode_columns", lambda rows: encoded.append((rows.num_rows, rows.num_columns)) or original(rows)
    )
    with wl.profile(path, rank=1, **options) as prof:
        for launch in LAUNCHES:
            one = Flown(launch)
            one.land([one])
            prof.add(one)
        while prof.buffers.idle():
            pass
    groups = pq.read_metadata(path).num_row_groups
    assert groups > 5
    # The last row group may have grown, so that all of its columns are encoded at the end.
    assert sum(columns for _, columns in encoded) == (groups - 1) * late + 20
    read = wl.load(path)
    assert read.spans.equals(prof.trace.spans)
    assert set(read.numpy("rank").tolist()) == {1}
    expected = rows_at_the_end(LAUNCHES, rank=1, **options)
    assert prof.trace.spans.equals(expected)


def test_an_error_in_the_background_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_decoder, "decode_part", lambda *_: 1 // 0)
    with wl.profile() as prof:
        one = Flown(LAUNCHES[0])
        prof.add(one)
        one.land([one])
        assert not prof.buffers.idle()
    assert prof.trace.spans.equals(rows_at_the_end(LAUNCHES[:1]))


def test_launches_past_the_size_of_the_trace_are_ranked_instead() -> None:
    """Decoding them would be in vain."""
    run = CollectedRun()
    background = BackgroundDecoder(run, trace_bytes=40_000)
    for launch in LARGE:
        one = Flown(launch)
        one.land([one])
        run.add(one)
        background.work()
    assert not background.stop().sources
    assert {id(launch.raw) for launch in LARGE} == set(background.ranked)
    assert all(isinstance(one, RankedBlocks) for one in background.ranked.values())


def test_a_forked_child_neither_waits_for_the_background_nor_writes(tmp_path: Path) -> None:
    path = tmp_path / "t.warplens"
    with wl.profile(path) as prof:
        collector = collecting(prof)
        for launch in LAUNCHES:
            one = Flown(launch)
            prof.add(one)
            collector.add(one)
        # The thread that has this lock does not exist in the child.
        prof._background._lock.acquire()
        child = os.fork()
        if child:
            prof._background._lock.release()
            assert os.waitpid(child, 0)[1] == 0
            collector.close()
    if not child:
        os._exit(1 if path.exists() or len(prof.trace) else 0)
    assert wl.load(path).spans.equals(rows_at_the_end(LAUNCHES))


PROGRAM = """
    import os, signal, sys, time
    import warplens as wl
    from tests.support.flown_launches import Flown, plain_launches
    from warplens.launch.collector import Collector

    with wl.profile(sys.argv[1]) as prof:
        collector = Collector(lambda: False, idle=prof.buffers.idle)
        for launch in plain_launches(8, blocks=3):
            one = Flown(launch)
            prof.add(one)
            collector.add(one)
        while not prof._background._store.sources:
            time.sleep(0.001)
        {leave}
"""


@pytest.mark.parametrize(("leave", "spans"), [("sys.exit(5)", 192), ("os.kill(os.getpid(), signal.SIGKILL)", 0)])
def test_a_program_that_leaves_in_mid_run_has_its_whole_file_or_none(tmp_path: Path, leave: str, spans: int) -> None:
    path = tmp_path / "t.warplens"
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(PROGRAM.format(leave=leave)))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    done = subprocess.run([sys.executable, str(script), str(path)], env=environment, timeout=120, check=False)
    assert done.returncode == (5 if spans else -9)
    assert (len(wl.load(path)) if path.exists() else 0) == spans
    left = {entry.name for entry in tmp_path.iterdir()}
    assert left == ({"program.py", "t.warplens"} if spans else {"program.py"})


def test_no_garbage_is_collected_while_a_profile_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collection looks at all objects of the program and at those of all launches, while the program waits."""
    states: list[bool] = []
    given = profile.decode
    monkeypatch.setattr(profile, "decode", lambda *a, **named: states.append(gc.isenabled()) or given(*a, **named))
    rows_at_the_end(LAUNCHES[:2])
    assert states == [False]
    assert gc.isenabled()
