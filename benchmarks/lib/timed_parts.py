"""Run the parts of a benchmark, each with a time limit of its own: one that fails, hangs or ends its process does not
take the others with it.

The parts run one after the other in one process, since starting one with torch and a CUDA context takes seconds. Where
a part ends that process or takes too long, the parts behind it run in a new one.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

START_S = 60.0
"""What a process may take to get to its first part."""
_SOFT = 0.8
"""A part that repeats a measurement makes no further round after this share of its limit."""
_STEP_S = 0.05

Part = Callable[[], dict[str, Any]]
Told = Callable[[str, dict[str, Any]], None]


class Clock:
    """How long the part that runs may go on."""

    end = float("inf")

    def left(self) -> float:
        """Seconds."""
        return self.end - time.monotonic()


clock = Clock()


def rounds(most: int, least: int = 1) -> Iterator[int]:
    """Numbers of rounds, `least` of them whatever they take, and no more than there is time for."""
    for number in range(most):
        if number >= least and clock.left() <= 0:
            return
        yield number


def work_off(parts: Mapping[str, Part], limits: Mapping[str, float], folder: Path) -> None:
    """In the process that measures: run parts, and leave what each found in the folder."""
    for name, part in parts.items():
        (folder / f"{name}.began").touch()
        clock.end = time.monotonic() + _SOFT * limits[name]
        began = time.perf_counter()
        try:
            found = part()
        except ImportError as error:
            found = {"not measured": str(error)}
        except Exception:  # one part that fails must not lose the others
            found = {"failed": traceback.format_exc()}
        found = {**found, "part_s": time.perf_counter() - began}
        made = folder / f"{name}.made"
        made.write_text(json.dumps(found, default=str))
        made.rename(folder / f"{name}.json")


def run_parts(
    command: Callable[[Sequence[str]], Sequence[str]],
    limits: Mapping[str, float],
    seconds: float,
    folder: Path,
    tell: Told,
) -> None:
    """Start `command` of the names of parts, which calls `work_off`, until all of `limits` are measured or `seconds`
    are over; tell what each part found."""
    end, left = time.monotonic() + seconds, list(limits)
    while left and time.monotonic() < end:
        process = subprocess.Popen(command(left), start_new_session=True)
        done = 0
        try:
            done = _follow(process, left, limits, folder, end, tell)
        finally:
            _end(process, 5.0 if done == len(left) else 0.0)
        left = left[done:]
    for name in left:
        tell(name, {"not measured": f"{seconds:g} s were over"})


def _follow(
    process: subprocess.Popen[bytes],
    names: Sequence[str],
    limits: Mapping[str, float],
    folder: Path,
    end: float,
    tell: Told,
) -> int:
    """Wait for the parts of one process, up to the first that does not end; return how many are over."""
    for number, name in enumerate(names):
        until = time.monotonic() + limits[name] + (START_S if number == 0 else 0)
        told = folder / f"{name}.json"
        began = False
        while not told.exists():
            if not began and (folder / f"{name}.began").exists():
                began, until = True, time.monotonic() + limits[name]
            code = process.poll()
            if code is not None and not told.exists():
                tell(name, {"failed": f"its process ended with code {code}"})
                return number + 1
            if time.monotonic() > min(until, end):
                whose = "of this part" if time.monotonic() > until else "of all parts"
                tell(name, {"failed": f"the time {whose} was over"})
                return number + 1
            time.sleep(_STEP_S)
        tell(name, json.loads(told.read_text()))
    return len(names)


def _end(process: subprocess.Popen[bytes], grace: float) -> None:
    """End a process and those that it started, after so many seconds in which it may end by itself."""
    for sign, wait in ((None, grace), (signal.SIGTERM, 2.0), (signal.SIGKILL, 5.0)):
        if sign is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, sign)
        with suppress(subprocess.TimeoutExpired):
            process.wait(wait)
