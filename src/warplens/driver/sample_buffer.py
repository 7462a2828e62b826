"""Memory that CUPTI writes samples to, and the samples that were taken from it."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from warplens.driver.cupti_structures import PcRecord, SamplingData

RECORDS = 8192
"""Instructions that fit into a buffer; CUPTI sums up the samples of each."""
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
    dropped: int = 0
    foreign: int = 0
    """Samples of kernels of the driver's own."""
    overflows: int = 0
    """How often the buffer of the hardware was full."""

    @property
    def total(self) -> int:
        """All samples, with those of other code and those that were dropped."""
        return sum(sum(counts.values()) for counts in self.counts.values()) + self.dropped + self.foreign


class SampleBuffer:
    """Room for the samples of RECORDS instructions. `reasons` are the names of stall reasons by number."""

    def __init__(self, reasons: Mapping[int, str]) -> None:
        self._reasons = reasons
        self._counts = np.zeros((RECORDS, len(reasons), 2), np.uint32)
        self._records = (PcRecord * RECORDS)()
        for at, one in enumerate(self._records):
            one.size, one.reasons = ctypes.sizeof(PcRecord), self._counts.ctypes.data + at * self._counts.strides[0]
        self._rows: npt.NDArray[np.void] = np.frombuffer(memoryview(self._records).cast("B"), _RECORD)
        self._names: dict[int, str] = {}
        self.data = SamplingData(ctypes.sizeof(SamplingData), RECORDS)
        self.data.pcs = ctypes.addressof(self._records)

    @property
    def address(self) -> int:
        """The address of the structure that CUPTI is given."""
        return ctypes.addressof(self.data)

    def move_to(self, samples: PcSamples) -> int:
        """Add what CUPTI has written, and empty the buffer; return the number of records."""
        data, rows = self.data, self._rows
        count = min(int(data.records), RECORDS)
        for at, counts in enumerate(self._counts[:count].tolist()):
            crc, offset, function, reasons = rows[at].tolist()
            found = samples.counts.setdefault((crc, self._name(function), offset), Counter())
            for reason, number in counts[:reasons]:
                if number and reason in self._reasons:
                    found[self._reasons[reason]] += number
        samples.dropped += int(data.dropped)
        samples.foreign += int(data.foreign)
        samples.overflows += bool(data.full)
        data.records = data.dropped = data.foreign = data.full = 0
        return count

    def _name(self, address: int) -> str:
        """A function's name. CUPTI leaves the text to us, and shares it between records."""
        if address not in self._names:
            self._names[address] = ctypes.string_at(address).decode(errors="replace") if address else ""
        return self._names[address]
