"""What stands between a launch and its records: the driver in every thread, torch after a kernel failed."""

from __future__ import annotations

import ctypes
import functools
import gc
import sys
import threading
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from warplens.driver.libcuda import Driver
from warplens.errors import WarplensError
from warplens.frontends.triton.torch_memory import Buffer
from warplens.launch import memory as driver_memory
from warplens.launch.buffers import Buffers
from warplens.launch.collected_run import CollectedRun
from warplens.launch.woven import WovenKernel
from warplens.options import Options
from warplens.record.capture import Device
from warplens.weave.weaving import Selection


class Library:
    """A libcuda whose contexts are, as in the real one, current in one thread."""

    def __init__(self) -> None:
        self.current: dict[int, int] = {}

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: 0 if self.current.get(threading.get_ident()) else 201

    def cuInit(self, flags: Any) -> int:
        return 0

    def cuDeviceGet(self, device: Any, index: Any) -> int:
        return 0

    def cuCtxGetCurrent(self, context: Any) -> int:
        context._obj.value = self.current.get(threading.get_ident(), 0)
        return 0

    def cuDevicePrimaryCtxRetain(self, context: Any, device: Any) -> int:
        context._obj.value = 77
        return 0

    def cuCtxSetCurrent(self, context: Any) -> int:
        self.current[threading.get_ident()] = context.value
        return 0

    def cuGetErrorString(self, status: Any, text: Any) -> int:
        return 0


def test_every_thread_that_launches_has_a_context(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    lib = Driver()
    lib.synchronize()
    problems: list[BaseException] = []

    def work(own: int) -> None:
        if own:
            library.current[threading.get_ident()] = own
        try:
            lib.synchronize()
            assert library.current[threading.get_ident()] == (own or 77), "a context of the program's own stays"
        except (WarplensError, AssertionError) as problem:
            problems.append(problem)

    for own in (0, 5):
        thread = threading.Thread(target=work, args=(own,))
        thread.start()
        thread.join()
    assert not problems


def test_a_kernel_that_failed_is_a_problem_of_the_profile_not_a_stack_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nCompile with TORCH_USE_CUDA_DSA")

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(synchronize=fail)))
    with pytest.raises(WarplensError, match="cannot be read: CUDA error: an illegal memory access was encountered$"):
        Buffer(SimpleNamespace(device="cuda:0")).synchronize()


class Small:
    """Device memory that holds one buffer: the next fits once the last was brought home."""

    def __init__(self) -> None:
        self.held, self.full = 0, False

    def budget(self) -> int:
        return 1 << 40

    def device_index(self) -> int:
        return 0

    def device(self) -> Device:
        return Device()

    def allocate(self, nbytes: int, stream: int | None) -> Any:
        if self.held or self.full:
            raise MemoryError("out of memory")
        self.held = nbytes
        return HostBuffer(self, nbytes)


class HostBuffer:
    def __init__(self, memory: Small, nbytes: int) -> None:
        self.nbytes = nbytes
        weakref.finalize(self, setattr, memory, "held", 0)

    def align(self, alignment: int) -> int:
        return alignment

    def synchronize(self) -> None:
        """Nothing ran."""

    def rows(self, count: int, stride: int, offset: int, width: int) -> Any:
        return np.zeros((count, width), np.uint8)


def test_launches_that_fill_the_device_are_brought_home_before_one_fails() -> None:
    memory = Small()
    buffers = Buffers(CollectedRun(), Options(), memory)
    kernel = WovenKernel(
        name="gemm",
        warps=1,
        regions={1: "load"},
        locations={},
        slack=1,
        full="stop",
        store="mixed",
        select=Selection(),
    )
    assert all(buffers.lend(kernel, (4, 1, 1), None) for _ in range(3))
    memory.full = True
    with pytest.raises(WarplensError, match="kernel gemm: no device memory for 4 tracks"):
        buffers.lend(kernel, (4, 1, 1), None)


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_memory_of_a_failed_device_goes_without_a_stack_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    monkeypatch.setattr(driver_memory, "driver", functools.cache(Driver))
    buffer = driver_memory.DriverBuffer(64, 0)
    refused: list[object] = []
    library.cuMemFree_v2 = lambda address: refused.append(address) or 700
    del buffer
    gc.collect()
    assert len(refused) == 1
