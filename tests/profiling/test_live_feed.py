"""The state of a running program: what it says, how old it is, and what becomes of it when the program ends."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import textwrap
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import warplens as wl
from tests.support.hanging_kernel import HangingDriver, hanging_driver
from tests.support.persistent_kernel import ITEM_NS, PersistentKernel, running_kernel
from tests.support.run_program import environment
from warplens.commands import main
from warplens.errors import UsageError, WarplensError
from warplens.launch import followed_launch
from warplens.launch.weaving_options import weaving
from warplens.options import Options
from warplens.profiling import live_feed
from warplens.profiling.live_feed import LiveFeed, rest_after
from warplens.profiling.profile import Profile
from warplens.session.collective_log import CollectiveLog
from warplens.session.host_clock import now_ns as clock_ns
from warplens.view.live_address import address_file, find_address
from warplens.view.live_state import newest_ns

BEGIN = time.time_ns()  # the clocks of GPU and host agree
TICK = 400_000_000


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[HangingDriver]:
    with hanging_driver(monkeypatch) as fake:
        yield fake


def fetch(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return json.loads(answer.read())


def status(url: str, **headers: str) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_running_launch_and_a_finished_one_are_shown_together(driver: HangingDriver) -> None:
    with Profile(watch=60, records_per_warp=2048) as profile:
        feed = LiveFeed(profile, "train.py")
        first = PersistentKernel(driver, name="first").start(BEGIN)
        first.finish(BEGIN + TICK)
        while not first.launch.landed:
            time.sleep(0.01)
        driver.released.clear()
        second = PersistentKernel(driver, name="second", stuck=1).start(BEGIN + TICK)
        try:
            states = []
            for tick in range(2, 8):
                second.advance(BEGIN + tick * TICK)
                states.append(feed.look(lambda now=BEGIN + tick * TICK: now))
        finally:
            driver.released.set()
    last = states[-1]
    assert {kernel.name: (kernel.launches, kernel.recorded) for kernel in last.kernels} == {
        "first": (1, 1),
        "second": (1, 1),
    }
    assert [kernel.name for kernel in last.kernels if kernel.running_s is not None] == ["second"]
    assert [hang.kernel for hang in last.hangs] == ["second"]
    assert [state.records for state in states] == sorted({state.records for state in states}), "it grows each time"
    assert [info.launch for info in last.trace.meta.launches] == [0, 1]
    assert np.unique(last.trace.numpy("launch")).tolist() == [0, 1]
    assert 0 <= BEGIN + 7 * TICK - newest_ns(last.trace) < 2 * ITEM_NS
    regions = {row["name"]: row for row in last.regions()}
    assert sum(row["now"] for row in regions.values()) == 8, "every running warp is in one of them"
    assert regions["compute"]["mean_ns"] == pytest.approx(0.5 * ITEM_NS, rel=0.05)
    assert sum(row.get("share", 0) for row in regions.values()) == pytest.approx(1)


def test_a_summary_has_the_last_launch_and_the_newest_collective(driver: HangingDriver) -> None:
    with Profile(watch=60, records_per_warp=512) as profile:
        feed, profile.collectives = LiveFeed(profile, "train.py"), CollectiveLog()
        profile.collectives.begin("0:0-1", "all_reduce", "all", clock_ns() - 2_000_000_000)
        kernel = PersistentKernel(driver).start(BEGIN)
        profile.run.saw("plain_kernel")
        try:
            feed.look()
            first = feed.state.summary()
            profile.run.saw("plain_kernel")
            second = feed.look().summary()
        finally:
            driver.released.set()
    assert list(first.running) == ["megakernel"]
    assert first.last_launch is not None
    assert first.last_launch[0] == kernel.name
    assert second.last_launch == ("plain_kernel", 0.0), "also one that is not recorded"
    assert (second.launches, dict(second.launched)) == (3, {"megakernel": 1, "plain_kernel": 2})
    (entered,) = second.collectives
    assert (entered.operation, entered.number, entered.inside) == ("all_reduce", 0, True)
    assert 2.0 <= entered.ago_s < 60.0


def test_the_overview_covers_the_whole_run(driver: HangingDriver) -> None:
    """Also what the trace has lost again since then."""
    with Profile(watch=60, full="ring", records_per_warp=512) as profile:
        kernel = PersistentKernel(driver, full="ring").start(BEGIN)
        feed = LiveFeed(profile)
        try:
            for tick in range(1, 40):
                kernel.advance(BEGIN + tick * TICK)
                state = feed.look(lambda now=BEGIN + tick * TICK: now)
        finally:
            driver.released.set()
    warps = state.overview["compute"]
    assert len(warps) * state.bin_ns == pytest.approx(39 * TICK, rel=0.02)
    assert state.overview_begin_ns == pytest.approx(BEGIN, abs=ITEM_NS)
    assert warps.mean() == pytest.approx(0.5 * kernel.blocks * kernel.warps, rel=0.1), "each computes half of the time"


def test_a_region_that_began_before_the_oldest_record_stays_open(
    driver: HangingDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed_launch, "HISTORY_SLOTS", 8 * 400)
    monkeypatch.setattr(followed_launch, "LEAST_SLOTS", 64)
    with Profile(watch=60, full="ring", records_per_warp=512) as profile:
        kernel = PersistentKernel(driver, full="ring").start(BEGIN)
        feed = LiveFeed(profile)
        try:
            for tick in range(1, 40):
                now = BEGIN + tick * TICK
                kernel.advance(now)
                state = feed.look(lambda now=now: now)
                rows = state.trace.codes("region")[0] == state.trace.codes("region")[1].index("persistent loop")
                assert rows.sum() == 8
                assert state.trace.numpy("open")[rows].all()
                assert state.trace.numpy("dur_ns")[rows] == pytest.approx(tick * TICK, rel=0.02)
                assert 0 <= now - newest_ns(state.trace) < 2 * ITEM_NS, "the others are where they were"
                begins = np.sort(state.trace.numpy("start_ns")[~rows])
                assert now - (begins[0] + state.trace.meta.origin_ns) < 400 / 6 * ITEM_NS + 3 * ITEM_NS
        finally:
            driver.released.set()
    assert state.trace.meta.losses.mismatched_ends == 0
    assert len(state.trace) < 8 * 400


def test_numbers_and_times_stay_the_same_when_old_launches_go(
    driver: HangingDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_feed, "RECENT_BYTES", 12_000)
    with Profile(watch=60, records_per_warp=64) as profile:
        feed = LiveFeed(profile)
        for number in range(6):
            driver.released.clear()
            begin = BEGIN + number * TICK
            kernel = PersistentKernel(driver, blocks=1).start(begin)
            kernel.finish(begin + TICK // 2)
            while not kernel.launch.landed:
                time.sleep(0.01)
            state = feed.look(lambda now=begin + TICK: now)
    infos = state.trace.meta.launches
    assert [info.launch for info in infos][-1] == 5
    assert len(infos) < 6, "the oldest were dropped"
    assert state.kernels[0].recorded == 6
    assert state.trace.meta.origin_ns == pytest.approx(BEGIN, abs=ITEM_NS)
    assert infos[-1].begin_ns == pytest.approx(5 * TICK, abs=ITEM_NS)


def test_states_are_less_than_a_second_old(driver: HangingDriver, tmp_path: Path) -> None:
    with Profile(tmp_path / "t.warplens", live=True, full="ring", records_per_warp=1024) as profile:
        assert profile.live is not None
        with running_kernel(driver, full="ring", every_s=0.02):
            ages, lags, after = [], [], 0
            fetch(profile.live.url + "state?after=1")  # modules are loaded for the first one
            for _ in range(5):
                document = fetch(f"{profile.live.url}state?after={after}")
                after = document["number"]
                ages.append(document["age_s"])
                lags.append((time.time_ns() - document["newest_ns"]) / 1e9)
    assert np.median(ages) < 1
    assert np.median(lags) < 1


def test_looks_leave_the_program_time_as_long_as_states_stay_young() -> None:
    for took in (0.0, 0.01, 0.1, 0.2, 0.3):
        assert took + rest_after(took) + took <= 1, "the age of a state when the next one is there"
    assert rest_after(0.01) == pytest.approx(0.39)
    assert rest_after(0.15) == pytest.approx(0.3)
    assert rest_after(5.0) == pytest.approx(0.1)


def test_only_who_knows_the_token_gets_an_answer(driver: HangingDriver, tmp_path: Path) -> None:
    with pytest.raises(WarplensError, match="recorded|kernel"):  # the profile has nothing else to do
        with Profile(tmp_path / "t.warplens", live=True) as profile:
            assert profile.live is not None
            url, token = profile.live.url, profile.live.server.token
            assert url.startswith("http://127.0.0.1:")
            assert (status(url), status(f"{url}state"), status(f"{url}other")) == (200, 200, 404)
            wrong = url.replace(token, token[:-1] + ("A" if token[-1] != "A" else "B"))
            assert (status(wrong), status(f"{wrong}state"), status(url.replace(f"{token}/", ""))) == (403, 403, 403)
            assert status(url, Host="evil.example") == 403
            assert status(f"{url}state?after=x&columns=-3") == 200
            kept = address_file(tmp_path / "t.warplens")
            assert stat.S_IMODE(kept.stat().st_mode) == 0o600
            assert find_address(tmp_path).url == find_address(tmp_path / "t.warplens").url == url
    assert not kept.exists()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url, timeout=5)


def test_the_last_state_says_that_the_program_has_ended(driver: HangingDriver) -> None:
    answers: list[Any] = []
    with Profile(live=True, records_per_warp=512) as profile:
        assert profile.live is not None
        with running_kernel(driver):
            number = fetch(profile.live.url + "state?after=0")["number"]
            url = f"{profile.live.url}state?after={number + 100}"  # waits for a state that will not come
            asking = threading.Thread(target=lambda: answers.append(fetch(url)))
            asking.start()
        before = time.monotonic()
    took = time.monotonic() - before
    asking.join()
    assert answers
    assert took < 20
    assert "warplens-live" not in {thread.name for thread in threading.enumerate()}


def test_a_state_that_cannot_be_made_does_not_end_the_program(
    driver: HangingDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("bad luck")

    monkeypatch.setattr(LiveFeed, "_running", broken)
    with Profile(live=True, records_per_warp=512) as profile:
        assert profile.live is not None
        with running_kernel(driver):
            state = profile.live.feed.wait(0, 20)
            assert state.notes == ("the records could not be read: bad luck",)
    assert len(profile.trace)


PROGRAM = """
    import sys, time
    from tests.support.hanging_kernel import HangingDriver, hanging_driver
    from tests.support.persistent_kernel import running_kernel
    from warplens.calibrate import record_cost
    from warplens.driver import libcuda

    driver = HangingDriver()
    libcuda.driver, record_cost.constants = lambda: driver, dict
    with running_kernel(driver, full="ring"):
        time.sleep(float(sys.argv[1]))
