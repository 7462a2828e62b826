"""A thread tells of kernels that do not end, while the main thread is blocked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import warplens as wl
from tests.support.hanging_kernel import HangingDriver, hanging_driver, launch_hanging
from tests.support.run_program import environment
from tests.support.until import until
from warplens.analyse.hang import hangs
from warplens.analyse.rank_hangs import job_hang
from warplens.decode import decode
from warplens.errors import UsageError
from warplens.launch.running_launch import copy_running
from warplens.launch.weaving_options import weaving
from warplens.options import Options
from warplens.profiling import hang_watch
from warplens.profiling.hang_watch import HangWatch
from warplens.profiling.profile import Profile
from warplens.record.capture import Capture
from warplens.record.layout import Kind
from warplens.record.track_writer import TrackWriter


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[HangingDriver]:
    with hanging_driver(monkeypatch) as fake:
        yield fake


def test_a_launch_that_takes_longer_than_the_watch_is_told_of_while_it_runs(
    driver: HangingDriver, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.warplens"
    with wl.profile(path, watch=0.2) as prof:
        launch = launch_hanging(driver)
        assert until(path.exists)
        (hang,) = hangs(wl.load(path))
        assert launch.in_flight, "the trace was written while the kernel ran"
        assert hang.running == 10
        assert hang.record.cause == "watch"
        assert hang.record.waited_s >= 0.2
        since = next(group.since_ns for group in hang.groups if group.wait)
        assert since is not None
        assert 0 < since[0] < 20e9
        time.sleep(0.3)
        driver.released.set()
    said = capfd.readouterr().err
    assert said.count("did not end after") == 1, "each launch is told of once"
    assert "barrier 0x40 phase 1: warp 4 has not arrived" in said
    assert f"wrote {path}" in said
    assert not hangs(prof.trace), "it ended in the end"


def test_a_launch_that_ends_in_time_is_not_told_of(driver: HangingDriver, capfd: pytest.CaptureFixture[str]) -> None:
    with wl.profile(watch=0.5):
        launch_hanging(driver)
        time.sleep(0.1)
        driver.released.set()
        time.sleep(1.0)
    assert "did not end" not in capfd.readouterr().err


def test_kill_ends_the_program_after_the_trace_is_written(
    driver: HangingDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes: list[int] = []
    profile = Profile(tmp_path / "t.warplens", watch=5, on_hang="kill")
    now = [0.0]
    with profile:
        watch = HangWatch(profile, profile.path, 0, clock=lambda: now[0], end=codes.append)
        launch_hanging(driver)
        watch.check()
        now[0] = 4.9
        watch.check()
        assert not codes
        now[0] = 5.1
        watch.check()
        assert codes == [1]
        assert (tmp_path / "t.warplens").exists()
        driver.released.set()
    monkeypatch.undo()


def test_a_launch_that_waits_for_another_stream_head_is_not_the_one_that_hangs(driver: HangingDriver) -> None:
    profile = Profile(watch=60)
    with profile:
        first = launch_hanging(driver)
        launch_hanging(driver, started=False)
        watch = HangWatch(profile, None, 0)
        assert [one for one, _ in watch._unfinished()] == [first]
        driver.released.set()


def test_a_rank_whose_records_come_late_writes_how_far_it_got_when_they_are_there(
    driver: HangingDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, now = tmp_path / "t.warplens", [0.0]
    with Profile(path, watch=600) as profile:
        launch_hanging(driver)
        watch = HangWatch(profile, path, 0, in_job=True, clock=lambda: now[0])
        driver.released.set()
        assert until(lambda: profile.run.launches_so_far()[0][0].landed)
        with monkeypatch.context() as late:
            late.setattr(profile, "launches_so_far", lambda live: [])
            for now[0] in (1.0, 602.0, 603.0):
                watch.check()
        assert not path.exists()
        watch.check()
        assert path.exists()


@pytest.mark.parametrize("in_job", [True, False])
def test_a_rank_that_waits_for_another_one_writes_how_far_it_got(
    driver: HangingDriver, tmp_path: Path, in_job: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    path, now = tmp_path / "t.warplens", [0.0]
    with Profile(path, watch=600) as profile:
        launch_hanging(driver)
        watch = HangWatch(profile, path, 0, in_job=in_job, clock=lambda: now[0])
        driver.released.set()
        assert until(lambda: profile.run.launches_so_far()[0][0].landed)
        for now[0] in (1.0, 500.0, 602.0):
            watch.check()
            assert path.exists() == (in_job and now[0] > 601)
        if in_job:
            assert len(wl.load(path))
            watch.profile_ends()
            path.unlink()
        watch._write_progress()
        assert not path.exists(), "the profile writes the whole trace itself"
    assert "did not end" not in capfd.readouterr().err


def test_a_long_track_and_a_ring_come_home_whole(driver: HangingDriver) -> None:
    def many(writer: TrackWriter, block: int, warp: int) -> None:
        for number in range(29):
            writer.record(Kind.BEGIN, 4, 2000 + 10 * number)
            writer.record(Kind.END, 4, 2005 + 10 * number)
        writer.record(Kind.BEGIN, 2, 5000)

    for full in ("stop", "ring"):
        with Profile(watch=60, full=full, records_per_warp=256) as profile:
            launch = launch_hanging(driver, many, full=full)
            copy = copy_running(launch)
            assert copy is not None
            (hang,) = hangs(decode(Capture([copy], profile.device)))
            assert hang.groups[0].regions == ("produce",)
            driver.released.set()
            assert copy_running(launch) is None, "its memory may be used again"
        driver.released.clear()


def test_watched_kernels_store_each_record_at_its_mark() -> None:
    assert weaving(Options(watch=3)).store == "now"
    assert weaving(Options()).store == "auto"


@pytest.mark.parametrize("wrong", [{"watch": 0}, {"watch": -1}, {"watch": "30s"}, {"watch": True}, {"on_hang": "stop"}])
def test_wrong_options_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Options(**wrong)  # type: ignore[arg-type]


def test_records_in_shared_memory_cannot_be_watched() -> None:
    with pytest.raises(UsageError, match="shared"):
        Options(watch=3, buffer="shared")


def test_statistics_on_the_device_cannot_be_watched() -> None:
    with pytest.raises(UsageError, match="aggregate"):
        Options(watch=3, mode="aggregate")


def test_handlers_and_threads_are_gone_after_the_profile(driver: HangingDriver) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.set_wakeup_fd(-1), threading.active_count()
    with wl.profile(watch=1):
        launch_hanging(driver)
        driver.released.set()
        assert signal.getsignal(signal.SIGTERM) is not before[0]
    assert (signal.getsignal(signal.SIGTERM), signal.set_wakeup_fd(-1), threading.active_count()) == before


BLOCKED = """
    import ctypes, sys
    from tests.support.hanging_kernel import HangingDriver, hanging_driver, launch_hanging
    from warplens.driver import libcuda
    from warplens.profiling import hang_watch

    hang_watch.END_AFTER_S = 1.0
    driver = HangingDriver()
    libcuda.driver = lambda: driver
    import warplens as wl

    def hang():
        launch_hanging(driver)
        print("hanging", flush=True)
        block()

    def block():
        lib, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
        lib.pthread_mutex_lock(mutex)
        lib.pthread_mutex_lock(mutex)  # blocks for ever, and no signal interrupts it
