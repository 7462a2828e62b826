"""A lab on the GPU: arrays are torch tensors, kernels are compiled by warplens with marks or by CuPy without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.truth.pair import Kernel
from warplens.cuda import Module, flags
from warplens.frontends.cuda.nvrtc import cuda_includes

KERNELS = Path(__file__).with_name("kernels")


def arch() -> str:
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}" + ("a" if major >= 9 else "")


class GpuLab:
    """Kernels have marks, which record inside a profile."""

    def __init__(self) -> None:
        self.sms = torch.cuda.get_device_properties(0).multi_processor_count

    def size(self, full: int, small: int) -> int:
        return full

    def upload(self, values: np.ndarray[Any, Any]) -> Any:
        # torch has few unsigned types; the kernels only see bytes.
        signed = values.view(np.int32) if values.dtype == np.uint32 else values
        return torch.from_numpy(np.ascontiguousarray(signed)).cuda()

    def kernel(self, file: str, name: str, repaired: bool) -> Kernel:
        path = KERNELS / file
        return Module(path.read_text(), str(path), arch(), _definitions(repaired), woven=True)[name]


class UnmarkedLab(GpuLab):
    """The same kernels without marks, compiled by CuPy, for automatic marks."""

    def kernel(self, file: str, name: str, repaired: bool) -> Kernel:
        return _CupyKernel(KERNELS / file, name, repaired)


class _CupyKernel:
    def __init__(self, path: Path, name: str, repaired: bool) -> None:
        import cupy

        options = (*flags(off=True), *cuda_includes(), *_definitions(repaired), "-lineinfo")
        self._kernel = cupy.RawModule(code=path.read_text(), options=options).get_function(name)

    def launch(self, grid: Any, block: Any, *arguments: Any, shared: int = 0) -> None:
        given = [np.uint64(one.data_ptr()) if hasattr(one, "data_ptr") else one for one in arguments]
        if shared > 48 << 10:
            self._kernel.max_dynamic_shared_size_bytes = shared
        shape = grid if isinstance(grid, tuple) else (grid,)
        self._kernel(shape, (block,), (*given, np.uint64(0)), shared_mem=shared)


def _definitions(repaired: bool) -> tuple[str, ...]:
    return (f"-DREPAIRED={int(repaired)}",)
