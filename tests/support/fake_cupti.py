"""libcupti's PC sampling without a GPU: what a test says was sampled is what the library returns."""

from __future__ import annotations

import ctypes
import zlib
from collections import deque
from typing import Any

import pytest

from warplens.driver import libcupti
from warplens.driver.cupti_structures import Attribute, ConfigurationInfo, PcRecord, SamplingData, StallCount
from warplens.driver.libcupti import Cupti

PREFIX = "smsp__pcsamp_warps_issue_stalled_"
REASONS = ("selected", "wait", "long_scoreboard", "barrier", "long_scoreboard_not_issued", "no_instructions")
"""The names of the stall reasons; their numbers start at 10."""
FIRST = 10
_libc = ctypes.CDLL(None)
_libc.strdup.restype, _libc.strdup.argtypes = ctypes.c_void_p, [ctypes.c_char_p]


def crc_of(cubin: bytes) -> int:
    return zlib.crc32(cubin)


class FakeLibrary:
    """The functions of the library. `failing` has the status of calls that fail, by name without `cupti`."""

    def __init__(self, failing: dict[str, int] | None = None, version: int = 130001) -> None:
        self.failing, self.version = dict(failing or {}), version
        self.calls: list[str] = []
        self.enabled: set[int] = set()
        self.attributes: dict[int, list[int]] = {Attribute.PERIOD: [11, 0, 0], Attribute.START_STOP: [0, 0, 0]}
        self.records: deque[tuple[int, str, int, dict[str, int]]] = deque()
        """What GetData returns: cubin, function, offset and samples by reason."""
        self.late: list[tuple[int, str, int, dict[str, int]]] = []
        """What only Disable brings."""
        self.lines: dict[tuple[str, int], tuple[str, str, int]] = {}
        """By function and offset, the folder, file and line."""
        self.dropped = self.foreign = self.full = 0
        self._names: list[Any] = []

    def sample(self, cubin: bytes, function: str, offset: int, **reasons: int) -> None:
        self.records.append((crc_of(cubin), function, offset, reasons))

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cupti"):
            raise AttributeError(name)
        short = name.removeprefix("cupti").removeprefix("PCSampling")
        work = type(self).__dict__.get(f"_{short}")
        if work is None:
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            self.calls.append(short)
            given = [getattr(one, "_obj", one) for one in arguments]
            status = self.failing.get(short, 0)
            return status or int(work(self, *given) or 0)

        return call

    def _GetVersion(self, version: Any) -> None:
        version.value = self.version

    def _GetResultString(self, status: Any, text: Any) -> None:
        text.value = f"CUPTI_ERROR_{status.value}".encode()

    def _Enable(self, params: Any) -> int:
        if params.context in self.enabled:
            return 7
        self.enabled.add(params.context)
        return 0

    def _Disable(self, params: Any) -> int:
        if params.context not in self.enabled:
            return 7
        self.enabled.remove(params.context)
        self.records.extend(self.late)
        return self._fill(self.attributes[Attribute.BUFFER][0]) if Attribute.BUFFER in self.attributes else 0

    def _Start(self, params: Any) -> int:
        return 0 if params.context in self.enabled else 7

    _Stop = _Start

    def _GetNumStallReasons(self, params: Any) -> None:
        ctypes.c_size_t.from_address(params.data).value = len(REASONS)

    def _GetStallReasons(self, params: Any) -> None:
        for at in range(params.count):
            ctypes.c_uint32.from_address(params.indices + 4 * at).value = FIRST + at
            text = ctypes.c_void_p.from_address(params.names + 8 * at).value
            ctypes.memmove(text, f"{PREFIX}{REASONS[at]}\0".encode(), len(PREFIX) + len(REASONS[at]) + 1)

    def _SetConfigurationAttribute(self, params: Any) -> None:
        for info in (ConfigurationInfo * params.count).from_address(params.infos):
            self.attributes[info.attribute] = list(info.data)

    def _GetConfigurationAttribute(self, params: Any) -> None:
        for info in (ConfigurationInfo * params.count).from_address(params.infos):
            info.data[:] = self.attributes[info.attribute]

    def _GetData(self, params: Any) -> int:
        if params.context not in self.enabled:
            return 7
        return self._fill(params.data)

    def _fill(self, address: int) -> int:
        data = SamplingData.from_address(address)
        assert data.size == ctypes.sizeof(SamplingData)
        count = min(data.room, len(self.records))
        data.samples = 0
        for at in range(count):
            crc, function, offset, reasons = self.records.popleft()
            record = PcRecord.from_address(data.pcs + at * ctypes.sizeof(PcRecord))
            record.crc, record.offset, record.reason_count = crc, offset, len(reasons)
            self._names.append(ctypes.create_string_buffer(function.encode()))
            record.function = ctypes.addressof(self._names[-1])
            for number, (reason, samples) in enumerate(reasons.items()):
                one = StallCount.from_address(record.reasons + number * ctypes.sizeof(StallCount))
                one.reason, one.samples = FIRST + REASONS.index(reason), samples
            data.samples += sum(reasons.values())
        data.records, data.remaining = count, len(self.records)
        data.dropped, data.foreign, data.full = self.dropped, self.foreign, int(bool(self.full))
        data.samples += self.dropped + self.foreign
        self.dropped = self.foreign = 0
        full, self.full = self.full, 0
        return 8 if full else 0

    def _GetCubinCrc(self, params: Any) -> None:
        params.crc = crc_of(ctypes.string_at(params.cubin, params.bytes))

    def _GetSassToSourceCorrelation(self, params: Any) -> int:
        found = self.lines.get((params.function.decode(), params.offset))
        if found is None:
            return 999
        folder, file, params.line = found
        params.folder, params.file = _libc.strdup(folder.encode()), _libc.strdup(file.encode())
        return 0


class FakeCupti(Cupti):
    """The library of this process, as the sampler calls it."""

    def __init__(self, library: FakeLibrary) -> None:
        self.path, self._lib, self.version = "libcupti.so.fake", library, library.version  # type: ignore[assignment]


def use_fake_cupti(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> FakeLibrary:
    """Let everything in this process call a fake library."""
    library = FakeLibrary(**settings)
    fake = FakeCupti(library)
    monkeypatch.setattr(libcupti, "cupti", lambda: fake)
    return library
