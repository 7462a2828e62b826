"""Sample the program counters of one context's warps, with what each warp was stalled by, through CUPTI."""

from __future__ import annotations

import ctypes
import re
from contextlib import suppress
from ctypes import byref, c_char, c_size_t, c_uint32, c_void_p
from typing import Any

from warplens.driver.cupti_structures import (
    Attribute,
    ConfigurationInfo,
    ConfigurationParams,
    ContextParams,
    CrcParams,
    DataParams,
    LineParams,
    ReasonParams,
    SamplingData,
    used_size,
)
from warplens.driver.libcupti import Cupti, CuptiError
from warplens.driver.sample_buffer import PcSamples, SampleBuffer
from warplens.errors import WarplensError

OLDEST_VERSION = 22
"""CUDA 12.4, whose records have one more field."""
PERIOD = 14
"""Base-2 logarithm of the cycles between two samples of an SM. With a shorter period, the SMs of a large GPU take more
samples than CUPTI decodes, so that a program that runs for seconds would lose most of them."""
HOST_BYTES = 128 << 20
"""Pinned memory in which samples wait to be decoded. CUPTI's default is 512 MiB, which takes long to allocate."""
CONTINUOUS = 1
"""The collection mode in which kernels are not serialised."""
_NAME_BYTES = 128
_REASON = re.compile(r"warps_issue_stalled_([a-z_]+?)$")
_OUT_OF_MEMORY = 8
_free = ctypes.CDLL(None).free
_free.argtypes, _free.restype = [c_void_p], None
_leaked: list[PcSampler] = []
"""Samplers that CUPTI would not end: it may still write to their memory."""
_sampled_before: set[int] = set()
"""Contexts whose configuration a sampler of ours has changed, so that it does not tell of another profiler."""


def cubin_crc(lib: Cupti, cubin: bytes) -> int:
    """The number by which samples name this cubin. CUPTI computes it from the size and a few of the bytes, so cubins
    that differ little may share it."""
    given = ctypes.create_string_buffer(cubin, len(cubin))
    params = CrcParams(used_size(CrcParams), len(cubin), ctypes.addressof(given), 0)
    lib.call("cuptiGetCubinCrc", byref(params))
    return int(params.crc)


def source_line(lib: Cupti, cubin: bytes, function: str, offset: int) -> tuple[str, int]:
    """The file and line of an instruction; empty and 0 where the cubin's line table does not know it."""
    given = ctypes.create_string_buffer(cubin, len(cubin))
    params = LineParams(used_size(LineParams), ctypes.addressof(given), function.encode(), len(cubin), 0, offset)
    try:
        lib.call("cuptiGetSassToSourceCorrelation", byref(params))
    except CuptiError:
        return "", 0
    texts = [ctypes.string_at(text).decode(errors="replace") if text else "" for text in (params.folder, params.file)]
    for text in (params.folder, params.file):
        _free(text)
    return "/".join(filter(None, texts)), int(params.line)


