"""Write a torch trace and the regions that warplens recorded inside its kernels as one Perfetto file, on one clock.

PyTorch's threads come first, then each GPU's streams, memory and alignment, then the SMs as in every other export. Flow
arrows lead from a launch call to its kernel, and from a kernel to its slices on the SMs.
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
    """Write a `.pftrace`; without recorded launches it holds the torch trace alone."""
    torch = aligned.torch
    times = [one.start for one in torch.slices[:1]] + [one.time for one in torch.memory[:1]]
    times += [kernel.start for kernel in aligned.kernels.values()]
    origin = min(times, default=0)
    trace = aligned.trace(origin)
    if len(trace):
        # Times must not be negative: a launch that begins before the first slice moves the origin.
        early = min(int(trace.numpy("start_ns").min()), 0)
        origin, trace = (origin + early, aligned.trace(origin + early)) if early else (origin, trace)
    tracks = TrackTable(trace)
    torch_writer = TorchWriter(aligned, origin, _TORCH_SEQUENCE, set(tracks.pid.tolist()), set(tracks.tid.tolist()))
    regions = _MergedWriter(aligned, trace, tracks, annotate, torch_writer.processes)
    with atomic_write(path, force=force) as out:
        regions.write(out)
        torch_writer.write(out, regions.flows)


class _MergedWriter(PerfettoWriter):
    """Writes the SMs' part, with a flow from each kernel to its launch slices on the SMs."""

    def __init__(
        self, aligned: Aligned, trace: Trace, tracks: TrackTable, annotate: bool | None, processes: int
    ) -> None:
        super().__init__(trace, tracks, annotate, first_rank=processes, sequence=_TORCH_SEQUENCE + 1)
        self._kernels = aligned.kernels
        self.flows: dict[int, list[int]] = {}
        """Flow ids, by the identity of the kernel's slice."""

    def links(self, entry: LaunchOnSm) -> bytes:
        kernel = self._kernels.get(entry.launch)
        if kernel is None:
            return b""
        flow = TO_SM + (entry.launch << 24) + entry.process
        self.flows.setdefault(id(kernel), []).append(flow)
        return w.fixed(47, flow)
