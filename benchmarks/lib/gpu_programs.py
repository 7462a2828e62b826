"""What the benchmarks share: build a kernel, launch it, time it, and say on what it ran."""

from __future__ import annotations

import datetime
import platform
import statistics
import subprocess
from collections.abc import Callable, Sequence
from ctypes import byref, c_float, c_int, c_void_p
from pathlib import Path
from typing import Any

import numpy as np

from warplens.driver.kernel_arguments import dim3, pack
from warplens.driver.libcuda import driver
from warplens.frontends.cuda.nvrtc import compile_cubin, compile_ptx, cuda_includes
from warplens.frontends.cuda.woven_build import FLAGS, WovenBuild, load
from warplens.launch.direct import DeviceBuffer
from warplens.record.launch_buffer import SPARE, plan
from warplens.record.layout import HEADER, HEADER_BYTES
from warplens.weave.weaver import Woven
from warplens.weave.weaving import AnyBuffer, Weaving, shift_for

KERNELS = Path(__file__).resolve().parent.parent / "kernels"


def arch() -> str:
    return "sm_" + driver().device().capability.replace(".", "") + "a"


def includes() -> list[str]:
    return [f"--include-path={KERNELS}", *cuda_includes()]


def marked_ptx(file: str, arch: str, *definitions: str) -> str:
    """The PTX of a source whose marks are still comments."""
    return compile_ptx((KERNELS / file).read_text(), file, arch, [*includes(), *definitions, *FLAGS])


class Program:
    """One kernel of one source with one set of definitions; with `how`, its marks are woven into its PTX."""

    def __init__(
        self, file: str, kernel: str, *definitions: str, how: Weaving | None = None, buffer: AnyBuffer | None = None
    ) -> None:
        if how is not None:
            build = load(driver(), marked_ptx(file, arch(), *definitions), how, buffer)
            self._open(build.handle, kernel, build)
        else:
            source = (KERNELS / file).read_text()
            self._open(driver().load(compile_cubin(source, file, arch(), [*includes(), *definitions])), kernel)

    def _open(self, module: int, kernel: str, build: WovenBuild | None = None) -> None:
        handle = driver().function(module, kernel)
        if handle is None:
            raise SystemExit(f"the module has no kernel {kernel}")
        self._module, self.handle, self._kernel, self.build = module, handle, kernel, build
        self._sizes = driver().parameter_sizes(handle)

    @property
    def registers(self) -> int:
        return self._attribute(4)

    @property
    def local_bytes(self) -> int:
        return self._attribute(3)

    def _attribute(self, number: int) -> int:
        value = c_int()
        driver()._call("cuFuncGetAttribute", byref(value), c_int(number), c_void_p(self.handle))
        return value.value

    def launch(self, grid: int | Sequence[int], block: int | Sequence[int], *arguments: Any, shared: int = 0) -> None:
        if shared > 48 << 10:
            driver().allow_shared(self.handle, shared)
        packed = pack(self._kernel, arguments, self._sizes)
        driver().launch(self.handle, dim3(grid, "grid"), dim3(block, "block"), packed, shared, 0)


class Loaded(Program):
    """A kernel of a cubin that was woven and assembled elsewhere."""

    def __init__(self, cubin: bytes, kernel: str, woven: Woven) -> None:
        module = driver().load(cubin)
        self._open(module, kernel, WovenBuild(module, woven, {}, {}))


class Memory:
    """Device memory that lives as long as the object."""

    def __init__(self, size: int | np.ndarray[Any, Any]) -> None:
        data = size.tobytes() if isinstance(size, np.ndarray) else None
        self.size = len(data) if data is not None else int(size)  # type: ignore[arg-type]
        self.address = driver().allocate(max(self.size, 16))
        if data is None:
            self.clear()
        else:
            driver().upload(self.address, data, 0)

    def clear(self) -> None:
        driver().clear(self.address, max(self.size, 16), 0)

    def read(self, dtype: Any) -> np.ndarray[Any, Any]:
        driver().synchronize()
        return np.frombuffer(driver().download(self.address, self.size), dtype)

    def __del__(self) -> None:
        driver().free(self.address)


def buffer(
    kernel: str,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    records: int,
    full: str = "stop",
) -> DeviceBuffer:
    blocks, threads = dim3(grid, "grid"), dim3(block, "block")
    sizes = plan(blocks, threads, records=records, full=full, spare=SPARE)
    return DeviceBuffer(driver(), kernel, blocks, threads, sizes, full=full, stream=0, names=None)


class WovenBuffer:
    """Tracks for launches of a woven kernel; `pointer` is what the kernel takes."""

    def __init__(self, program: Program, tracks: int, records: int) -> None:
        assert program.build is not None
        self.tracks, self.shift = tracks, shift_for(records, "stop", program.build.woven.slack)
        self._memory = Memory((tracks + 1) << self.shift)
        self.pointer = -(-self._memory.address >> self.shift) << self.shift | self.shift

    def written(self) -> np.ndarray[Any, Any]:
        """Records that each track claims, kept or not."""
        driver().synchronize()
        base = self.pointer >> self.shift << self.shift
        headers = driver().download_rows(base, 1 << self.shift, HEADER_BYTES, self.tracks, HEADER_BYTES).view(HEADER)
        return np.asarray(headers["written"])


def timed(work: Callable[[], None]) -> float:
    """Microseconds between two events around `work`."""
    lib = driver()
    start, end, milliseconds = c_void_p(), c_void_p(), c_float()
    for event in (start, end):
        lib._call("cuEventCreate", byref(event), c_int(0))
    lib._call("cuEventRecord", start, None)
    work()
    lib._call("cuEventRecord", end, None)
    lib._call("cuEventSynchronize", end)
    lib._call("cuEventElapsedTime", byref(milliseconds), start, end)
    for event in (start, end):
        lib._call("cuEventDestroy", event)
    return milliseconds.value * 1000


def median(values: Sequence[float]) -> float:
    return float(statistics.median(values))


def context(command: str) -> dict[str, Any]:
    """Device, driver, versions, date and command, as every result file says them."""
    device = driver().device()
    return {
        "device": device.name,
        "driver": f"{_driver_version()} ({device.driver})",
        "nvrtc": _nvrtc_version(),
        "sm_count": device.sm_count,
        "python": platform.python_version(),
        "date": datetime.date.today().isoformat(),
        "command": command,
    }


def _driver_version() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def _nvrtc_version() -> str:
    from cuda.bindings import nvrtc

    _, major, minor = nvrtc.nvrtcVersion()
    return f"{major}.{minor}"