"""


def start(folder: Path, text: str, *words: str, **variables: str) -> subprocess.Popen[str]:
    script = folder / "prog.py"
    script.write_text(textwrap.dedent(BLOCKED) + textwrap.dedent(text))
    command, known = [sys.executable, *words, str(script)], {**environment(folder), **variables}
    return subprocess.Popen(command, cwd=folder, env=known, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def signalled(process: subprocess.Popen[str], number: int) -> tuple[float, str]:
    """Send a signal once the kernel hangs; return how long the first word took, and all of stderr."""
    assert process.stdout is not None
    assert process.stderr is not None
    assert "hanging" in process.stdout.readline()
    time.sleep(0.5)
    sent = time.monotonic()
    process.send_signal(number)
    line = process.stderr.readline()
    while line and "did not end" not in line:
        line = process.stderr.readline()
    took = time.monotonic() - sent
    said = line + process.stderr.read()
    process.wait(timeout=240)
    process.stdout.close()
    process.stderr.close()
    return took, said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_a_blocked_program_under_run_names_the_hang_and_ends_it(tmp_path: Path, number: int) -> None:
    process = start(tmp_path, "hang()", "-m", "warplens", "run")
    took, said = signalled(process, number)
    assert process.returncode == 128 + number
    assert took < 5, "within a second on a machine that is not busy"
    assert "warp 4 has not arrived" in said
    assert "the last one or two records of a warp may be missing" in said
    (hang,) = hangs(wl.load(tmp_path / "prog.warplens"))
    assert hang.record.cause == signal.Signals(number).name


def test_a_signal_inside_a_watched_profile_does_the_same(tmp_path: Path) -> None:
    text = """
        with wl.profile("own.warplens", watch=600):
            hang()
    """
    process = start(tmp_path, text)
    _, said = signalled(process, signal.SIGTERM)
    assert process.returncode == 128 + signal.SIGTERM
    assert "may be missing" not in said
    assert hangs(wl.load(tmp_path / "own.warplens"))


def test_a_program_that_ends_while_its_kernel_hangs_is_told_of_too(tmp_path: Path) -> None:
    """The main thread is then blocked in the end of the profile."""
    text = """
        launch_hanging(driver)
        wait = driver.wait
        driver.wait = lambda event: wait(event) if driver.reached(event) else block()
        print("hanging", flush=True)
    """
    process = start(tmp_path, text, "-m", "warplens", "run")
    _, said = signalled(process, signal.SIGTERM)
    assert process.returncode == 128 + signal.SIGTERM
    assert "warp 4 has not arrived" in said


def test_run_watch_kill_ends_the_program_with_one_json_document(tmp_path: Path) -> None:
    import json

    words = ("-m", "warplens", "run", "--json", "--watch", "500ms", "--on-hang", "kill")
    process = start(tmp_path, "hang()", *words)
    out, said = process.communicate(timeout=240)
    assert process.returncode == hang_watch.KILLED
    document = json.loads(out)
    assert document["ended_by"] == "hang"
    assert document["exit_code"] == hang_watch.KILLED
    assert "warp 4 has not arrived" in document["hangs"][0]["groups"][1]["text"]
    assert os.path.exists(document["file"])
    assert "did not end after" in said


def test_a_program_that_is_ended_is_no_longer_found_live(tmp_path: Path) -> None:
    words = ("-m", "warplens", "run", "--live", "--watch", "500ms", "--on-hang", "kill")
    process = start(tmp_path, "hang()", *words)
    _, said = process.communicate(timeout=240)
    assert process.returncode == hang_watch.KILLED
    assert "live view: " in said
    assert not list(tmp_path.glob("*.live"))


def test_with_continue_the_first_signal_tells_and_the_second_ends(tmp_path: Path) -> None:
    process = start(tmp_path, "hang()", "-m", "warplens", "run", "--on-hang", "continue")
    assert process.stdout is not None
    assert process.stderr is not None
    assert "hanging" in process.stdout.readline()
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    while "another signal ends it" not in process.stderr.readline():
        assert process.poll() is None
    time.sleep(0.3)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 130
    process.stderr.close()
    process.stdout.close()


@pytest.mark.slow  # two programs, each of which has to be seen doing nothing for a while
def test_of_two_ranks_the_one_that_hangs_is_told_from_the_one_that_waits_for_it(tmp_path: Path) -> None:
    text = """
        import os
        launch_hanging(driver)
        if os.environ["RANK"] == "0":
            driver.released.set()  # it goes on, and then waits for the other rank on the host
        block()
    """
    words = ("-m", "warplens", "run", "--watch", "500ms", "--skip", "0", "-o", "run.warplens")
    ranks = [start(tmp_path, text, *words, RANK=str(rank), WORLD_SIZE="2") for rank in range(2)]
    try:
        parts = [tmp_path / "run.warplens" / f"rank={rank}" / "part-0.parquet" for rank in range(2)]
        assert until(lambda: all(part.exists() for part in parts), 60)
        # A part is written when a rank starts to wait, too.
        assert until(lambda: job_hang(wl.load(tmp_path / "run.warplens")) is not None, 60)
        job = job_hang(wl.load(tmp_path / "run.warplens"))
    finally:
        for process in ranks:
            process.kill()
            process.communicate()
    assert job is not None
    assert [one.rank for one in job.holding] == [1]
    assert job.lines()[0] == "rank 1 holds up the job: it is in attn (launch 0), in `produce` (attn.py:30)"
    assert job.lines()[1].startswith("rank 0 is outside recorded kernels, after 1 recorded launch")
