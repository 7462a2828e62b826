"""The launches that Triton made while a session ran: when, of which kernel, under which name, in which scopes."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, insort
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from warplens.compat.proton import scopes

METRICS = ("flops8", "flops16", "flops32", "flops64", "flops", "bytes")
"""What a kernel's launch_metadata function may say about a launch."""


@dataclass(frozen=True)
class LoggedLaunch:
    """One launch as Triton announced it. `operation` is the name that the kernel's launch_metadata function gives."""

    host_ns: int
    kernel: str
    operation: str
    scopes: tuple[str, ...]
    frames: tuple[str, ...]
    metrics: Mapping[str, float] = field(default_factory=dict)


class LaunchLog:
    """Follows Triton's launches by its launch hook."""

    def __init__(self) -> None:
        self.launches: list[LoggedLaunch] = []
        self._lock = threading.Lock()
        self._following = 0

    def start(self) -> None:
        """Follow launches; a second start needs a second stop."""
        from triton import knobs

        self._following += 1
        if self._following == 1:
            knobs.runtime.launch_enter_hook.add(self._entered)

    def stop(self) -> None:
        from triton import knobs

        self._following -= 1
        if self._following == 0:
            knobs.runtime.launch_enter_hook.remove(self._entered)

    def since(self, host_ns: int) -> list[LoggedLaunch]:
        """The launches from a time on."""
        return [launch for launch in self.launches if launch.host_ns >= host_ns]

    def find(self, kernel: str, host_ns: int) -> LoggedLaunch | None:
        """The launch that warplens announced at `host_ns`: Triton announces it next."""
        later = self.launches[bisect_left(self.launches, host_ns, key=lambda one: one.host_ns) :]
        # Another hook may have put the operation's name in place of the kernel's.
        return next((one for one in later if one.kernel == kernel), later[0] if later else None)

    def _entered(self, metadata: Any) -> None:
        if metadata is None:
            return
        now, kernel = time.time_ns(), str(metadata.data.get("name", ""))
        said = metadata.get()
        metrics = {name: said[name] for name in METRICS if name in said}
        launch = LoggedLaunch(
            now, kernel, str(said.get("name", kernel)), scopes.names(), scopes.python_frames(), metrics
        )
        with self._lock:
            insort(self.launches, launch, key=lambda one: one.host_ns)