"""


def start(folder: Path, seconds: float) -> subprocess.Popen[str]:
    (folder / "prog.py").write_text(textwrap.dedent(PROGRAM))
    words = [sys.executable, "-m", "warplens", "run", "--live", "--records-per-warp", "1024", "prog.py", str(seconds)]
    return subprocess.Popen(
        words, cwd=folder, env=environment(folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.slow  # a program under `warplens run`, from its start to its end
def test_run_live_is_found_and_drawn_in_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    process = start(tmp_path, 60)
    try:
        address = find_address(tmp_path, 30)
        while not fetch(f"{address.url}state?after=0")["where"]:
            time.sleep(0.1)
        assert main(["view", "--live", "--terminal", str(tmp_path / "prog.warplens")]) == 0
        drawn = capsys.readouterr().out
        assert "megakernel: 8 warps running" in drawn
        assert "block 1 warp 3" in drawn
        assert main(["view", "--live", "--no-browser", str(tmp_path)]) == 0
        assert address.url in capsys.readouterr().err
        process.send_signal(signal.SIGINT)
        begin = time.monotonic()
        while True:
            try:
                fetch(f"{address.url}state?after=0")
            except OSError:
                break
            time.sleep(0.05)
        assert time.monotonic() - begin < 30, "within a second on a machine that is not busy"
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert f"live view: {address.url}" in said
    assert not address_file(tmp_path / "prog.warplens").exists()
    assert len(wl.load(tmp_path / "prog.warplens"))


def test_a_program_that_was_killed_is_not_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    process = start(tmp_path, 60)
    find_address(tmp_path, 30)
    process.kill()
    process.communicate()
    assert address_file(tmp_path / "prog.warplens").exists(), "it could not clean up"
    assert main(["view", "--live", "--terminal", str(tmp_path)]) == 1
    assert "no program shows itself live there" in capsys.readouterr().err


def test_what_live_does_not_go_with_is_refused() -> None:
    with pytest.raises(UsageError, match="live= and buffer='shared'"):
        Options(live=True, buffer="shared")
    with pytest.raises(UsageError, match="live= and mode='aggregate'"):
        Options(live=True, mode="aggregate")
    assert weaving(Options(live=True)).store == "now"


def test_a_forked_child_leaves_the_view_of_its_parent_alone(driver: HangingDriver, tmp_path: Path) -> None:
    with Profile(tmp_path / "t.warplens", live=True, records_per_warp=512) as profile:
        assert profile.live is not None
        with running_kernel(driver):
            child = os.fork()
            if child == 0:
                profile._stop_live()
                os._exit(0)
            os.waitpid(child, 0)
            assert address_file(tmp_path / "t.warplens").exists()
            assert fetch(profile.live.url + "state?after=0")["number"]


JOB_RANK = """
    import os, sys, time
    from tests.support.hanging_kernel import HangingDriver, hanging_driver
    from tests.support.persistent_kernel import running_kernel
    from warplens import session
    from warplens.calibrate import record_cost
    from warplens.driver import libcuda
    from warplens.session.host_clock import now_ns

    driver = HangingDriver()
    libcuda.driver, record_cost.constants = lambda: driver, dict
    log, late = session.active().collectives, os.environ["RANK"] == "1"
    log.begin("0:0-1", "all_reduce", "all", now_ns()).returned = True
    if not late:
        log.begin("0:0-1", "all_reduce", "all", now_ns())
    with running_kernel(driver, full="ring", stuck=1 if late else None):
        time.sleep(60)
