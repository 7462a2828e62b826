"""`stalls=True`: sample what the warps of every recorded context are stalled by, while the profile runs.

Nothing of it may reach the program: what goes wrong ends the sampling of that context, and the trace says so.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from warplens.driver.libcuda import driver
from warplens.driver.libcupti import Cupti, cupti
from warplens.driver.pc_sampler import PcSampler, PcSamples, cubin_crc, source_line
from warplens.launch.assembled_code import kept_cubin
from warplens.sass.machine_code import MachineCode
from warplens.sass.pc_samples import PcSampling, SampledCode

READ_EVERY_S = 0.2
"""How often samples are fetched; CUPTI keeps them until then."""
TITLE = "stalls"

Codes = Mapping[str, tuple[str, MachineCode]]
"""By digest, a kernel's name and its machine code."""


class _Sampled:
    """One context that is being sampled, and the thread that fetches its samples."""

    def __init__(self, lib: Cupti, context: int, failed: Callable[[Exception], None]) -> None:
        self.sampler = PcSampler(lib, context)
        self._failed, self._ended = failed, threading.Event()
        self._thread = threading.Thread(target=self._read, name="warplens-stalls", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._ended.wait(READ_EVERY_S):
            try:
                self.sampler.read()
            except Exception as error:
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
        self._lock = threading.Lock()

    def enter(self, context: int) -> None:
        """Sample a context, if that was not tried yet."""
        with self._lock:
            if context not in self._contexts:
                self._contexts[context] = None
                self._start(context)

    def _start(self, context: int) -> None:
        try:
            started = _Sampled(cupti(), context, self._failed)
        except Exception as error:
            self._failed(error)
            return
        self._contexts[context] = started
        self._samples.append(started.sampler.samples)
        self._period = started.sampler.period

    def _failed(self, error: Exception) -> None:
        text = f"not sampled: {str(error) or type(error).__name__}"
        self._problems[text] = None
        self._note(TITLE, text)

    def pause(self) -> None:
        """End sampling for now: another profile in the same process wants the GPU's sampling unit."""
        with self._lock:
            for context, sampled in self._contexts.items():
                self._contexts[context] = None
                if sampled is not None:
                    self._stop(context, sampled)

    def _stop(self, context: int, sampled: _Sampled) -> None:
        try:
            lib = driver()
            with lib.inside(context), lib.relaxed():
                lib.synchronize()  # what still runs has no samples after the end
            sampled.stop()
        except Exception as error:
            self._failed(error)

    def resume(self) -> None:
        """Sample again what `pause` ended."""
        with self._lock:
            for context in [one for one, sampled in self._contexts.items() if sampled is None]:
                self._start(context)

    def result(self, codes: Codes) -> PcSampling:
        """All samples, by the machine code of `codes`; call it once sampling has ended."""
        try:
            return _attributed(self._samples, codes, self._period, tuple(self._problems)).bounded()
        except Exception as error:
            self._failed(error)
            return PcSampling(problems=tuple(self._problems))


def _attributed(samples: list[PcSamples], codes: Codes, period: int, problems: tuple[str, ...]) -> PcSampling:
    """Samples of recorded kernels by instruction, of the same kernels without marks by line, and the rest counted."""
    if not samples:
        return PcSampling(problems=problems)
    lib = cupti()
    marked, plain = {}, {}
    for digest, (kernel, code) in codes.items():
        cubin = code.cubin or kept_cubin(code.ptx)
        if cubin is not None:
            marked[cubin_crc(lib, cubin), code.symbol] = kernel, digest
        if code.plain is not None:
            plain[cubin_crc(lib, code.plain), code.symbol] = kernel, digest, code.plain
    found: dict[tuple[int, str], dict[int, Counter[str]]] = {}
    other = 0
    for one in samples:
        for (crc, function, offset), counts in one.counts.items():
            if (crc, function) in marked or (crc, function) in plain:
                found.setdefault((crc, function), {}).setdefault(offset, Counter()).update(counts)
            else:
                other += sum(counts.values())
    made: list[SampledCode] = []
    for key, places in found.items():
        if key in marked:
            kernel, digest = marked[key]
            made.append(SampledCode.of(kernel, digest, places, _sum(places)))
        else:
            kernel, digest, cubin = plain[key]
            made += _by_line(lib, kernel, digest, cubin, key[1], places)
    return PcSampling(
        tuple(made),
        taken=sum(one.total for one in samples),
        dropped=sum(one.dropped for one in samples),
        other=other,
        overflows=sum(one.overflows for one in samples),
        period=period,
        problems=problems,
    )


def _by_line(
    lib: Cupti, kernel: str, digest: str, cubin: bytes, function: str, places: Mapping[int, Counter[str]]
) -> Iterator[SampledCode]:
    """The samples of a kernel without marks, one part for each of its source files."""
    files: dict[str, dict[int, Counter[str]]] = {}
    for offset, counts in places.items():
        file, line = source_line(lib, cubin, function, offset)
        files.setdefault(file, {}).setdefault(line, Counter()).update(counts)
    total = _sum(places)
    for file, lines in files.items():
        yield SampledCode.of(kernel, digest, lines, total, plain=True, file=file)


def _sum(places: Mapping[int, Counter[str]]) -> int:
    return sum(sum(counts.values()) for counts in places.values())
