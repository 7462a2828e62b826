"""Align a warplens trace with the clock of a torch trace, and bound the error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from warplens.analyse.torch.kineto import Slice, TorchTrace
from warplens.analyse.torch.matching import Execution, match
from warplens.errors import UsageError, WarplensError
from warplens.ptx.symbols import base_name
from warplens.record.capture import HOST_NS
from warplens.trace.arrays import to_arrow
from warplens.trace.interval_fit import ClockLine, fit_intervals
from warplens.trace.model import Trace
from warplens.trace.schema import LaunchInfo
from warplens.wording import plural


@dataclass(frozen=True)
class Alignment:
    """How one device's clock maps to Kineto's, and the Kineto kernel of each launch.

    `error_ns` bounds the error of every matched launch's times among the torch slices, and by how much a launch exceeds
    its kernel. It adds to the trace's own clock error. `method` is `host` where the times of the launch calls decided
    which kernel a launch is, `time` where only the kernels' times did.
    """

    device: int
    line: ClockLine
    error_ns: float
    sticks_out_ns: float
    kernels: Mapping[int, Slice]
    unmatched: tuple[int, ...]
    method: str

    @property
    def drift_ppm(self) -> float:
        return self.line.drift * 1e6

    def to_json(self) -> dict[str, Any]:
        return {
            "device": self.device,
            "offset_ns": self.line.offset_ns,
            "reference_ns": self.line.reference_ns,
            "drift_ppm": self.drift_ppm,
            "error_ns": self.error_ns,
            "sticks_out_ns": self.sticks_out_ns,
            "matched": len(self.kernels),
            "unmatched": list(self.unmatched),
            "method": self.method,
        }

    def __str__(self) -> str:
        text = f"±{self.error_ns:,.0f} ns over {plural(len(self.kernels), 'kernel')}"
        if len(self.kernels) > 1:
            text += f", drift {self.drift_ppm:+.1f} ppm"
        if self.unmatched:
            text += f"; {plural(len(self.unmatched), 'recorded launch')} not in it"
        return text


@dataclass(frozen=True)
class Aligned:
    """A trace and a torch trace on one clock: Kineto's Unix ns."""

    source: Trace
    torch: TorchTrace
    alignments: Sequence[Alignment]

    @property
    def error_ns(self) -> float:
        return max((one.error_ns for one in self.alignments), default=0.0)

    @cached_property
    def kernels(self) -> dict[int, Slice]:
        """The kernel of the torch trace for each launch."""
        return {launch: kernel for one in self.alignments for launch, kernel in one.kernels.items()}

    def trace(self, origin: int) -> Trace:
        """The trace with its times on Kineto's clock, relative to `origin`."""
        source, zero = self.source, self.source.meta.origin_ns
        lines = {one.device: one.line for one in self.alignments}
        device = source.numpy("device")
        start = source.numpy("start_ns") + zero
        end = start + source.numpy("dur_ns")
        for number, line in lines.items():
            here = device == number
            start[here], end[here] = line(start[here]), line(end[here])
        table = source.spans
        for name, values in (("start_ns", start - origin), ("dur_ns", end - start)):
            table = table.set_column(table.schema.get_field_index(name), name, to_arrow(values))

        def moved(info: LaunchInfo) -> LaunchInfo:
            times = np.array([info.begin_ns, info.end_ns]) + zero
            begin, end = (lines[info.device](times) if info.device in lines else times) - origin
            return replace(info, begin_ns=int(begin), end_ns=int(end))

        return Trace(table, replace(source.meta, launches=tuple(map(moved, source.meta.launches)), origin_ns=origin))


def align(trace: Trace, torch: TorchTrace) -> Aligned:
    """Find each recorded launch among the kernels of the torch trace, and fit each device's clock to Kineto's."""
    infos = [info for info in trace.meta.launches if info.tracks]
    _check(trace, infos, torch)
    devices = sorted({info.device for info in infos})
    seen = {kernel.place[0] for kernel in torch.kernels}
    found = []
    for device in devices:
        mine = [info for info in infos if info.device == device]
        # If both traces have one GPU, it is the same one, whatever its number.
        alone = len(devices) == 1 and len(seen) == 1
        theirs = [kernel for kernel in torch.kernels if alone or kernel.place[0] == device]
        found.append(_align_device(device, mine, theirs, trace.meta.origin_ns, torch))
    return Aligned(trace, torch, found)


def _check(trace: Trace, infos: Sequence[LaunchInfo], torch: TorchTrace) -> None:
    if not infos:
        raise WarplensError("the trace has no launches, so it cannot be aligned with the torch trace")
    ranks = sorted({info.rank for info in infos})
    if len(ranks) > 1:
        raise UsageError(
            f"the trace has ranks {', '.join(map(str, ranks))}, a torch trace has one: merge the traces of each rank"
        )
    odd = sorted({info.clock for info in infos} - {"gpu"})
    if odd:
        raise UsageError(f"launches on the {odd[0]} clock cannot be aligned with a torch trace: record them on a GPU")
    if not trace.meta.origin_ns:
        raise WarplensError("the trace has no start time (origin_ns); profile again with this version")
    if not torch.kernels:
        raise WarplensError(
            f"{torch.path}: no GPU kernel in it; profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"
        )


def _align_device(
    device: int, infos: Sequence[LaunchInfo], kernels: Sequence[Slice], zero: int, torch: TorchTrace
) -> Alignment:
    launches = [_of_launch(info, zero) for info in infos]
    names = {one.key[0] for one in launches}
    kernels = [kernel for kernel in kernels if base_name(kernel.name) in names]
    if not kernels:
        raise WarplensError(
            f"{torch.path}: no kernel called {', '.join(sorted(names))} in it; were both recorded in the same run?"
        )
    if not any(kernel.grid for kernel in kernels):
        launches = [replace(one, key=(one.key[0], ())) for one in launches]
    pairs = match(launches, [_of_kernel(kernel, torch) for kernel in kernels])
    if not len(pairs.launch):
        raise WarplensError(
            f"{torch.path}: none of the {plural(len(launches), 'recorded launch')} matches a kernel in it"
        )
    begin = np.array([launches[at].begin for at in pairs.launch])
    end = np.array([launches[at].end for at in pairs.launch])
    start = np.array([kernels[at].start for at in pairs.kernel])
    stop = np.array([kernels[at].end for at in pairs.kernel])
    fit = fit_intervals(begin, start - begin, stop - end)
    sticks_out = np.maximum(np.maximum(start - fit.line(begin), fit.line(end) - stop), 0)
    placed = {infos[at].launch: kernels[kernel] for at, kernel in zip(pairs.launch, pairs.kernel, strict=True)}
    error = max(float(fit.error_ns(np.concatenate([begin, end])).max()), float(sticks_out.max()))
    missing = tuple(info.launch for info in infos if info.launch not in placed)
    method = "host" if pairs.by_host else "time"
    return Alignment(device, fit.line, error, float(sticks_out.max()), placed, missing, method)


def _of_launch(info: LaunchInfo, zero: int) -> Execution:
    host = info.extra.get(HOST_NS)
    return Execution((base_name(info.kernel), info.grid), info.begin_ns + zero, info.end_ns + zero, host)


def _of_kernel(kernel: Slice, torch: TorchTrace) -> Execution:
    call = torch.calls.get(kernel.correlation) if kernel.correlation is not None else None
    return Execution((base_name(kernel.name), kernel.grid), kernel.start, kernel.end, call.start if call else None)
