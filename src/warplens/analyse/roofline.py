"""Place a kernel or region under the roofline of its device: memory bound, compute bound, or neither."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import inf
from typing import Any

import numpy as np

from warplens.analyse.devices import DTYPES, find_peak, peak_of
from warplens.analyse.intervals import length, union
from warplens.analyse.lifetimes import Lifetimes
from warplens.errors import UsageError, WarplensError, check_name, did_you_mean
from warplens.record.capture import SAMPLED
from warplens.trace.model import Trace
from warplens.wording import digits, percent

NEAR_ROOF = 0.6
"""Below this share of the roof, something other than the roof is the limit; Nsight Compute uses the same value."""


@dataclass(frozen=True)
class Ceilings:
    """The roof of a device: GB/s, TFLOP/s of one type, and their source."""

    device: str
    bandwidth: float
    tflops: float
    dtype: str
    source: str
    measured: bool = False

    @property
    def ridge(self) -> float:
        """FLOP per byte at which memory and compute take equally long."""
        return 1000 * self.tflops / self.bandwidth


@dataclass(frozen=True)
class Roofline:
    """One point. Rates and shares are None where the bytes or FLOPs were not given.

    `bound` is memory, compute, or neither: below 60 % of the roof, latency, occupancy or waiting is the limit.
    `of_roof` is the achieved share of the roof at this intensity, `times` its inverse.
    """

    what: str
    time_ns: float
    flops: float | None
    bytes: float | None
    intensity: float | None
    tflops: float | None
    bandwidth: float | None
    roof: str
    bound: str
    of_roof: float
    times: float
    advice: str
    ceilings: Ceilings

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"ridge": self.ceilings.ridge}


def ceilings(device: str, dtype: str = "fp16", measured: Mapping[str, float] | None = None) -> Ceilings:
    """The roof of a device: measured numbers (`bandwidth` and types by name) where given, listed ones otherwise."""
    check_name(f"dtype {dtype!r} is not known", dtype, DTYPES)
    if measured and "bandwidth" in measured and dtype in measured:
        return Ceilings(device, measured["bandwidth"], measured[dtype], dtype, "measured on this device", True)
    peak = peak_of(device)
    if dtype not in peak.tflops:
        raise UsageError(f"{peak.name} has no listed rate for {dtype!r} (listed: {', '.join(peak.tflops)})")
    return Ceilings(peak.name, peak.bandwidth, peak.tflops[dtype], dtype, peak.source)


def roofline(
    trace: Trace | None = None,
    *,
    flops: float | None = None,
    bytes: float | None = None,
    kernel: str | None = None,
    region: str | None = None,
    per_span: bool = False,
    dtype: str = "fp16",
    device: str | None = None,
    time_ns: float | None = None,
    measured: Mapping[str, float] | None = None,
) -> Roofline:
    """Place a kernel, or one region of it, under the roof of its device.

    `flops` and `bytes` are per launch, or with `per_span` per instance of the region. A region's time is how long it
    was active on an SM, averaged over the SMs, so its rate is the one it would reach if it ran all the time.
    Without a trace, give `time_ns` and `device`.
    """
    if not flops and not bytes:
        raise UsageError("give flops, bytes or both: a trace does not contain them")
    if min(flops or 0, bytes or 0) < 0:
        raise UsageError(f"flops={flops}, bytes={bytes}: must not be negative")
    what, count = region or kernel or "kernel", 1.0
    if trace is not None:
        lives = Lifetimes.of(trace)
        kernel = kernel_of(lives, kernel)
        device = device or device_of(trace)
        what = f"{kernel}: {region}" if region else kernel
        if region is None:
            time_ns = time_ns or lives.kernel_ns(kernel)
        else:
            time_ns, count = _region_time(lives, kernel, region)
    if not time_ns or not 0 < time_ns < inf:
        raise UsageError(f"time_ns={time_ns}: pass a trace or a positive time")
    if not device:
        raise UsageError("the trace does not name its device: pass device=")
    roof = ceilings(device, dtype, measured)
    scale = count if per_span else 1.0
    return place(what, time_ns, _times(flops, scale), _times(bytes, scale), roof)


def place(what: str, time_ns: float, flops: float | None, moved: float | None, roof: Ceilings) -> Roofline:
    """One point under a roof."""
    tflops = flops / time_ns / 1000 if flops else None
    bandwidth = moved / time_ns if moved else None
    compute = tflops / roof.tflops if tflops else 0.0
    memory = bandwidth / roof.bandwidth if bandwidth else 0.0
    over = "memory" if memory >= compute else "compute"
    reached = max(memory, compute)
    bound = over if reached >= NEAR_ROOF else "neither"
    return Roofline(
        what=what,
        time_ns=time_ns,
        flops=flops,
        bytes=moved,
        intensity=flops / moved if flops and moved else None,
        tflops=tflops,
        bandwidth=bandwidth,
        roof=over,
        bound=bound,
        of_roof=reached,
        times=1 / reached,
        advice=_advice(bound, over, reached, flops and moved and flops / moved, roof),
        ceilings=roof,
    )


def _advice(bound: str, over: str, reached: float, intensity: float | None, roof: Ceilings) -> str:
    if reached > 1.02:
        return "Above the roof: check the bytes, FLOPs and type (data from L2 does not count), or measure the peaks."
    if bound == "memory":
        return "Memory bound: only fewer bytes help (reuse in registers and shared memory, fusion, smaller types)."
    if bound == "compute":
        return "Compute bound: use a faster type or unit, or fewer operations; memory is not the limit."
    where = f"its roof is {over}"
    if intensity is not None:
        side = "left" if intensity < roof.ridge else "right"
        where = f"at {digits(intensity)} FLOP/byte, {side} of the ridge at {digits(roof.ridge)}, its roof is {over}"
    return (
        f"Neither: at {percent(reached)} of the roof ({where}), the limit is latency, waiting, imbalance or too few "
        f"warps; see `warplens findings`."
    )


def _times(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale


def kernel_of(lives: Lifetimes, kernel: str | None) -> str:
    """The variant of that label; of that kernel, or of the only one there is, the variant that took most time."""
    names = list(lives.variants)
    if kernel is None and len(lives.kernels) == 1:
        kernel = next(iter(lives.kernels))
    if kernel in lives.kernels and kernel not in names:
        # The work of a launch differs between variants, so their mean would be that of none.
        own = [name for name in names if lives.launches[int(lives.variants[name][0])].kernel == kernel]
        return max(own, key=lambda name: lives.kernel_ns(name) * len(lives.variants[name]))
    if not names:
        raise WarplensError("the trace holds no spans")
    if kernel not in names:
        asked = f"no kernel named {kernel!r}" if kernel else "the trace has several kernels: name one"
        raise UsageError(f"{asked}{did_you_mean(kernel or '', names)}")
    return kernel


def device_of(trace: Trace) -> str:
    """The name of the trace's device: the first with listed peaks; empty where the trace names none."""
    names = [str(device.get("name", "")) for device in trace.meta.devices.values()]
    return next((name for name in names if find_peak(name)), names[0] if names else "")


