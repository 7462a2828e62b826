"""One launch's memory: sized from its shape, or from a limit where only the device knows the shape."""

from __future__ import annotations

import sys
from typing import Any

from warplens.driver.libcuda import Driver
from warplens.errors import UsageError
from warplens.launch.direct import DeviceBuffer
from warplens.record.capture import Dim3, Launch
from warplens.record.launch_buffer import DEFAULT_BYTES, BufferPlan, plan
from warplens.record.layout import MAX_SLOTS, track_stride
from warplens.session import Session

DEFAULT_RECORDS = 512
"""Slots per warp where the shape of the launch is not known."""
_WIDTH_8 = ("int64", "uint64")


def plan_for(shape: tuple[Dim3, Dim3] | None, records: int | None, full: str, tensor: Any = None) -> BufferPlan:
    """The sizes of a buffer; without a shape, as many tracks as the memory holds."""
    if shape is not None:
        return plan(*shape, records=records, full=full)
    wish = DEFAULT_RECORDS if records is None else records
    if wish >= MAX_SLOTS:
        raise UsageError(f"records_per_warp={wish}: at most {MAX_SLOTS - 1} fit one track")
    stride = track_stride(wish + 1)
    room = _bytes(tensor) if tensor is not None else max(DEFAULT_BYTES, 64 * stride)
    return BufferPlan(wish, stride, max(0, (room - BufferPlan(0, 0, 0, 0).size) // stride - 1), 0)


def check_tensor(tensor: Any, shape: tuple[Dim3, Dim3] | None, records: int | None) -> None:
    """Refuse memory that cannot hold a launch's records."""
    interface = getattr(tensor, "__cuda_array_interface__", None) if _on_gpu(tensor) else None
    if interface is None:
        raise UsageError(
            f"wlc.buffer(tensor=...) is on {getattr(tensor, 'device', type(tensor).__name__)}; it must be on the GPU "
            "that runs the kernel: torch.zeros(n, dtype=torch.int64, device='cuda')"
        )
    kind = str(tensor.dtype).rpartition(".")[2]
    if kind not in _WIDTH_8:
        raise UsageError(f"wlc.buffer(tensor=...) has dtype {kind}; it must be int64, one element per record")
    if interface.get("strides"):
        raise UsageError("wlc.buffer(tensor=...) is not contiguous; give one that is")
    wanted = plan_for(shape, records, "stop", tensor)
    if wanted.tracks < 1 or wanted.allocation > _bytes(tensor):
        need = (wanted if shape else BufferPlan(wanted.capacity, wanted.stride, 1, 0)).allocation
        raise UsageError(
            f"wlc.buffer(tensor=...) has {_bytes(tensor):,} bytes and needs {need:,} for "
            f"{'this grid and block' if shape else 'one warp'} with {wanted.capacity} records per warp; "
            f"give it {-(-need // 8):,} elements or lower records_per_warp"
        )


def _on_gpu(tensor: Any) -> bool:
    return "cpu" not in str(getattr(tensor, "device", ""))


def _bytes(tensor: Any) -> int:
    size = 8
    for length in tensor.shape:
        size *= int(length)
    return size


class CuteBuffer(DeviceBuffer):
    """A launch's buffer whose shape, kernel and names the device may be the first to know."""

    silent = (
        "no warp reached wlc.kernel(prof). Is it the kernel's first line, with the buffer passed as that argument, and "
        "was the kernel compiled without enabled=False and WARPLENS=0? A condition given as leader= may never hold"
    )
    too_small = "give wlc.buffer the grid and block of the launch, a smaller records_per_warp or a larger tensor"
    shared = "two kernels of one call wrote to the same wlc.buffer; pass each kernel a buffer of its own"

    def __init__(
        self,
        driver: Driver,
        kernel: str,
        shape: tuple[Dim3, Dim3] | None,
        sizes: BufferPlan,
        running: Session,
        stream: int,
        tensor: Any = None,
    ) -> None:
        self._asked = running.options.full
        self._kept: Launch | None = None
        memory = int(tensor.__cuda_array_interface__["data"][0]) if tensor is not None else 0
        grid, block = shape or ((1, 1, 1), (1, 1, 1))
        super().__init__(driver, kernel, grid, block, sizes, full=self._asked, stream=stream, names=None, memory=memory)

    def keep(self) -> None:
        """Bring the records home now, because their memory is needed for the next launch."""
        if self._kept is None:
            self._kept = super().collect()

    def collect(self) -> Launch:
        self.keep()
        assert self._kept is not None
        if self._kept.full != self._asked:
            print(
                f"warplens: kernel {self._kept.kernel!r} was compiled with full={self._kept.full!r}; compile it inside "
                f"the profile or give wlc.kernel full={self._asked!r}",
                file=sys.stderr,
            )
        return self._kept
