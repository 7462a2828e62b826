"""The structures of CUPTI's PC sampling, as cupti_pcsampling.h has them since CUDA 12.4.

tests/driver compares them with the header.
"""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p


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


def used_size(cls: type[ctypes.Structure]) -> int:
    """The size of parameters that CUPTI expects: up to the end of the last field, without padding."""
    last = getattr(cls, cls._fields_[-1][0])
    return int(last.offset + last.size)
