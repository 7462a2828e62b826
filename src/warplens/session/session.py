"""A session: the options of one profile, what it has collected, and the front ends that take part."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cached_property

from warplens.launch.buffers import Buffers
from warplens.launch.collected_run import CollectedRun, PendingLaunch
from warplens.launch.memory import DriverMemory
from warplens.launch.quota import Quota
from warplens.launch.timing import Timings
from warplens.options import Options
from warplens.record.capture import Device, Launch
from warplens.session import stack


class Session:
    """What a front end may ask of the running profile.

    `whole_program` is for a program that does not know of warplens: a profile that the program starts itself takes over
    until it ends.
    """

    def __init__(self, options: Options, *, whole_program: bool = False) -> None:
        self.options, self.whole_program = options, whole_program
        self._stops: list[Callable[[], None]] = []
        self._interrupted: Session | None = None
        self.reset()

    def reset(self) -> None:
        """Start with nothing collected: a decorated function enters the same profile many times."""
        self.run = CollectedRun()
        self.timings = Timings(self.options.launches)
        self._quota = Quota(self.options)
        self._gave_way = False
        self.__dict__.pop("buffers", None)

    @property
    def enabled(self) -> bool:
        """False when WARPLENS=0 switches everything off."""
        return os.environ.get("WARPLENS", "") != "0"

    @property
    def device(self) -> Device:
        """The device of the first launch."""
        return self.run.device

    @property
    def seen(self) -> dict[str, int]:
        """Launches of each kernel, recorded or not."""
        return self.run.seen

    @property
    def notes(self) -> dict[str, list[str]]:
        """What the user was told about each kernel."""
        return self.run.notes

    @cached_property
    def buffers(self) -> Buffers:
        """Buffers for woven launches, in memory of the driver."""
        return Buffers(self.run, self.options, DriverMemory())

    def wants(self, kernel: str) -> bool:
        """Count the next launch of `kernel`, and return whether to record it. Call it once per launch."""
        return self._quota.wants(kernel)

    def finished(self, kernel: str) -> bool:
        """Return whether no further launch of `kernel` will be recorded."""
        return self._quota.finished(kernel)

    def add(self, pending: PendingLaunch) -> None:
        """Keep a launch that is about to be made."""
        self.run.add(pending)

    def saw(self, kernel: str) -> None:
        """Count a launch, recorded or not."""
        self.run.saw(kernel)

    def note(self, kernel: str, text: str) -> None:
        """Tell the user once about a kernel; the trace keeps the note."""
        self.run.note(kernel, text)

    def collect(self) -> tuple[list[Launch], list[str]]:
        """Bring every launch to the host. Return the launches, and a sentence for each that failed."""
        launches, problems = self.run.collect()
        return [self.timings.with_slowdown(launch) for launch in launches], problems

    def join(self, start: stack.StartFrontEnd) -> None:
        """Start a front end, and stop it when the session pauses or ends."""
        stop = start(self)
        if stop is not None:
            self._stops.append(stop)

    def resume(self) -> None:
        """Record the launches that follow."""
        running = stack.check_free()
        if running is not None:
            running.pause()
            running._gave_way = True
            self._interrupted = running
        stack.push(self)
        try:
            self._start_front_ends()
        except BaseException:
            self.pause()
            raise

    def _start_front_ends(self) -> None:
        for start in list(stack.front_ends) if self.enabled else ():
            self.join(start)

    def pause(self) -> None:
        """Ignore the launches that follow until `resume`; keep what was collected."""
        stack.remove(self)
        while self._stops:
            self._stops.pop()()
        interrupted, self._interrupted = self._interrupted, None
        if interrupted is not None:
            interrupted.resume()
