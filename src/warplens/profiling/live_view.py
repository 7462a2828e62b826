"""The live view of a profile: what looks at its launches, the server that shows them, and the file that tells where."""

from __future__ import annotations

import os
import platform
import sys
from contextlib import ExitStack
from pathlib import Path

from warplens.errors import WarplensError
from warplens.profiling.job_ranks import JobRank
from warplens.profiling.live_feed import LiveFeed
from warplens.session import Session
from warplens.session.host_clock import host_key
from warplens.text import say
from warplens.view.live_address import LiveAddress, announced
from warplens.view.live_page import ProgramSite
from warplens.view.live_server import LiveServer


class LiveView:
    """From `start` to `stop`, which may be called again. `trace` is the file that the profile writes, if it does, and
    `program` what to call the program; its script, by default."""

    def __init__(self, session: Session, trace: Path | None, job: JobRank, program: str = "") -> None:
        program = program or os.path.basename(sys.argv[0]) or "python"
        self.feed = LiveFeed(session, program, job.rank)
        self.server = LiveServer(ProgramSite(self.feed, program))
        self._address = LiveAddress(
            self.server.url, os.getpid(), program, job.rank, job.size, host_key(), platform.node()
        )
        self._trace = trace
        self._ends, self._announced = ExitStack(), ExitStack()

    @property
    def url(self) -> str:
        """Where a browser on this machine finds it."""
        return self.server.url

    def start(self) -> None:
        self.feed.start()
        self._ends.callback(self.server.stop)
        self._ends.callback(self.feed.stop)
        self.server.start()
        if self._trace is not None:
            try:
                self._announced.enter_context(announced(self._trace, self._address))
            except (WarplensError, OSError) as problem:
                say(f"`warplens view --live` will not find this program: {problem}")
        of_rank = f" of rank {self._address.rank}" if self._address.rank else ""
        say(f"live view{of_rank}: {self.url}")

    def withdraw(self) -> None:
        """Let nobody find the program from now on."""
        self._announced.close()

    def stop(self) -> None:
        """Tell the pages that the program has ended, and end the server."""
        self.withdraw()
        self._ends.close()
