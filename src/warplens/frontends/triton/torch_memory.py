"""Device memory through torch, which every Triton on a GPU has. One class, so that tests can replace it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt

from warplens.errors import WarplensError
from warplens.launch.memory import BUDGET_SHARE
from warplens.record.capture import OWN_WORK, Device


class Buffer:
    """Zeroed device bytes; `align` fixes where the tracks start."""

    def __init__(self, tensor: Any) -> None:
        self.tensor, self.start = tensor, 0

    @property
    def nbytes(self) -> int:
        return int(self.tensor.numel())

    def align(self, alignment: int) -> int:
        """The first aligned address, where the tracks start."""
        address = int(self.tensor.data_ptr())
        self.start = -address % alignment
        return address + self.start

    def synchronize(self) -> None:
        import torch

        with _failures():
            torch.cuda.synchronize(self.tensor.device)

    def rows(self, count: int, stride: int, offset: int, width: int) -> npt.NDArray[np.uint8]:
        """Bytes [offset, offset + width) of each of `count` tracks, on the host."""
        if not count or not width:
            return np.zeros((count, width), np.uint8)
        with _failures():
            tracks = self.tensor[self.start : self.start + count * stride].view(count, stride)
            host: npt.NDArray[np.uint8] = tracks[:, offset : offset + width].contiguous().cpu().numpy()
        return host


@contextmanager
def _failures() -> Iterator[None]:
    """Torch tells of a kernel that failed to whoever asks next: that is us, and the block's own error must go on."""
    try:
        yield
    except RuntimeError as error:
        raise WarplensError(f"records cannot be read: {str(error).partition(chr(10))[0]}") from None


def allocate(nbytes: int, stream: int | None) -> Buffer:
    """Zeroed bytes, ordered before the launch on `stream`."""
    import torch

    try:
        with _own_work(torch):
            current = torch.cuda.current_stream()
            if stream is None or stream == current.cuda_stream:
                return Buffer(torch.zeros(nbytes, dtype=torch.uint8, device="cuda"))
            with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
                return Buffer(torch.zeros(nbytes, dtype=torch.uint8, device="cuda"))
    except torch.cuda.OutOfMemoryError as error:
        raise MemoryError(str(error).partition("\n")[0]) from None


def _own_work(torch: Any) -> AbstractContextManager[Any]:
    """While PyTorch's profiler runs, a name for what follows: it is not the program's work."""
    running = torch.autograd._profiler_enabled()
    named: AbstractContextManager[Any] = torch.profiler.record_function(OWN_WORK) if running else nullcontext()
    return named


def capturing() -> bool:
    """Whether the current stream is being captured into a CUDA graph."""
    import torch

    return bool(torch.cuda.is_current_stream_capturing())


def budget() -> int:
    import torch

    return int(torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory * BUDGET_SHARE)


def device_index() -> int:
    """The number of the current device."""
    import torch

    return int(torch.cuda.current_device())


def device() -> Device:
    """The current device."""
    import torch

    index = device_index()
    properties = torch.cuda.get_device_properties(index)
    return Device(
        name=properties.name,
        index=index,
        sm_count=properties.multi_processor_count,
        capability=f"{properties.major}.{properties.minor}",
        clock_mhz=getattr(properties, "clock_rate", 0) / 1000,
        driver=f"CUDA {torch.version.cuda}",
    )
