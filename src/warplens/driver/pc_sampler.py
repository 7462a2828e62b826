"""Sample the program counters of one context's warps, with what each warp was stalled by, through CUPTI.

The structures are those of cupti_pcsampling.h since CUDA 12.4; tests/driver compares them with the header.
"""

from __future__ import annotations

import ctypes
import re
from collections import Counter
from contextlib import suppress
from ctypes import byref, c_char, c_char_p, c_int, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from warplens.driver.libcupti import Cupti, CuptiError
from warplens.errors import WarplensError

OLDEST_VERSION = 22
"""CUDA 12.4, whose records have one more field."""
_PCS = 4096
"""Records that one call may return."""
_NAME_BYTES = 128
_SELECTED_REASON = re.compile(r"warps_issue_stalled_([a-z_]+?)$")
_OUT_OF_MEMORY = 8
CONTINUOUS, SERIALIZED = 1, 2


class Attribute:
    """Numbers of CUpti_PCSamplingConfigurationAttributeType."""

    PERIOD, REASONS, SCRATCH, HARDWARE, MODE, START_STOP, FORMAT, BUFFER, SLEEP = range(1, 10)


class StallCount(ctypes.Structure):
    """CUpti_PCSamplingStallReason."""

    _fields_ = (("reason", c_uint32), ("samples", c_uint32))


class PcRecord(ctypes.Structure):
    """CUpti_PCSamplingPCData."""

    _fields_ = (
        ("size", c_size_t), ("crc", c_uint64), ("offset", c_uint64), ("function_index", c_uint32), ("pad", c_uint32),
        ("function", c_void_p), ("reason_count", c_size_t), ("reasons", c_void_p), ("correlation", c_uint32),
    )  # fmt: skip


class SamplingData(ctypes.Structure):
    """CUpti_PCSamplingData."""

    _fields_ = (
        ("size", c_size_t), ("room", c_size_t), ("samples", c_uint64), ("dropped", c_uint64), ("records", c_size_t),
        ("remaining", c_size_t), ("range", c_uint64), ("pcs", c_void_p), ("foreign", c_uint64), ("full", c_uint8),
    )  # fmt: skip


class ConfigurationInfo(ctypes.Structure):
    """CUpti_PCSamplingConfigurationInfo; `data` is a union of at most three words."""

    _fields_ = (("attribute", c_int), ("status", c_int), ("data", c_uint64 * 3))


class ContextParams(ctypes.Structure):
    """The parameters of Enable, Disable, Start and Stop, and the first fields of the others."""

    _fields_ = (("size", c_size_t), ("private", c_void_p), ("context", c_void_p))


class ConfigurationParams(ctypes.Structure):
    _fields_ = (*ContextParams._fields_, ("count", c_size_t), ("infos", c_void_p))


class DataParams(ctypes.Structure):
    _fields_ = (*ContextParams._fields_, ("data", c_void_p))


class ReasonParams(ctypes.Structure):
    """CUpti_PCSamplingGetStallReasonsParams."""

    _fields_ = (*ContextParams._fields_, ("count", c_size_t), ("indices", c_void_p), ("names", c_void_p))


class CrcParams(ctypes.Structure):
    """CUpti_GetCubinCrcParams."""

    _fields_ = (("size", c_size_t), ("bytes", c_size_t), ("cubin", c_void_p), ("crc", c_uint64))


class LineParams(ctypes.Structure):
    """CUpti_GetSassToSourceCorrelationParams."""

    _fields_ = (
        ("size", c_size_t), ("cubin", c_void_p), ("function", c_char_p), ("bytes", c_size_t), ("line", c_uint32),
        ("offset", c_uint64), ("file", c_void_p), ("folder", c_void_p),
    )  # fmt: skip


_free = ctypes.CDLL(None).free
_free.argtypes, _free.restype = [c_void_p], None

_COLUMNS = ("crc", "offset", "function", "reason_count")
_RECORD = np.dtype(
    {
        "names": _COLUMNS,
        "formats": ["<u8"] * len(_COLUMNS),
        "offsets": [getattr(PcRecord, name).offset for name in _COLUMNS],
        "itemsize": ctypes.sizeof(PcRecord),
    }
)
"""The fields of `PcRecord` that are read."""