"""


@pytest.mark.slow  # two ranks under `warplens run`, from their start to their end
def test_a_job_is_shown_with_all_its_ranks_also_when_one_is_stopped_and_one_is_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "prog.py").write_text(textwrap.dedent(JOB_RANK))
    words = [sys.executable, "-m", "warplens", "run", "--live", "--records-per-warp", "1024", "-o", "job.warplens"]
    ranks = [
        subprocess.Popen(
            [*words, "prog.py"], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=environment(tmp_path) | {"RANK": str(rank), "WORLD_SIZE": "2"},
        )
        for rank in range(2)
    ]  # fmt: skip

    def shown(*wanted: str) -> str:
        begin = time.monotonic()
        while True:
            code = main(["view", "--live", "--terminal", str(tmp_path)])
            drawn = capsys.readouterr().out
            if code == 0 and all(text in drawn for text in wanted):
                return drawn
            assert time.monotonic() - begin < 60, drawn

    try:
        drawn = shown("ranks here 2 of 2", "megakernel", "rank 1 is behind: rank 0 has waited", "(megakernel: ")
        assert "all_reduce 1 (in it)" in drawn
        ranks[1].send_signal(signal.SIGSTOP)
        shown("it has not answered for")
        ranks[1].kill()
        ranks[1].wait()
        shown("its process is gone")
    finally:
        for process in ranks:
            process.kill()
            process.wait()