def _region_time(lives: Lifetimes, kernel: str, region: str) -> tuple[float, float]:
    """The ns per launch that a region was active, averaged over the device's SMs, and its instances per launch."""
    check_name(f"no region named {region!r}", region, lives.regions)
    infos = [lives.launches[at].info for at in lives.launches_of(kernel).tolist()]
    if any(info is not None and SAMPLED in info.extra for info in infos):
        raise UsageError(
            f"region {region!r} cannot be placed under a roofline: only some blocks of {kernel} were recorded; "
            "record all with --blocks all"
        )
    rows = np.flatnonzero(lives.is_span & (lives.region == lives.regions.index(region)))
    rows = rows[lives.tracks_of(kernel)[lives.of_row[rows]]]
    if not len(rows):
        raise UsageError(f"kernel {kernel!r} has no region {region!r}")
    start = lives.trace.numpy("start_ns")[rows]
    width = int((start + lives.trace.numpy("dur_ns")[rows]).max()) + 1
    axis = lives.place[lives.of_row[rows]] * width
    active = length(*union(axis + start, axis + start + lives.trace.numpy("dur_ns")[rows]))
    launches = lives.launches_of(kernel)
    sms = float(np.mean([lives.launches[at].sms for at in launches]))
    return active / len(launches) / sms, len(rows) / len(launches)