@dataclass
class PcSamples:
    """What was sampled: by cubin, function and offset of an instruction, how often by reason."""

    counts: dict[tuple[int, str, int], Counter[str]] = field(default_factory=dict)
    total: int = 0
    """All samples, those of other code and dropped ones included."""
    dropped: int = 0
    foreign: int = 0
    """Samples of kernels of the driver's own."""
    overflows: int = 0
    """How often the buffer on the GPU was full."""


def cubin_crc(lib: Cupti, cubin: bytes) -> int:
    """The number by which samples name this cubin. CUPTI computes it from the size and a few of the bytes, so cubins
    that differ little may share it."""
    given = ctypes.create_string_buffer(cubin, len(cubin))
    params = CrcParams(_used(CrcParams), len(cubin), ctypes.addressof(given), 0)
    lib.call("cuptiGetCubinCrc", byref(params))
    return int(params.crc)


def source_line(lib: Cupti, cubin: bytes, function: str, offset: int) -> tuple[str, int]:
    """The file and line of an instruction; empty and 0 where the cubin's line table does not know it."""
    given = ctypes.create_string_buffer(cubin, len(cubin))
    params = LineParams(_used(LineParams), ctypes.addressof(given), function.encode(), len(cubin), 0, offset)
    try:
        lib.call("cuptiGetSassToSourceCorrelation", byref(params))
    except CuptiError:
        return "", 0
    texts = [ctypes.string_at(text).decode(errors="replace") if text else "" for text in (params.folder, params.file)]
    for text in (params.folder, params.file):
        _free(text)
    return "/".join(filter(None, texts)), int(params.line)


