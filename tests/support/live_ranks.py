"""Ranks of a job that show themselves live, all in this process: each has a server and a file, as a profile does."""

from __future__ import annotations

import json
import os
import time
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tests.support.gemm_scene import gemm
from warplens.trace.io import rank_part
from warplens.view.live_address import LiveAddress, address_file
from warplens.view.live_page import ProgramSite
from warplens.view.live_server import LiveServer
from warplens.view.live_state import LiveKernel, LiveState
from warplens.view.rank_summary import LiveCollective

GROUP = "0:0-63"


class LiveRank:
    """A rank in a job's folder; `show` gives its next state."""

    def __init__(self, folder: Path, rank: int, ranks: int, **state: Any) -> None:
        self.state = LiveState(number=1, program="train", trace=gemm(tiles=2, steps=2, sms=2), **state)
        self.server = LiveServer(ProgramSite(self, "train"))
        self.server.start()
        self.address = LiveAddress(self.server.url, os.getpid(), "train", rank, ranks)
        self.file = announce(folder, self.address)
        self._left = ExitStack()
        self._left.callback(self.server.stop)

    def wait(self, after: int, seconds: float) -> LiveState:
        if after >= self.state.number:
            time.sleep(min(seconds, 0.2))
        return self.state

    def show(self, **changed: Any) -> None:
        self.state = replace(self.state, number=self.state.number + 1, made=time.monotonic(), **changed)

    def leave(self) -> None:
        """End as a program does: take the file away, say it, and end the server."""
        self.file.unlink(missing_ok=True)
        self.show(ended=True)
        self._left.close()


def announce(folder: Path, address: LiveAddress, age_s: float = 0.0) -> Path:
    """The file of a rank, written so many seconds ago."""
    file = address_file(rank_part(folder, address.rank))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(asdict(address)))
    os.utime(file, (time.time() - age_s,) * 2)
    return file


def collective(number: int, ago_s: float, *, inside: bool = True, waits_for: str = "all") -> LiveCollective:
    return LiveCollective(GROUP, number, "all_reduce", waits_for, ago_s, inside)


def kernel(name: str, running_s: float | None, launches: int = 10) -> LiveKernel:
    return LiveKernel(name, launches, launches, running_s)
