"""What stands between a launch and its records: the driver in every thread, memory that fills up, failed kernels."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import pytest

from tests.support.contexts import Contexts
from warplens import simulate
from warplens.driver import libcuda
from warplens.driver.libcuda import Driver
from warplens.errors import WarplensError
from warplens.launch.buffers import Buffers
from warplens.launch.collected_run import CollectedRun
from warplens.launch.variant import Variant
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


class Small(Contexts):
    """A device whose memory holds two launches, and whose kernels may fail."""

    def __init__(self) -> None:
        self.space, self.failed, self.size = simulate.GlobalMemory(64 << 20), False, 0

    def memory(self) -> tuple[int, int]:
        return 4 * self.size, 4 * self.size

    def device(self) -> Device:
        return Device("small", sm_count=1)

    def wait(self, event: int) -> None:
        if self.failed:
            raise WarplensError("cuEventSynchronize failed: an illegal memory access was encountered (CUDA error 700)")


KERNEL = WovenKernel(
    name="gemm",
    warps=1,
    regions={1: "load"},
    locations={},
    slack=1,
    full="stop",
    store="mixed",
    select=Selection(),
)


@pytest.fixture(name="small")
def _small(monkeypatch: pytest.MonkeyPatch) -> Small:
    small = Small()
    monkeypatch.setattr(libcuda, "driver", lambda: small)
    return small


def test_launches_that_fill_the_device_are_brought_home_before_one_fails(small: Small) -> None:
    small.size = 1 << 20
    run = CollectedRun()
    buffers, variant = Buffers(run, Options(records_per_warp=(1 << 16) - 18)), Variant("gemm", dict)
    for _ in range(5):
        launch = buffers.lend(KERNEL, variant, (1, 1, 1), 0)
        assert launch is not None
        with launch as pointer:
            assert pointer
    launches, problems = run.collect()
    assert (len(launches), problems) == (5, [])
    with pytest.raises(WarplensError, match="kernel gemm: no device memory for 4 tracks"):
        buffers.lend(KERNEL, variant, (4, 1, 1), 0)
    buffers.release()


def test_a_kernel_that_failed_is_a_problem_of_the_profile_not_a_stack_trace(small: Small) -> None:
    small.size, small.failed = 1 << 28, True
    run = CollectedRun()
    buffers = Buffers(run, Options())
    for _ in range(2):
        launch = buffers.lend(KERNEL, Variant("gemm", dict), (1, 1, 1), 0)
        assert launch is not None
        with launch:
            pass
    launches, problems = run.collect()
    assert not launches
    assert all("an illegal memory access was encountered" in problem for problem in problems)
    assert len(problems) == 2


def test_a_launch_that_the_program_could_not_make_gives_its_memory_back(small: Small) -> None:
    small.size = 1 << 20
    buffers, variant = Buffers(CollectedRun(), Options(records_per_warp=(1 << 16) - 18)), Variant("gemm", dict)
    for _ in range(5):
        launch = buffers.lend(KERNEL, variant, (1, 1, 1), 0)
        assert launch is not None
        with pytest.raises(ZeroDivisionError), launch:
            _ = 1 // 0
    assert buffers.engine().in_use == 0
