"""What one profile collects: its launches, the kernels it saw, and the notes about them."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from warplens.auto.rules import LineCoverage
from warplens.errors import WarplensError
from warplens.record.capture import HOST_NS, MACHINE_CODE, Device, Launch
from warplens.sass.machine_code import MachineCode
from warplens.text import printable

if TYPE_CHECKING:
    from warplens.launch.stall_sampling import StallSampling


class PendingLaunch(Protocol):
    """A launch whose records may still be on the device. `collect` waits for it and copies them to the host."""

    def collect(self) -> Launch: ...


@dataclass
class UnmarkedKernel:
    """A kernel that could not be marked, and how long its launches took, where some were timed."""

    kernel: str
    launches: int
    reason: str
    library: str = ""
    """The file that the kernel is compiled into; empty where it was made at run time."""
    times_ns: list[float] = field(default_factory=list)

    @property
    def mean_ns(self) -> float | None:
        """The mean time of a launch; the first one loads code, and does not count if there are others."""
        warm = self.times_ns[1:] or self.times_ns
        return sum(warm) / len(warm) if warm else None


class CollectedRun:
    """Filled by front ends while a profile runs, read when it ends."""

    def __init__(self) -> None:
        self.device = Device()
        """The device of the first launch; launches on another one name theirs."""
        self.seen: dict[str, int] = {}
        """Launches of each kernel, recorded or not."""
        self.notes: dict[str, list[str]] = {}
        self.is_news: Callable[[str], bool] = lambda said: True
        """Whether to print a note; of the ranks of a job, one does."""
        self.unmarked: list[UnmarkedKernel] = []
        """Kernels launched from C++ of which there is no PTX."""
        self.coverage = LineCoverage()
        self.codes: dict[str, tuple[str, MachineCode]] = {}
        """By digest, the kernel's name and machine code of launches that were collected."""
        self.stalls: StallSampling | None = None
        """What samples the stalls of the profile's kernels, where they are asked for."""
        self.fetch: Callable[[], None] = lambda: None
        """Learns of launches that were made without Python; called before anything else is added or read."""
        self._knows_device = False
        self._pending: list[tuple[PendingLaunch, int]] = []
        self._lock = threading.Lock()

    def add(self, pending: PendingLaunch) -> None:
        """Keep a launch that is about to be made."""
        self.fetch()
        self._pending.append((pending, time.time_ns()))

    def add_made(self, pending: PendingLaunch, announced: int) -> None:
        """Keep a launch that was made at the host's time `announced`."""
        self._pending.append((pending, announced))

    def newest(self) -> PendingLaunch | None:
        """The launch that was announced last."""
        self.fetch()
        return self._pending[-1][0] if self._pending else None

    def launches_so_far(self) -> list[tuple[PendingLaunch, int]]:
        """Every launch that was announced, with the host's time in ns then; another thread may ask."""
        self.fetch()
        return list(self._pending)

    def announced(self, first: int) -> Iterator[PendingLaunch]:
        """The launches that were announced, from the one with the number `first` on; another thread may ask."""
        self.fetch()
        for number in range(first, len(self._pending)):
            yield self._pending[number][0]

    def saw(self, kernel: str) -> None:
        """Count a launch, recorded or not."""
        with self._lock:
            self.seen[kernel] = self.seen.get(kernel, 0) + 1

    def passed_by(self, kernel: str) -> None:
        """Remember that a kernel was loaded whose launches are not followed."""
        self.seen.setdefault(kernel, 0)

    def note(self, kernel: str, text: str) -> None:
        """Tell the user once about a kernel, such as why it runs unmarked; the trace keeps the note."""
        notes = self.notes.setdefault(kernel, [])
        if text not in notes:
            notes.append(text)
            said = printable(f"warplens: {kernel}: {text}")
            if self.is_news(said):
                print(said, file=sys.stderr)

    def other_device(self, index: int, describe: Callable[[], Device]) -> Device | None:
        """The device of a launch if it is not the run's own; the first launch decides which that is."""
        if not self._knows_device:
            self.device, self._knows_device = describe(), True
        return describe() if index != self.device.index else None

    def collect(self) -> tuple[list[tuple[PendingLaunch, Launch]], list[str]]:
        """Bring every launch to the host. Return the launches, and a sentence for each that failed."""
        launches, problems = [], []
        self.fetch()
        for pending, announced in self._pending:
            try:
                launch = pending.collect()
                known = {HOST_NS: announced, **self._note_code(pending, launch)}
                launches.append((pending, launch.noting(extra=known)))
            except WarplensError as problem:
                problems.append(str(problem))
        self._pending.clear()
        return launches, problems

    def _note_code(self, pending: PendingLaunch, launch: Launch) -> dict[str, str]:
        """Keep the machine code of a launch, and name it in the launch."""
        code: MachineCode | None = getattr(pending, "machine_code", None)
        if code is None:
            return {}
        digest = code.digest
        if digest not in self.codes:
            if not code.names:
                # Marks that record by themselves only have numbers in the machine code.
                code = replace(code, names={f"#{number}": name for number, name in launch.regions.items()})
            self.codes[digest] = launch.kernel, code
        return {MACHINE_CODE: digest}
