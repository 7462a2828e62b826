"""A Triton driver without a GPU: kernels are compiled for real and their PTX runs in the interpreter."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.contexts import Contexts
from warplens import simulate
from warplens.driver import libcuda
from warplens.launch.launch_timer import METER_NS
from warplens.launch.timing import BUSY_NS
from warplens.ptx import tree
from warplens.record.capture import Device


@dataclass
class Fired:
    """One launch the driver was asked for."""

    name: str
    grid: tuple[int, int, int]
    stream: int
    scratch: int
    ptx: str
    cooperative: bool


class LaunchDriver(Contexts):
    """The CUDA driver as the launch engine uses it, over the memory of a fake GPU."""

    def __init__(self, gpu: FakeGpu) -> None:
        self.gpu, self.space = gpu, gpu.space
        self.images: list[str] = []
        self.events: dict[int, float] = {}

    def memory(self) -> tuple[int, int]:
        return self.gpu.budget * 4, self.gpu.budget * 4

    def device(self) -> Device:
        return Device()

    def load(self, image: bytes) -> int:
        self.check_safe("cuModuleLoadData")
        # The interpreter needs seconds for what the kernels that keep a GPU busy take there.
        text = image.rstrip(b"\0").decode()
        self.images.append(text.replace(str(METER_NS), "320").replace(str(BUSY_NS), "320"))
        return len(self.images) - 1

    def unload(self, module: int) -> None: ...

    def function(self, module: int, name: str) -> int | None:
        """The kernels of warplens itself run only where time passes."""
        return module if self.gpu.timed else None

    def launch(self, function: int, grid: Any, block: Any, arguments: list[bytes], shared: int, stream: int) -> None:
        text = self.images[function]
        values = [int.from_bytes(one, "little") for one in arguments]
        self.gpu.run(text, tree.parse(text).entries[0].name, grid, block, values, shared)

    def download(self, address: int, size: int) -> bytes:
        return bytes(self.space.read(address, np.uint8, size).tobytes())

    def synchronize_stream(self, stream: int) -> None: ...

    def event(self, stream: int) -> int:
        handle = super().event(stream)
        self.events[handle] = self.gpu.now_ns
        return handle

    def reached(self, event: int) -> bool:
        return not self.gpu.timed

    def elapsed_ns(self, first: int, second: int) -> float:
        return self.events[second] - self.events[first]


class Tensor:
    """What Triton needs of a tensor: a type and an address."""

    def __init__(self, space: simulate.GlobalMemory, values: np.ndarray) -> None:
        self.space, self.shape, self.dtype = space, values.shape, values.dtype.name
        self.address = space.alloc(values)
        self._dtype = values.dtype

    def data_ptr(self) -> int:
        return self.address

    def element_size(self) -> int:
        return self._dtype.itemsize

    def numpy(self) -> np.ndarray:
        return self.space.read(self.address, self._dtype, int(np.prod(self.shape))).reshape(self.shape)


@dataclass
class FakeGpu:
    """What ran, and the switches a test may turn."""

    space: simulate.GlobalMemory = field(default_factory=lambda: simulate.GlobalMemory(256 << 20))
    fired: list[Fired] = field(default_factory=list)
    capability: int = 80
    stream: int = 7
    budget: int = 1 << 27
    execute: bool = True
    driver: Any = None
    timed: bool = False
    """Whether events tell the time that launches take in the interpreter."""
    noise: Any = None
    """A function that gives each launch a time of its own in ns, besides its own."""
    now_ns: float = 0.0

    def run(self, text: str, name: str, grid: Any, block: Any, values: list[Any], shared: int) -> None:
        """Run a kernel in the interpreter; its time passes if anybody asks for it."""
        result = simulate.run(text, name, grid, block, values, memory=self.space, shared=shared)
        if self.timed:
            self.now_ns += result.end_ns - result.start_ns + (self.noise() if self.noise else 0.0)

    def tensor(self, values: np.ndarray) -> Tensor:
        return Tensor(self.space, values)


@contextmanager
def fake_gpu(monkeypatch: pytest.MonkeyPatch, *kernels: Any, **settings: Any) -> Iterator[FakeGpu]:
    """A fake driver for the block; nothing of it, and no hook of a profile, is left behind. What `kernels` were
    compiled to is dropped in the end, since it keeps the memory of the fake GPU that it ran on."""
    from triton import knobs
    from triton.backends.compiler import GPUTarget
    from triton.compiler import CompiledKernel
    from triton.runtime import _allocation, driver

    gpu = FakeGpu(**settings)
    loading: list[str] = []
    made: weakref.WeakSet[CompiledKernel] = weakref.WeakSet()
    make = CompiledKernel.__init__

    def noted(kernel: CompiledKernel, *arguments: Any, **options: Any) -> None:
        made.add(kernel)
        make(kernel, *arguments, **options)

    def on_load(module: Any, function: Any, name: str, group: dict[str, str], key: str) -> None:
        loading.append(next(Path(path).read_text() for file, path in group.items() if file.endswith(".ptx")))

    class Utils:
        def get_device_properties(self, device: int) -> dict[str, int]:
            return {"max_shared_mem": 232448, "multiprocessor_count": 132}

        def load_binary(self, name: str, kernel: bytes, shared: int, device: int) -> tuple[Any, ...]:
            cuda.check_safe("cuModuleLoadData")
            return name, (name, loading[-1]), 32, 0, 1024

        def unload_module(self, module: Any) -> None:
            pass

    class Launcher:
        def __init__(self, src: Any, metadata: Any) -> None:
            self.signature, self.metadata = src.signature, metadata

        def __call__(self, x: int, y: int, z: int, stream: int, function: Any, *arguments: Any) -> None:
            meta, pointer = self.metadata, None
            launch_metadata, enter, leave = arguments[1:4]
            if enter is not None:  # Inductor's launchers give none
                enter(launch_metadata)
            if meta.profile_scratch_size:
                allocate = _allocation._profile_allocator.get()
                pointer = allocate(x * y * z * meta.profile_scratch_size, meta.profile_scratch_align, stream)
            together = bool(meta.launch_cooperative_grid)
            given = arguments[len(arguments) - len(self.signature) :]
            values = [_plain(v) for v, kind in zip(given, self.signature.values(), strict=True) if kind != "constexpr"]
            values += [0, int(pointer or 0)]

            def launch(function: Any) -> None:
                name, text = function
                gpu.fired.append(Fired(name, (x, y, z), stream, int(pointer or 0), text, together))
                if gpu.execute:
                    gpu.run(text, name, (x, y, z), 32 * meta.num_warps, values, meta.shared)

            cuda.graphs.run(stream, function, launch)
            if leave is not None:
                leave(launch_metadata)

    class Driver:
        utils = Utils()
        launcher_cls = Launcher

        def get_current_device(self) -> int:
            return 0

        def get_current_stream(self, device: int) -> int:
            return gpu.stream

        def get_current_target(self) -> GPUTarget:
            return GPUTarget("cuda", gpu.capability, 32)

    gpu.driver = cuda = LaunchDriver(gpu)
    monkeypatch.setattr(libcuda, "driver", lambda: cuda)
    before = driver._active
    driver.set_active(Driver())
    knobs.runtime.kernel_load_start_hook.add(on_load)
    CompiledKernel.__init__ = noted
    try:
        yield gpu
    finally:
        for kernel in kernels:
            kernel.device_caches.clear()
        if kernels:
            gc.collect()
        CompiledKernel.__init__ = make
        # A kernel that outlives its fake driver must not ask for the real one when it is collected: Triton 3.9 then
        # looks for drivers wherever the garbage collector happens to run, and an `ast.parse` does not survive that.
        for kernel in made:
            kernel.module = None
        knobs.runtime.kernel_load_start_hook.remove(on_load)
        driver._active = before
    assert knobs.runtime.add_stages_inspection_hook is None
    assert isinstance(_allocation._profile_allocator.get(), _allocation.NullAllocator)


def _plain(value: Any) -> Any:
    return value.data_ptr() if hasattr(value, "data_ptr") else value
