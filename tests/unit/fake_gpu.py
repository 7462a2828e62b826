"""A Triton driver without a GPU: compiles for real, and launches into a function of the test's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from warplens._triton import memory


@dataclass
class Fired:
    """What the launcher was asked to run."""

    name: str
    grid: tuple[int, int, int]
    stream: int
    scratch: int
    cubin: bytes
    arguments: tuple[Any, ...]


class HostBuffer(memory.Buffer):
    """The launch buffer in host memory, where a test can play the kernel."""

    def __init__(self, nbytes: int) -> None:
        super().__init__(np.zeros(nbytes, np.uint8))

    @property
    def nbytes(self) -> int:
        return int(self.tensor.size)

    def align(self, alignment: int) -> int:
        address = int(self.tensor.ctypes.data)
        self.start = -address % alignment
        return address + self.start

    def synchronize(self) -> None:
        pass

    def rows(self, count: int, stride: int, offset: int, width: int) -> Any:
        tracks = self.tensor[self.start : self.start + count * stride].reshape(count, stride)
        return tracks[:, offset : offset + width].copy()


@dataclass
class FakeGpu:
    """The driver's state: what ran, and who plays the kernel."""

    capability: int = 90
    fired: list[Fired] = field(default_factory=list)
    play: Callable[[Fired], None] = lambda fired: None
    buffers: list[HostBuffer] = field(default_factory=list)
    stream: int = 7
    capturing: bool = False


@contextmanager
def fake_gpu(monkeypatch: Any, capability: int = 90) -> Iterator[FakeGpu]:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.runtime import _allocation, driver

    gpu = FakeGpu(capability)

    class Utils:
        def get_device_properties(self, device: int) -> dict[str, int]:
            return {"max_shared_mem": 232448, "multiprocessor_count": 132}

        def load_binary(self, name: str, kernel: bytes, shared: int, device: int) -> tuple[Any, ...]:
            return (name, name), (name, kernel), 32, 0, 1024

    class Launcher:
        def __init__(self, src: Any, metadata: Any) -> None:
            self.metadata = metadata

        def __call__(self, x: int, y: int, z: int, stream: int, function: Any, *arguments: Any) -> None:
            size = self.metadata.profile_scratch_size
            pointer = None
            if size:
                allocator = _allocation._profile_allocator.get()
                pointer = allocator(x * y * z * size, self.metadata.profile_scratch_align, stream)
            fired = Fired(function[0], (x, y, z), stream, int(pointer or 0), function[1], arguments)
            gpu.fired.append(fired)
            gpu.play(fired)

    class Driver:
        utils = Utils()
        launcher_cls = Launcher

        def get_current_device(self) -> int:
            return 0

        def get_current_stream(self, device: int) -> int:
            return gpu.stream

        def get_current_target(self) -> GPUTarget:
            return GPUTarget("cuda", gpu.capability, 32)

    def allocate(nbytes: int, stream: int | None) -> HostBuffer:
        gpu.buffers.append(HostBuffer(nbytes))
        return gpu.buffers[-1]

    monkeypatch.setattr(memory, "allocate", allocate)
    monkeypatch.setattr(memory, "capturing", lambda: gpu.capturing)
    monkeypatch.setattr(memory, "budget", lambda: 1 << 40)
    monkeypatch.setattr(memory, "describe", lambda profile: None)
    before = driver._active
    driver.set_active(Driver())
    try:
        yield gpu
    finally:
        driver._active = before
    assert triton.knobs.runtime.add_stages_inspection_hook is None
