"""`stalls=True`: sample what the warps of every recorded context are stalled by, while the profile runs.

Nothing of it may reach the program: what goes wrong ends the sampling of that context, and the trace says so.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from dataclasses import replace

from warplens.driver import libcuda, libcupti
from warplens.driver.libcupti import Cupti
from warplens.driver.pc_sampler import PcSampler
from warplens.driver.sample_buffer import PcSamples
from warplens.launch.sample_matching import Codes, matched_samples
from warplens.sass.pc_samples import PcSampling
from warplens.threads import BackgroundThread

READ_EVERY_S = 0.2
"""How often samples are fetched; CUPTI keeps them until then."""
TITLE = "stalls"


class _Sampled:
    """One context that is being sampled, and the thread that fetches its samples."""

    def __init__(self, lib: Cupti, context: int, failed: Callable[[Exception], None]) -> None:
        self.sampler = PcSampler(lib, context)
        self._failed, self._ended = failed, threading.Event()
        self._thread = BackgroundThread(self._read, "warplens-stalls")
        self._thread.start()

    def _read(self) -> None:
        while not self._ended.wait(READ_EVERY_S):
            try:
                self.sampler.read()
            except Exception as error:  # whatever fails in ours must not reach the program; the user is told
                self._failed(error)
                return

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()
        self.sampler.stop()


class StallSampling:
    """The sampling of one profile. `note` tells the user about something once."""

    def __init__(self, note: Callable[[str, str], None]) -> None:
        self._note = note
        self._contexts: dict[int, _Sampled | None] = {}
        """By context, its sampler; None where it failed or is paused."""
        self._samples: list[PcSamples] = []
        self._problems: dict[str, None] = {}
        self._period = 0
        self._process = os.getpid()
        self._lock = threading.Lock()

    def enter(self, context: int) -> None:
        """Sample a context, if that was not tried yet."""
        with self._lock:
            if context not in self._contexts:
                self._contexts[context] = None
                self._start(context)

    def _start(self, context: int) -> None:
        try:
            started = _Sampled(libcupti.cupti(), context, self._failed)
        except Exception as error:  # as above: the program runs on without samples
            self._failed(error)
            return
        atexit.register(self._end)
        self._contexts[context] = started
        self._samples.append(started.sampler.samples)
        self._period = started.sampler.period

    def _failed(self, error: Exception) -> None:
        text = f"not sampled: {str(error) or type(error).__name__}"
        self._problems[text] = None
        self._note(TITLE, text)

    def pause(self, *, wait: bool = True) -> None:
        """End sampling for now. With `wait`, kernels that still run are sampled to their end."""
        if os.getpid() != self._process:
            return  # what a forked child inherited is its parent's to end
        atexit.unregister(self._end)
        with self._lock:
            for context, sampled in self._contexts.items():
                self._contexts[context] = None
                if sampled is not None:
                    self._stop(context, sampled, wait)

    def _end(self) -> None:
        """The process ends before the profile: CUPTI must not write samples to memory that is gone."""
        self.pause(wait=False)

    def _stop(self, context: int, sampled: _Sampled, wait: bool) -> None:
        try:
            lib = libcuda.driver()
            with lib.inside(context), lib.relaxed():
                try:
                    if wait:
                        lib.synchronize()
                finally:
                    sampled.stop()
        except Exception as error:  # sampling is an extra: its failure is noted, and the profile goes on
            self._failed(error)

    def resume(self) -> None:
        """Sample again what `pause` ended."""
        with self._lock:
            for context in [one for one, sampled in self._contexts.items() if sampled is None]:
                self._start(context)

    def result(self, codes: Codes) -> PcSampling:
        """All samples, by the machine code of `codes`; call it once sampling has ended."""
        found = PcSampling()
        if not self._contexts:
            self._problems["not sampled: no recorded launch ran on a GPU"] = None
        try:
            if self._samples:
                found = matched_samples(libcupti.cupti(), self._samples, codes, self._period).bounded()
        except Exception as error:  # as in _stop
            self._failed(error)
        return replace(found, problems=(*self._problems, *found.problems))
