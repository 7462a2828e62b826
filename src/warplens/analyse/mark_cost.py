"""What marks cost each recorded variant of a kernel, and what each region's own marks cost it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from warplens.analyse.kernel_variants import KernelVariant, kernel_variants
from warplens.analyse.slowdown import Slowdown, slowdown_of
from warplens.analyse.time_shift import time_shift
from warplens.driver.limits import SM_LIMITS
from warplens.driver.theoretical_occupancy import MAX_REGISTERS, blocks_per_sm
from warplens.record.capture import MACHINE_CODE
from warplens.record.cost_keys import ALONE_CYCLES, EMPTY_CYCLES, RECORD_CYCLES, REGION_CYCLES
from warplens.sass.verified_regions import KernelVerification

if TYPE_CHECKING:
    from warplens.trace.model import Trace

SIGMAS = 1.96
"""The sampling error of a mean is given at 95 %."""


@dataclass(frozen=True)
class VariantCost:
    """What one variant pays for its marks; None where it is not known.

    `instructions` is the size of its machine code, `own` of them are warplens's. `blocks` and `blocks_plain` are blocks
    per SM with and without marks.
    """

    kernel: str
    label: str
    slowdown: Slowdown | None = None
    registers: int | None = None
    registers_plain: int | None = None
    spills: int | None = None
    blocks: int | None = None
    blocks_plain: int | None = None
    instructions: int | None = None
    own: int | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"slowdown": self.slowdown.to_json() if self.slowdown else None}


@dataclass(frozen=True)
class CorrectedMean:
    """A region's mean in cycles without its own marks, with the interval that holds the true mean.

    `marks` is what the calibration says that they added. The lower end takes off all that its records cost where
    nothing hides them; the upper end takes off nothing. Both include the sampling error of the mean.
    """

    region: str
    mean: float
    corrected: float
    low: float
    high: float
    records: float
    """Records inside the region, on average, besides its own begin and end."""

    @property
    def marks(self) -> float:
        return self.mean - self.corrected

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"marks": self.marks}


def variant_costs(trace: Trace) -> list[VariantCost]:
    """The costs of every recorded variant, in the order of first launch."""
    return [_variant(trace, one) for one in kernel_variants(trace.meta.launches)]


def _variant(trace: Trace, one: KernelVariant) -> VariantCost:
    info = one.launches[0]
    extra = info.extra
    code = trace.meta.verification.get(str(extra.get(MACHINE_CODE, "")))
    verified = KernelVerification.from_json(code) if code else None
    known = verified is not None and not verified.problem
    registers, plain = _number(extra.get("registers")), _number(extra.get("registers_plain"))
    return VariantCost(
        one.kernel,
        one.label,
        slowdown_of(one.launches),
        registers,
        plain,
        _number(extra.get("spills", extra.get("local_bytes"))),
        _blocks(trace, info, registers, marked=True),
        _blocks(trace, info, plain, marked=False),
        verified.instructions if verified and known else None,
        verified.own if verified and known else None,
    )


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _blocks(trace: Trace, info: Any, registers: int | None, *, marked: bool) -> int | None:
    device = trace.meta.device(info.rank, info.device)
    limits = SM_LIMITS.get(str(device.get("capability", "")))
    if limits is None or not registers:
        return None
    shared = int(info.extra.get("shared_bytes_kernel", info.extra.get("shared_bytes", 0)))
    if not marked:
        shared -= int(info.extra.get("shared_bytes", 0)) if "shared_bytes_kernel" in info.extra else 0
    return blocks_per_sm(limits, math.prod(info.block), min(registers, MAX_REGISTERS), max(shared, 0))


def corrected_means(trace: Trace) -> dict[str, CorrectedMean]:
    """By region; empty if a launch has no calibration of its marks."""
    infos = trace.meta.launches
    if not infos or any(REGION_CYCLES not in info.cost or RECORD_CYCLES not in info.cost for info in infos):
        return {}
    codes, regions = trace.codes("region")
    measured = trace.of_kind("span") & ~trace.numpy("open")
    raw, corrected, records = trace.numpy("dur_cycles"), time_shift(trace), _records_inside(trace)
    alone, empty = (_by_launch(trace, key) for key in (ALONE_CYCLES, EMPTY_CYCLES))
    most = raw - empty - alone * records
    found = {}
    for number, region in enumerate(regions):
        rows = np.flatnonzero(measured & (codes == number))
        if not len(rows):
            continue
        error = SIGMAS * float(raw[rows].std()) / math.sqrt(len(rows))
        mean, without = float(raw[rows].mean()), float(corrected[rows].mean())
        low, high = min(float(np.maximum(most[rows], 0).mean()), without), max(mean, without)
        found[region] = CorrectedMean(
            region, mean, without, max(low - error, 0.0), high + error, float(records[rows].mean())
        )
    return found


def _by_launch(trace: Trace, key: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """A constant of each row's launch."""
    values = np.zeros(1 + max(info.launch for info in trace.meta.launches))
    for info in trace.meta.launches:
        values[info.launch] = info.cost.get(key, 0.0)
    return np.asarray(values[trace.numpy("launch")])


def _records_inside(trace: Trace) -> np.ndarray[Any, np.dtype[np.float64]]:
    """How many records lie inside each row: two for a span, one for an instant or a value, at every depth."""
    depth, parent = trace.numpy("depth"), trace.numpy("parent").astype(np.int64)
    own = 1.0 + trace.of_kind("span")
    inside = np.zeros(len(trace))
    for level in range(int(depth.max(initial=0)), 0, -1):
        rows = np.flatnonzero((depth == level) & (parent >= 0))
        np.add.at(inside, parent[rows], own[rows] + inside[rows])
    return inside