class PcSampler:
    """Samples one context from its making until `stop`. The cycles between two samples are 2 to the `period`."""

    def __init__(self, lib: Cupti, context: int, *, period: int = PERIOD) -> None:
        if lib.version < OLDEST_VERSION:
            raise WarplensError(f"{lib.path} is too old: samples need that of CUDA 12.4 or newer")
        self._lib, self._context = lib, context
        self.samples, self.period = PcSamples(), 1 << period
        if context not in _sampled_before and self._has_another():
            raise WarplensError("another profiler, such as Proton, is sampling this context")
        self._call("Enable")
        try:
            self.reasons = self._stall_reasons()
            self._fetched, self._last = SampleBuffer(self.reasons), SampleBuffer(self.reasons)
            _sampled_before.add(context)
            self._configure(period)
            self._call("Start")
        except BaseException:
            with suppress(CuptiError):
                self._call("Disable")
            raise

    def _call(self, name: str) -> None:
        params = ContextParams(used_size(ContextParams), None, self._context)
        self._lib.call(f"cuptiPCSampling{name}", byref(params))

    def _has_another(self) -> bool:
        """Whether sampling is enabled already. CUPTI would let us enable it again, and end both with one of them."""
        nothing = SamplingData(ctypes.sizeof(SamplingData), 0)
        try:
            self._get_data(ctypes.addressof(nothing))
            return bool(self._attribute(Attribute.START_STOP))
        except CuptiError:
            return False

    def _configure(self, period: int) -> None:
        self._chosen = (c_uint32 * len(self.reasons))(*self.reasons)
        words: list[tuple[int, tuple[int, ...]]] = [
            (Attribute.REASONS, (len(self.reasons), ctypes.addressof(self._chosen))),
            (Attribute.PERIOD, (period,)),
            (Attribute.MODE, (CONTINUOUS,)),
            (Attribute.START_STOP, (1,)),
            (Attribute.HARDWARE, (HOST_BYTES,)),
            (Attribute.BUFFER, (self._last.address,)),
        ]
        infos = (ConfigurationInfo * len(words))()
        for info, (attribute, values) in zip(infos, words, strict=True):
            info.attribute = attribute
            info.data[: len(values)] = values
        self._configuration("Set", infos)

    def _configuration(self, verb: str, infos: Any) -> None:
        params = ConfigurationParams(used_size(ConfigurationParams), None, self._context)
        params.count, params.infos = len(infos), ctypes.addressof(infos)
        self._lib.call(f"cuptiPCSampling{verb}ConfigurationAttribute", byref(params))

    def _attribute(self, number: int) -> int:
        infos = (ConfigurationInfo * 1)()
        infos[0].attribute = number
        self._configuration("Get", infos)
        return int(infos[0].data[0])

    def _stall_reasons(self) -> dict[int, str]:
        """Names by number, without those that only count cycles in which no warp issued."""
        number = c_size_t()
        counting = DataParams(used_size(DataParams), None, self._context, ctypes.addressof(number))
        self._lib.call("cuptiPCSamplingGetNumStallReasons", byref(counting))
        count = number.value
        indices, texts = (c_uint32 * count)(), [(c_char * _NAME_BYTES)() for _ in range(count)]
        names = (c_void_p * count)(*(ctypes.addressof(text) for text in texts))
        params = ReasonParams(used_size(ReasonParams), None, self._context, count)
        params.indices, params.names = ctypes.addressof(indices), ctypes.addressof(names)
        self._lib.call("cuptiPCSamplingGetStallReasons", byref(params))
        found = {}
        for index, text in zip(indices, texts, strict=True):
            match = _REASON.search(text.value.decode(errors="replace"))
            if match and not match[1].endswith("not_issued"):
                found[int(index)] = match[1]
        if not found:
            raise WarplensError("CUPTI names no stall reason of this GPU")
        return found

    def read(self) -> int:
        """Add what CUPTI has by now; return the number of records. It does not wait for the GPU."""
        found, more = 0, True
        data = self._fetched.data
        while more:
            try:
                self._get_data(self._fetched.address)
            except CuptiError as error:
                if error.status != _OUT_OF_MEMORY:
                    raise
                data.full = 1
            more = data.records > 0 and data.remaining > 0
            found += self._fetched.move_to(self.samples)
        return found

    def _get_data(self, address: int) -> None:
        params = DataParams(used_size(DataParams), None, self._context, address)
        self._lib.call("cuptiPCSamplingGetData", byref(params))

    def stop(self) -> PcSamples:
        """End sampling and return all that was sampled."""
        try:
            self._call("Stop")
            self._last.move_to(self.samples)
            self.read()
        finally:
            try:
                self._call("Disable")
            except CuptiError:
                _leaked.append(self)
                raise
        self._last.move_to(self.samples)
        return self.samples
