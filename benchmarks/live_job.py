"""The view of a whole job without a GPU: how old is what it shows, what it costs, how soon a stopped rank is told.

Processes of at most 8 ranks each show made-up states that change every 0.4 s. The viewer follows them for some seconds;
then one process is stopped (SIGSTOP). Prints one JSON document.

Run: PYTHONPATH=src:. python -m benchmarks.live_job [--ranks 8,64]
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

STATE_S, FOLLOWED_S, RANKS_PER_PROCESS = 0.4, 8.0, 8


def show_ranks(folder: Path, first: int, count: int, size: int) -> None:
    """Show some ranks until this process is killed."""
    from tests.support.live_ranks import LiveRank, collective, kernel

    ranks = [LiveRank(folder, rank, size, kernels=[kernel("attn", 0.1)]) for rank in range(first, first + count)]
    for number in range(1 << 30):
        for rank in ranks:
            rank.show(last_launch=("attn", 0.1), collectives=[collective(number, 0.1, inside=False)])
        time.sleep(STATE_S)


def measure(ranks: int) -> dict[str, Any]:
    from warplens.view.live_job import ANSWERS
    from warplens.view.live_job_feed import JobFeed

    with tempfile.TemporaryDirectory() as name:
        words = [sys.executable, "-m", "benchmarks.live_job", "--show", name]
        starts = range(0, ranks, RANKS_PER_PROCESS)
        processes = [
            subprocess.Popen([*words, str(first), str(min(RANKS_PER_PROCESS, ranks - first)), str(ranks)])
            for first in starts
        ]
        feed = JobFeed(Path(name))
        feed.start()
        try:
            while sum(one.status == ANSWERS for one in feed.wait(feed.state.number).ranks) < ranks:
                pass
            ages, numbers = [], feed.state.number
            begin, used = time.monotonic(), time.process_time()
            while time.monotonic() - begin < FOLLOWED_S:
                state = feed.wait(feed.state.number)
                ages += [state.now - one.made for one in state.ranks]
            took, spent = time.monotonic() - begin, time.process_time() - used
            numbers = feed.state.number - numbers
            stopped = time.monotonic()
            processes[0].send_signal(signal.SIGSTOP)
            while any(one.status == ANSWERS for one in feed.wait(feed.state.number).ranks[: min(8, ranks)]):
                pass
            silent = time.monotonic() - stopped
            others = [feed.state.now - one.made for one in feed.state.ranks[RANKS_PER_PROCESS:]]
        finally:
            feed.stop()
            for process in processes:
                process.kill()
                process.wait()
    ages.sort()
    return {
        "ranks": ranks,
        "states": numbers,
        "processor": round(spent / took, 3),
        "age_s": [round(ages[len(ages) // 2], 2), round(ages[-1], 2)],
        "stopped_told_after_s": round(silent, 2),
        "age_of_others_then_s": round(max(others, default=0.0), 2),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", default="8,64")
    parser.add_argument("--show", nargs=4)
    given = parser.parse_args()
    if given.show:
        show_ranks(Path(given.show[0]), *map(int, given.show[1:]))
    else:
        print(json.dumps([measure(int(ranks)) for ranks in given.ranks.split(",")], indent=1))
