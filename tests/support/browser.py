"""What the tests drive a headless browser by, whatever protocol it speaks."""

from __future__ import annotations

import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

_SECONDS = 120
T = TypeVar("T")
Self = TypeVar("Self", bound="Browser")


class Browser:
    """The process of one browser, with a folder of its own."""

    _process: subprocess.Popen[bytes]

    def __init__(self, name: str) -> None:
        self._name = name
        self._folder = tempfile.TemporaryDirectory(prefix=f"warplens-{name}-", ignore_cleanup_errors=True)

    def _once_told(self, read: Callable[[], T | None]) -> T:
        """The address that the browser listens at, once it has told it."""
        deadline = time.monotonic() + _SECONDS
        while time.monotonic() < deadline:
            if (told := read()) is not None:
                return told
            if self._process.poll() is not None:
                raise RuntimeError(f"{self._name} ended with code {self._process.returncode}")
            time.sleep(0.05)
        raise RuntimeError(f"{self._name} did not open its port within {_SECONDS} s")

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()


class BrowserPage(ABC):
    """One tab."""

    errors: Any
    """Uncaught exceptions, console errors and the browser's own complaints."""

    @abstractmethod
    def run(self, script: str) -> Any:
        """The value of a JavaScript expression (awaited when it is a promise)."""

    def wait_for(self, condition: str, seconds: float = _SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.run(f"Boolean({condition})"):
                return
            time.sleep(0.05)
        raise AssertionError(f"not true within {seconds} s: {condition}; errors so far: {self.errors}")

    def frame(self) -> None:
        """Let everything that waits for the next frame happen."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")
