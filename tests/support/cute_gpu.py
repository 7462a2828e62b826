"""CuTe DSL kernels without a GPU: compiled for real, called as the DSL calls them, run by the PTX interpreter."""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

os.environ["CUTE_DSL_ARCH"] = "sm_90a"  # read when the DSL is imported
pytest.importorskip("cutlass.cute", reason="needs nvidia-cutlass-dsl")

from cutlass import cute
from cutlass.base_dsl.jit_executor import JitExecutor

from tests.support.contexts import Contexts
from warplens import simulate
from warplens.frontends.cute import buffer_argument as buffer_file
from warplens.ptx import tree
from warplens.record.capture import Device


class CuteDriver(Contexts):
    """A CUDA driver for CuTe buffers in the interpreter's memory."""

    def __init__(self, space: simulate.GlobalMemory) -> None:
        self.space, self.allocated = space, 0

    def device(self) -> Device:
        return Device(name="simulated", sm_count=4, capability="9.0")

    def allocate(self, size: int) -> int:
        self.allocated += 1
        return int(self.space.alloc(size, 256))

    def free(self, address: int) -> None:
        self.allocated -= 1

    def clear(self, address: int, size: int, stream: int) -> None:
        self.space.write(address, np.zeros(size, np.uint8))

    def upload(self, address: int, data: bytes, stream: int) -> None:
        self.space.write(address, np.frombuffer(data, np.uint8))

    def download(self, address: int, size: int) -> bytes:
        return self.space.read(address, np.uint8, size).tobytes()

    def download_rows(self, address: int, pitch: int, width: int, rows: int, out_pitch: int) -> npt.NDArray[np.uint8]:
        out = np.zeros((rows, out_pitch), np.uint8)
        for row in range(rows):
            out[row, :width] = self.space.read(address + row * pitch, np.uint8, width)
        return out.reshape(-1)

    def synchronize(self) -> None: ...

    def stream(self) -> int:
        return 7

    def synchronize_stream(self, stream: int) -> None: ...

    def destroy_stream(self, stream: int) -> None: ...


@dataclass
class Gpu:
    """Simulated memory, and what was launched on it."""

    space: simulate.GlobalMemory = field(default_factory=lambda: simulate.GlobalMemory(64 << 20))
    launches: int = 0

    def array(self, values: npt.ArrayLike) -> int:
        return int(self.space.alloc(np.asarray(values)))

    def read(self, address: int, dtype: Any, count: int) -> npt.NDArray[Any]:
        return self.space.read(address, dtype, count)

    def attach(self, compiled: Any, grid: Any, block: Any, arguments: Sequence[Any], shared: int = 0) -> None:
        """Let `compiled(...)` run its kernels here: `arguments` are the kernel's, less the buffer's two at the end."""
        module = tree.parse(compiled.__ptx__)

        def launch(exe_args: Sequence[Any]) -> None:
            self.launches += 1
            cells = [ctypes.c_uint64.from_address(int(at)).value for at in exe_args[-2:]]
            for entry in module.entries:
                simulate.run(module, entry.name, grid, block, [*arguments, *cells], memory=self.space, shared=shared)

        executor = JitExecutor.__new__(JitExecutor)
        executor._get_invoke_packed_args_func = lambda exe_args: exe_args
        executor.capi_func, executor._has_cuda_result = launch, False
        compiled._default_executor = executor


def install(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """A GPU whose memory warplens allocates from for the rest of the test."""
    made = Gpu()
    driver = CuteDriver(made.space)
    monkeypatch.setattr(buffer_file, "driver", lambda: driver)
    return made


def compile_cute(function: Callable[..., Any], *arguments: Any) -> Any:
    """The compiled function with its PTX and cubin."""
    with tempfile.TemporaryDirectory() as folder:
        return cute.compile(function, *arguments, options=f"--keep-ptx --keep-cubin --dump-dir={folder}")
