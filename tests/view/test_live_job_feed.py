"""Many ranks are asked at once: ranks come and go, and one that does not answer holds up nobody."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import webbrowser
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import pytest

from tests.support.live_ranks import LiveRank, announce, collective, kernel
from warplens.commands import main
from warplens.view.live_address import LiveAddress
from warplens.view.live_job import ANSWERS, ENDED, GONE, SILENT, JobState
from warplens.view.live_job_feed import LEFTOVER_S, JobFeed
from warplens.view.live_job_page import JobSite
from warplens.view.live_server import LiveServer


@contextmanager
def following(folder: Path) -> Iterator[JobFeed]:
    feed = JobFeed(folder)
    feed.start()
    try:
        yield feed
    finally:
        feed.stop()


def until(feed: JobFeed, wanted: Callable[[JobState], bool], seconds: float = 10.0) -> float:
    """How long it takes until a state is as wanted."""
    begin = time.monotonic()
    state = feed.state
    while not wanted(state):
        assert time.monotonic() - begin < seconds, [(one.rank, one.status) for one in state.ranks]
        state = feed.wait(state.number, 1.0)
    return time.monotonic() - begin


def statuses(state: JobState) -> dict[int, str]:
    return {one.rank: one.status for one in state.ranks}


def test_a_silent_rank_does_not_hold_up_the_others_or_new_ones(tmp_path: Path) -> None:
    ranks = [LiveRank(tmp_path, rank, 5, kernels=[kernel("attn", 0.1)]) for rank in (0, 1)]
    with socket.create_server(("127.0.0.1", 0)) as mute:  # takes connections, and says nothing
        port = mute.getsockname()[1]
        announce(tmp_path, LiveAddress(f"http://127.0.0.1:{port}/t/", os.getpid(), "train", 2, 5))
        with following(tmp_path) as feed:
            first = feed.wait(0, 5.0)
            assert statuses(first) == {0: ANSWERS, 1: ANSWERS, 2: SILENT}
            ranks.append(LiveRank(tmp_path, 3, 5))
            assert until(feed, lambda state: statuses(state).get(3) == ANSWERS) < 2.5
            ages = []
            for _ in range(2):
                for one in ranks:
                    one.show()
                state = feed.wait(feed.state.number, 2.0)
                ages += [time.monotonic() - view.made for view in state.ranks if view.status == ANSWERS]
            # It would hold up all of them; on a busy machine, one may be late by itself.
            assert median(ages) < 1.5, "the silent rank holds up nobody"
    for one in ranks:
        one.leave()


def test_a_rank_that_ended_may_come_again_and_the_job_ends_with_its_last_rank(tmp_path: Path) -> None:
    ranks = [LiveRank(tmp_path, rank, 2) for rank in (0, 1)]
    with following(tmp_path) as feed:
        feed.wait(0, 5.0)
        ranks[1].leave()
        until(feed, lambda state: statuses(state)[1] == ENDED)
        assert not feed.state.ended
        ranks[1] = LiveRank(tmp_path, 1, 2)  # under another address
        until(feed, lambda state: statuses(state)[1] == ANSWERS)
        for one in ranks:
            one.leave()
        until(feed, lambda state: state.ended)


def test_a_rank_that_is_stopped_is_silent_within_two_seconds_and_a_killed_one_is_gone(tmp_path: Path) -> None:
    rank = LiveRank(tmp_path, 0, 2, collectives=[collective(4, 60.0)])
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        silent = LiveRank(tmp_path, 1, 2, collectives=[collective(3, 60.0, inside=False)])
        announce(tmp_path, LiveAddress(silent.server.url, process.pid, "train", 1, 2))
        with following(tmp_path) as feed:
            assert statuses(feed.wait(0, 5.0)) == {0: ANSWERS, 1: ANSWERS}
            silent.server.stop()
            assert until(feed, lambda state: statuses(state)[1] == SILENT) < 2.0
            process.kill()
            process.wait()
            assert until(feed, lambda state: statuses(state)[1] == GONE) < 2.0
            (said,) = feed.state.document()["said"]
            assert said.startswith("rank 1 is behind: rank 0 has waited")
            assert said.endswith("its process is gone")
    rank.leave()


def test_a_job_that_is_over_before_it_is_looked_at_has_ended(tmp_path: Path) -> None:
    with following(tmp_path) as feed:
        assert feed.wait(0, 5.0).ended


def test_what_an_earlier_job_left_is_not_shown(tmp_path: Path) -> None:
    rank = LiveRank(tmp_path, 0, 2)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    address = LiveAddress("http://127.0.0.1:9/t/", gone.pid, "train", 7, 8)
    announce(tmp_path, address, age_s=2 * LEFTOVER_S)
    (tmp_path / "rank=9").mkdir()
    (tmp_path / "rank=9" / "part-0.parquet.live").write_text("{")
    with following(tmp_path) as feed:
        assert statuses(feed.wait(0, 5.0)) == {0: ANSWERS}
        announce(tmp_path, address)
        until(feed, lambda state: statuses(state).get(7) == GONE)
    rank.leave()


def test_64_ranks_are_shown_at_once(tmp_path: Path) -> None:
    ranks = [LiveRank(tmp_path, rank, 64, kernels=[kernel("attn", 0.1)]) for rank in range(64)]
    with following(tmp_path) as feed:
        begin, used = time.monotonic(), time.process_time()
        assert set(statuses(feed.wait(0, 20.0)).values()) == {ANSWERS}
        assert len(feed.state.ranks) == 64
        while time.monotonic() - begin < 2.0:
            feed.wait(feed.state.number, 1.0)
        share = (time.process_time() - used) / (time.monotonic() - begin)
        assert share < 1.0, "of a processor, for the viewer and all 64 servers together"
        assert set(statuses(feed.state).values()) == {ANSWERS}
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(LiveRank.leave, ranks))


def test_the_command_serves_the_page_until_the_job_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rank, opened = LiveRank(tmp_path / "job.warplens", 0, 2), []

    def open_page(url: str) -> None:
        opened.append(url)
        threading.Thread(target=rank.leave).start()

    monkeypatch.setattr(webbrowser, "open", open_page)
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    assert main(["view", "--live", str(tmp_path)]) == 0
    assert len(opened) == 1
    assert opened[0] != rank.server.url, "it is the page of the job, not of its only rank"
    assert capsys.readouterr().err.endswith("the job has ended\n")


def test_the_pages_of_ranks_are_reached_through_that_of_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # which could not reach this machine
    rank = LiveRank(tmp_path, 3, 8)
    with following(tmp_path) as feed:
        feed.wait(0, 5.0)
        server = LiveServer(JobSite(feed))
        server.start()
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

        def fetch(name: str) -> tuple[int, bytes]:
            try:
                with opener.open(server.url + name, timeout=20) as answer:
                    return answer.status, answer.read()
            except urllib.error.HTTPError as error:
                return error.code, error.read()

        shown = fetch("")[1] + fetch("state?after=0")[1]
        assert b"Ranks" in shown
        assert rank.server.token.encode() not in shown, "the address of a rank stays in this process"
        assert b"live-timeline" in fetch("rank/3/")[1]
        assert b'"program":"train"' in fetch("rank/3/state?after=0")[1]
        assert [fetch(name)[0] for name in ("rank/4/", "rank/3/summary", "rank/3/../state", "other")] == [404] * 4
        rank.server.stop()
        assert fetch("rank/3/")[0] == 502
        server.stop()
