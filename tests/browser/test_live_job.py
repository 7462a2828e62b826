"""The page of a whole job in a real browser: a row for each rank, and a click that leads to the rank's own page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.live_ranks import LiveRank, collective, kernel
from warplens.view.live_job_feed import JobFeed
from warplens.view.live_job_page import JobSite
from warplens.view.live_server import LiveServer


def text(page: Any, rank: int) -> str:
    return str(page.run(f"document.querySelector('[data-rank=\"{rank}\"]').textContent"))


def test_ranks_are_shown_side_by_side_and_each_leads_to_its_own_page(browser: Any, tmp_path: Path) -> None:
    name = "<img src=x onerror=alert(1)>"
    ranks = [
        LiveRank(tmp_path, 0, 3, kernels=[kernel("attn", None)], collectives=[collective(12, 5.0)]),
        LiveRank(
            tmp_path, 1, 3, kernels=[kernel(name, 7.0, 1234)], last_launch=(name, 7.0),
            collectives=[collective(11, 8.0, inside=False)],
        ),
    ]  # fmt: skip
    feed = JobFeed(tmp_path)
    feed.start()
    feed.wait(0, 10.0)
    server = LiveServer(JobSite(feed))
    server.start()
    page = browser.open(server.url, width=1400, height=800)
    try:
        page.wait_for("window.warplensJob && warplensJob.updates > 1")
        assert page.run("[...document.querySelectorAll('#ranks tr')].map((row) => row.dataset.status)") == [
            "answers",
            "behind",
        ]
        assert "all_reduce 12, in it" in text(page, 0)
        assert name in text(page, 1)
        assert "1,234" in text(page, 1)
        assert page.run("document.images.length") == 0
        said = page.run("document.querySelector('#warnings').textContent")
        assert said.startswith("rank 1 is behind: rank 0 has waited")
        ranks.append(LiveRank(tmp_path, 2, 3))
        page.wait_for("document.querySelectorAll('#ranks tr').length === 3", 5)
        ranks[2].leave()
        page.wait_for("document.querySelector('[data-rank=\"2\"]').dataset.status === 'ended'", 5)

        page.run("document.querySelector('[data-rank=\"1\"] a').click()")
        page.wait_for("window.warplensLive && warplensLive.updates > 0 && warplensLive.timeline.trace.count > 0")
        assert page.run("location.href") == f"{server.url}rank/1/"
        assert page.run("document.querySelector('.kernel').textContent") == "train"
        page.run("history.back()")
        page.wait_for("window.warplensJob && warplensJob.updates > 1")
        for rank in ranks[:2]:
            rank.leave()
        page.wait_for("document.getElementById('state').textContent === 'the job has ended'", 10)
        assert page.errors == []
        assert all(address.startswith((server.url, "data:")) for address in page.requests)
    finally:
        page.close()
        server.stop()
        feed.stop()