class PcSampler:
    """Samples one context from its making until `stop`. `period` is the base-2 logarithm of the cycles between two
    samples of an SM; None leaves it to CUPTI."""

    def __init__(
        self,
        lib: Cupti,
        context: int,
        *,
        period: int | None = None,
        hardware_bytes: int | None = None,
        mode: int = CONTINUOUS,
        start_stop: bool = True,
        sleep_ms: int | None = None,
    ) -> None:
        if lib.version < OLDEST_VERSION:
            raise WarplensError(f"{lib.path} is too old: samples need that of CUDA 12.4 or newer")
        self._lib, self._context, self._start_stop = lib, context, start_stop
        self.samples = PcSamples()
        self.period = 0
        self._names: dict[int, str] = {}
        self._call("Enable")
        try:
            self._configure(period, hardware_bytes, mode, sleep_ms)
            if start_stop:
                self._call("Start")
        except BaseException:
            with suppress(CuptiError):
                self._call("Disable")
            raise

    def _call(self, name: str) -> None:
        params = ContextParams(_used(ContextParams), None, self._context)
        self._lib.call(f"cuptiPCSampling{name}", byref(params))

    def _configure(self, period: int | None, hardware_bytes: int | None, mode: int, sleep_ms: int | None) -> None:
        self.reasons = self._stall_reasons()
        if not self.reasons:
            raise WarplensError("CUPTI names no stall reason of this GPU")
        self._counts = np.zeros((_PCS, len(self.reasons), 2), np.uint32)
        self._pcs = (PcRecord * _PCS)()
        step = self._counts.strides[0]
        for at, one in enumerate(self._pcs):
            one.size, one.reasons = ctypes.sizeof(PcRecord), self._counts.ctypes.data + at * step
        self._rows: npt.NDArray[np.void] = np.frombuffer(memoryview(self._pcs).cast("B"), _RECORD)
        self._data = SamplingData(ctypes.sizeof(SamplingData), _PCS)
        self._data.pcs = ctypes.addressof(self._pcs)
        self._chosen = (c_uint32 * len(self.reasons))(*self.reasons)
        words: list[tuple[int, tuple[int, ...]]] = [
            (Attribute.REASONS, (len(self.reasons), ctypes.addressof(self._chosen))),
            (Attribute.MODE, (mode,)),
            (Attribute.START_STOP, (int(self._start_stop),)),
            (Attribute.BUFFER, (ctypes.addressof(self._data),)),
        ]
        for attribute, value in (
            (Attribute.PERIOD, period), (Attribute.HARDWARE, hardware_bytes), (Attribute.SLEEP, sleep_ms),
        ):  # fmt: skip
            words += [(attribute, (value,))] if value is not None else []
        infos = (ConfigurationInfo * len(words))()
        for info, (attribute, values) in zip(infos, words, strict=True):
            info.attribute = attribute
            info.data[: len(values)] = values
        self._configuration("Set", infos)
        try:
            self.period = 1 << self.attribute(Attribute.PERIOD)
        except CuptiError:
            self.period = 0  # it is only shown

    def _configuration(self, verb: str, infos: Any) -> None:
        params = ConfigurationParams(_used(ConfigurationParams), None, self._context)
        params.count, params.infos = len(infos), ctypes.addressof(infos)
        self._lib.call(f"cuptiPCSampling{verb}ConfigurationAttribute", byref(params))

    def attribute(self, number: int) -> int:
        """What an attribute is set to."""
        infos = (ConfigurationInfo * 1)()
        infos[0].attribute = number
        self._configuration("Get", infos)
        return int(infos[0].data[0])

    def _stall_reasons(self) -> dict[int, str]:
        """Names by number, without those that only count cycles in which no warp issued."""
        number = c_size_t()
        counting = DataParams(_used(DataParams), None, self._context, ctypes.addressof(number))
        self._lib.call("cuptiPCSamplingGetNumStallReasons", byref(counting))
        count = number.value
        indices, texts = (c_uint32 * count)(), [(c_char * _NAME_BYTES)() for _ in range(count)]
        names = (c_void_p * count)(*(ctypes.addressof(text) for text in texts))
        params = ReasonParams(_used(ReasonParams), None, self._context, count)
        params.indices, params.names = ctypes.addressof(indices), ctypes.addressof(names)
        self._lib.call("cuptiPCSamplingGetStallReasons", byref(params))
        found = {}
        for index, text in zip(indices, texts, strict=True):
            match = _SELECTED_REASON.search(text.value.decode(errors="replace"))
            if match and not match[1].endswith("not_issued"):
                found[int(index)] = match[1]
        return found

    def read(self) -> int:
        """Add what CUPTI has by now; return the number of records. It does not wait for the GPU."""
        found, more = 0, True
        params = DataParams(_used(DataParams), None, self._context, ctypes.addressof(self._data))
        while more:
            try:
                self._lib.call("cuptiPCSamplingGetData", byref(params))
            except CuptiError as error:
                if error.status != _OUT_OF_MEMORY:
                    raise
                self._data.full = 1
            found += self._take()
            more = self._data.records > 0 and self._data.remaining > 0
        return found

    def _take(self) -> int:
        data = self._data
        count = min(int(data.records), _PCS)
        rows = self._rows[:count]
        for at in range(count):
            row = rows[at]
            key = (int(row["crc"]), self._name(int(row["function"])), int(row["offset"]))
            counts = self.samples.counts.setdefault(key, Counter())
            for reason, samples in self._counts[at, : int(row["reason_count"])].tolist():
                if samples and reason in self.reasons:
                    counts[self.reasons[reason]] += samples
        self.samples.total += int(data.samples)
        self.samples.dropped += int(data.dropped)
        self.samples.foreign += int(data.foreign)
        self.samples.overflows += bool(data.full)
        return count

    def _name(self, address: int) -> str:
        if address not in self._names:
            text = ctypes.string_at(address) if address else b""
            self._names[address] = text.decode(errors="replace")
        return self._names[address]

    def stop(self) -> PcSamples:
        """End sampling and return all that was sampled."""
        try:
            if self._start_stop:
                self._call("Stop")
            self.read()
        finally:
            self._data.records = self._data.samples = self._data.dropped = self._data.foreign = self._data.full = 0
            self._call("Disable")
        self._take()
        return self.samples


def _used(cls: type[ctypes.Structure]) -> int:
    """The size that CUPTI expects: up to the end of the last field, without padding."""
    last = getattr(cls, cls._fields_[-1][0])
    return int(last.offset + last.size)
