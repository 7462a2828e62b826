"""One Perfetto file of a torch trace and what warplens recorded inside its kernels, on one clock.

PyTorch's threads come first, then each GPU's streams, its memory and what is known of the alignment, then the SMs as in
every other export. Arrows lead from a launch call to its kernel, and from a kernel to what each SM saw of it.
"""

from __future__ import annotations

from pathlib import Path

from warplens.analyse.torch.alignment import Aligned
from warplens.export import wire as w
from warplens.export.packets import HEAD_SEQUENCE
from warplens.export.perfetto import PerfettoWriter
from warplens.export.torch_tracks import TO_SM, TorchWriter
from warplens.export.track_table import LaunchOnSm, TrackTable
from warplens.files import atomic_write
from warplens.trace.model import Trace

_TORCH_SEQUENCE = HEAD_SEQUENCE + 1


def write_merged(aligned: Aligned, path: Path, *, force: bool = True, annotate: bool | None = None) -> None:
    """Write a `.pftrace`; with no launch recorded it holds the torch trace alone."""
    torch = aligned.torch
    times = [one.start for one in torch.slices[:1]] + [one.time for one in torch.memory[:1]]
    times += [kernel.start for kernel in aligned.kernels.values()]
    origin = min(times, default=0)
    trace = aligned.trace(origin)
    if len(trace):
        # Nothing is clamped: where a launch sticks out of the very first slice, the file begins with it.
        early = min(int(trace.numpy("start_ns").min()), 0)
        origin, trace = (origin + early, aligned.trace(origin + early)) if early else (origin, trace)
    tracks = TrackTable(trace)
    beside = TorchWriter(aligned, origin, _TORCH_SEQUENCE, set(tracks.pid.tolist()), set(tracks.tid.tolist()))
    regions = _MergedWriter(aligned, trace, tracks, annotate, beside.processes)
    with atomic_write(path, force=force) as out:
        regions.write(out)
        beside.write(out, regions.flows)


class _MergedWriter(PerfettoWriter):
    """The SMs' part: each launch's slice on an SM is tied to its kernel."""

    def __init__(
        self, aligned: Aligned, trace: Trace, tracks: TrackTable, annotate: bool | None, processes: int
    ) -> None:
        super().__init__(trace, tracks, annotate, first_rank=processes, sequence=_TORCH_SEQUENCE + 1)
        self._kernels = aligned.kernels
        self.flows: dict[int, list[int]] = {}
        """By the identity of a kernel's slice."""

    def links(self, entry: LaunchOnSm) -> bytes:
        kernel = self._kernels.get(entry.launch)
        if kernel is None:
            return b""
        flow = TO_SM + (entry.launch << 24) + entry.process
        self.flows.setdefault(id(kernel), []).append(flow)
        return w.fixed(47, flow)
