"""profile(): owns a run from the first mark to the trace."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, TypeVar

from warplens.capture import Capture, Device, Launch
from warplens.errors import WarplensError
from warplens.trace.model import Trace

F = TypeVar("F", bound=Callable[..., Any])


class PendingLaunch(Protocol):
    """A launch whose records may still be on the device. `collect` waits for it and brings them home."""

    def collect(self) -> Launch: ...


class Options:
    """What a profile asks of the front ends. Unknown names are refused where they are given."""

    def __init__(self, records_per_warp: int | None = None, full: str = "stop") -> None:
        if full not in ("stop", "ring"):
            raise WarplensError(f"full={full!r}: allowed are 'stop' (keep the first records) and 'ring' (keep the latest)")
        if records_per_warp is not None and records_per_warp < 0:
            raise WarplensError(f"records_per_warp={records_per_warp}: must not be negative")
        self.records_per_warp = records_per_warp
        self.full = full


class Profile:
    """A profile session: a context manager, and a decorator that profiles each call."""

    def __init__(self, path: str | os.PathLike[str] | None = None, *, rank: int | None = None, **options: Any) -> None:
        self.path = None if path is None else Path(path)
        self.options = Options(**options)
        self.rank = int(os.environ.get("RANK", 0)) if rank is None else rank
        self.device = Device()
        self._pending: list[PendingLaunch] = []
        self._trace: Trace | None = None

    @property
    def enabled(self) -> bool:
        """False when WARPLENS=0 switches everything off."""
        return os.environ.get("WARPLENS", "") != "0"

    def add(self, pending: PendingLaunch) -> None:
        """Called by a front end for each launch it made."""
        self._pending.append(pending)

    @property
    def trace(self) -> Trace:
        """The decoded trace; available once the block has ended."""
        if self._trace is None:
            raise WarplensError("the trace is not there yet: it is made when the `with wl.profile(...)` block ends")
        return self._trace

    def __enter__(self) -> Profile:
        if active() is not None:
            raise WarplensError("a profile is already running; end it before starting another")
        _stack.append(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        _stack.remove(self)
        if self.enabled:
            self._finish()

    def __call__(self, function: F) -> F:
        @functools.wraps(function)
        def profiled(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return profiled  # type: ignore[return-value]

    def _finish(self) -> None:
        from warplens.decode import decode

        launches = [pending.collect() for pending in self._pending]
        self._pending.clear()
        self._trace = decode(Capture(launches, device=self.device, rank=self.rank))
        if self.path is not None:
            self._trace.save(self.path)


_stack: list[Profile] = []


def active() -> Profile | None:
    """The running profile, if any."""
    return _stack[-1] if _stack else None


profile = Profile
