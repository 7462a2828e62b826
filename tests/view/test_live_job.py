"""The ranks of a job side by side: who is behind, who hangs, who does not answer; what is claimed, and what is not."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.support.live_ranks import announce, collective
from warplens.commands import main
from warplens.errors import WarplensError
from warplens.view.live_address import LiveAddress, address_file, find_address, find_job, rank_addresses
from warplens.view.live_job import ANSWERS, ENDED, GONE, SILENT, JobState, RankView
from warplens.view.live_job_terminal import render_job
from warplens.view.live_page import page
from warplens.view.rank_summary import LiveCollective, RankSummary

NOW = 1000.0
URL = "http://127.0.0.1:80/t/"


def view(rank: int, status: str = ANSWERS, *, made: float = NOW, silent_since: float = 0.0, **known: Any) -> RankView:
    return RankView(LiveAddress(URL, 1, "train", rank, 4), status, RankSummary(**known), made, silent_since)


def said(*ranks: RankView) -> list[str]:
    return list(JobState(1, NOW, "train", ranks, 4).document()["said"])


def in_collective(number: int, ago_s: float = 5.0, **more: Any) -> dict[str, Sequence[LiveCollective]]:
    return {"collectives": [collective(number, ago_s, **more)]}


def test_a_rank_that_others_wait_for_in_a_collective_is_named_with_what_it_does() -> None:
    late = view(
        2, running={"attn": 7.0}, where=["attn: block 7 warp 0: in load"], **in_collective(11, 6.0, inside=False)
    )
    (text,) = said(view(0, **in_collective(12)), view(1, **in_collective(12, 4.0)), late, view(3, **in_collective(12)))
    assert text == (
        "rank 2 is behind: ranks 0-1, 3 have waited 5.00 s for it in all_reduce 12 of group 0-63; "
        "it has run `attn` for 7.00 s (attn: block 7 warp 0: in load)"
    )


@pytest.mark.parametrize(
    ("late", "end"),
    [
        (view(1, GONE, made=NOW - 60), "its process is gone"),
        (view(1, SILENT, made=NOW - 60, silent_since=NOW - 3), "it has not answered for 3.00 s"),
        (view(1, last_launch=("copy", 4.0)), "it runs no recorded kernel, and launched `copy` 4.00 s ago"),
        (view(1), "it has launched no kernel"),
    ],
)
def test_a_late_rank_that_runs_no_kernel_is_explained(late: RankView, end: str) -> None:
    (text,) = said(view(0, **in_collective(0)), late)
    assert text.startswith("rank 1 is behind: rank 0 has waited 5.00 s for it in all_reduce 0")
    assert text.endswith(end)


@pytest.mark.parametrize(
    "other",
    [
        view(1, **in_collective(12, 0.1)),  # it is in it too
        view(1, **in_collective(13, 0.1)),
        view(1, made=NOW - 4.5),  # it may have entered since it was heard of
        view(1, ENDED),
        view(99),  # of no rank of the group
    ],
)
def test_nothing_is_claimed_of_a_rank_that_is_not_known_to_be_late(other: RankView) -> None:
    assert said(view(0, **in_collective(12)), other) == []


def test_in_a_broadcast_only_its_root_is_waited_for() -> None:
    waiting = view(0, **in_collective(3, waits_for="2"))
    (text,) = said(waiting, view(1), view(2))
    assert text.startswith("rank 2 is behind")
    assert said(view(0, **in_collective(3, waits_for="none")), view(1)) == []


def test_a_kernel_that_runs_much_longer_than_on_other_ranks_may_hang() -> None:
    others = [view(rank, launched={"attn": 5}) for rank in (1, 2)]
    stuck = view(0, running={"attn": 9.0}, launched={"attn": 5})
    (text,) = said(stuck, *others)
    assert text.startswith("rank 0 may hang: `attn` has run on it for 9.00 s; of the 2 other ranks")
    assert JobState(1, NOW, "t", [stuck, *others], 4).document()["ranks"][0]["flag"] == "hangs"
    persistent = [view(rank, running={"serve": 60.0 + rank}, launched={"serve": 1}) for rank in range(4)]
    assert said(*persistent) == []
    assert said(stuck, view(1, launched={"other": 3})) == [], "no other rank launches it"
    assert said(view(0, running={"attn": 2.0}, launched={"attn": 5}), *others) == []


def test_times_go_on_while_a_rank_does_not_answer() -> None:
    silent = view(
        3, SILENT, made=NOW - 10, silent_since=NOW - 8, running={"attn": 1.0}, last_launch=("attn", 1.5), launches=7
    )
    (row,) = JobState(1, NOW, "t", [silent], 4).document()["ranks"]
    assert (row["running_s"], row["last_launch_s"], row["silent_s"]) == (11.0, 11.5, 8.0)
    assert said(silent, view(1, GONE), view(2, GONE)) == [
        "rank 3 does not answer",
        "ranks 1-2 were killed or have crashed",
    ]


def test_ranks_that_are_not_shown_are_counted() -> None:
    state = JobState(1, NOW, "t", [view(0)], 1024, (("node2", 8), ("node3", 8)), left_out=3)
    document = state.document()
    assert ("ranks here", "4 of 1,024") in document["facts"]
    assert [text.split(";")[0] for text in document["notes"]] == [
        "ranks of other hosts are not shown (8 on node2, 8 on node3)",
        "3 more ranks of this host not shown",
    ]


def test_the_terminal_has_a_line_for_each_rank(capsys: pytest.CaptureFixture[str]) -> None:
    ranks = [
        view(0, running={"attn[a]": 2.0}, launches=1234, last_launch=("attn[a]", 2.0), **in_collective(12)),
        view(1, SILENT, made=NOW - 3, silent_since=NOW - 2),
        view(2, GONE),
        view(3, ENDED),
    ]
    Console(width=160).print(render_job(JobState(1, NOW, "train", ranks, 4).document()))
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split() for line in lines[-4:]]
    assert rows[0][:5] == ["0", "runs", "attn[a]", "2.00", "s"]
    assert "all_reduce 12 (in it)" in lines[-4]
    assert "1,234" in lines[-4]
    assert [row[:2] for row in rows[1:]] == [["1", "behind"], ["2", "behind"], ["3", "ended"]]


def test_a_summary_comes_back_as_it_was_and_nothing_else_is_one() -> None:
    known = RankSummary(False, 0.5, {"a": 1.5}, {"a": 3}, 3, ("a", 0.1), [collective(3, 0.2)], ["a: block 1"])
    assert RankSummary.from_json(known.to_json()) == known
    document = json.loads(known.to_json())
    wrong: list[Any] = [[], None, 3, {}, {**document, "age_s": "old"}, {**document, "running": [1]}]
    wrong += [{**document, "collectives": [{}]}, {**document, "last_launch": ["a"]}, {**document, "launches": None}]
    for one in wrong:
        with pytest.raises(ValueError, match=r".+"):
            RankSummary.from_json(json.dumps(one).encode())
    for text in (b"", b"\xff", b"[" * 100_000, known.to_json().replace(b"0.5", b"NaN")):
        with pytest.raises(ValueError, match=r".+"):
            RankSummary.from_json(text)


def test_a_folder_stands_for_the_job_in_it_and_a_rank_for_itself(tmp_path: Path) -> None:
    job = tmp_path / "run.warplens"
    files = [announce(job, LiveAddress(URL, os.getpid(), "train", rank, 2), age_s=5) for rank in (0, 1)]
    assert find_job(job) == find_job(tmp_path) == job
    assert find_job(job / "rank=1") is None
    assert find_job(job / "rank=1" / "part-0.parquet") is None
    assert find_job(files[1]) is None
    assert find_address(job / "rank=1").rank == find_address(job / "rank=1" / "part-0.parquet").rank == 1
    alone = address_file(tmp_path / "alone.warplens")
    alone.write_text(json.dumps({"url": URL, "pid": os.getpid(), "program": "alone", "rank": 0}))
    assert find_job(tmp_path) is None, "it began later"
    assert find_address(tmp_path).program == "alone"
    assert find_job(job) == job


def test_a_rank_of_another_host_is_not_asked_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    announce(tmp_path, LiveAddress(URL, os.getpid(), "train", 8, 16, "another boot", "node2"))
    assert find_job(tmp_path) is None
    assert [(one.rank, one.is_here) for one, _ in rank_addresses(tmp_path)] == [(8, False)]
    with pytest.raises(WarplensError, match="one does on node2: run this command there"):
        find_address(tmp_path)
    assert main(["view", "--live", "--terminal", str(tmp_path)]) == 1
    assert main(["view", "--live", "--ranks", "0", str(tmp_path)]) == 2
    assert "--ranks are not supported with --live" in capsys.readouterr().err


def test_the_page_loads_nothing_but_its_states() -> None:
    text = page("job", "<script>alert(1)</script>").decode()
    assert "<script>alert(1)" not in text
    assert "connect-src &#39;self&#39;" in text
