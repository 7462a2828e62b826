"""Threads of warplens leave a program's signals to the program."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest

from tests.support.hanging_kernel import hanging_driver
from tests.support.persistent_kernel import running_kernel
from warplens.profiling.profile import Profile
from warplens.threads import BackgroundThread


def test_a_background_thread_blocks_signals_that_are_sent_to_the_process() -> None:
    seen: list[set[signal.Signals]] = []
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    thread = BackgroundThread(lambda: seen.append(signal.pthread_sigmask(signal.SIG_BLOCK, [])), "listens to nothing")
    thread.start()
    thread.join()
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM, signal.SIGUSR1} <= seen[0]
    assert not seen[0] & {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGPROF}, "they are about the thread"
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
    assert thread.daemon


def test_no_thread_of_a_profile_takes_the_signals_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the main thread may sleep on after Ctrl-C."""
    own = set(threading.enumerate())
    with (
        hanging_driver(monkeypatch) as driver,
        Profile(tmp_path / "t.warplens", live=True, watch=60, records_per_warp=512),
        running_kernel(driver),
    ):
        started = [one for one in threading.enumerate() if one not in own]
        blocked = {one.name: blocks for one in started if (blocks := _blocked(one)) is not None}
    assert {"warplens-live", "warplens-hang-watch", "warplens-live-server"} <= set(blocked)
    assert all(blocked.values()), blocked


def _blocked(thread: threading.Thread) -> bool | None:
    """Whether a thread blocks SIGINT; None if it has ended meanwhile, as those that answer one request do."""
    try:
        status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    mask = next(line for line in status.splitlines() if line.startswith("SigBlk"))
    return bool(int(mask.split()[1], 16) >> (signal.SIGINT - 1) & 1)
