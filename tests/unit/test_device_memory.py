"""What stands between a launch and its records: the driver in every thread, torch after a kernel failed."""

from __future__ import annotations

import ctypes
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from warplens._cuda.driver import Driver
from warplens._triton.memory import Buffer
from warplens.errors import WarplensError


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
