"""The page of a running job, through which the pages of its ranks are reached, too: one address for all of them."""

from __future__ import annotations

import json
import re
from http.client import HTTPException

from warplens.errors import WarplensError
from warplens.view.live_job_feed import JobFeed
from warplens.view.live_page import page
from warplens.view.live_server import HTML, JSON, LONGEST_WAIT_S, Answer, asked_number
from warplens.view.loopback_client import fetch_loopback


class JobSite:
    """What the server of a job shows."""

    def __init__(self, feed: JobFeed) -> None:
        self._feed = feed

    def warm(self) -> None:
        page("job", "")

    def answer(self, name: str, query: str) -> Answer | None:
        """The page, `state`, or the same of one rank: `rank/3/` and `rank/3/state`."""
        if name == "":
            return Answer(page("job", self._feed.state.program), HTML)
        if name == "state":
            state = self._feed.wait(asked_number(query, "after"), LONGEST_WAIT_S)
            return Answer(json.dumps(state.document(), allow_nan=False).encode(), JSON)
        of_rank = re.fullmatch(r"rank/(\d{1,9})/(state)?", name)
        return self._of_rank(int(of_rank[1]), of_rank[2] or "", query) if of_rank else None

    def _of_rank(self, rank: int, name: str, query: str) -> Answer | None:
        address = next((one.address for one in self._feed.state.ranks if one.rank == rank), None)
        if address is None:
            return None
        try:
            after = asked_number(query, "after")
            return Answer(fetch_loopback(f"{address.url}{name}?after={after}"), JSON if name else HTML)
        except (OSError, HTTPException):
            raise WarplensError(f"rank {rank} does not answer") from None
