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
    """Arrays stay on the host until `move`, so that a case is made while another one has the GPU.

    Kernels have marks, which record inside a profile. With `unmarked` set, the same kernels run without marks, compiled
    by CuPy, for automatic marks.
    """

    def __init__(self) -> None:
        self.sms = torch.cuda.get_device_properties(0).multi_processor_count
        self.unmarked = False
        self._tensors: list[Any] = []

    def size(self, full: int, small: int) -> int:
        return full

    def upload(self, values: np.ndarray[Any, Any]) -> Any:
        # torch has few unsigned types; the kernels only see bytes.
        signed = values.view(np.int32) if values.dtype == np.uint32 else values
        self._tensors.append(torch.from_numpy(np.ascontiguousarray(signed)))
        return self._tensors[-1]

    def move(self) -> None:
        """Copy all arrays to the GPU; they stay the same objects."""
        for tensor in self._tensors:
            tensor.data = tensor.cuda()

    def zero(self, array: Any) -> None:
        array.zero_()

    def kernel(self, file: str, name: str, repaired: bool) -> Kernel:
        return _EitherKernel(self, KERNELS / file, name, repaired)


class _EitherKernel:
    """A kernel with marks, or without them where the lab says so."""

    def __init__(self, lab: GpuLab, path: Path, name: str, repaired: bool) -> None:
        self._lab, self._path, self._name, self._repaired = lab, path, name, repaired
        module = Module(path.read_text(), str(path), arch(), _definitions(repaired), woven=True)
        module.cubin("off")
        assert module.ptx, module.problem
        self._marked = module[name]
        self._unmarked: Any = None

    def launch(self, grid: Any, block: Any, *arguments: Any, shared: int = 0) -> None:
        if not self._lab.unmarked:
            self._marked.launch(grid, block, *arguments, shared=shared)
            return
        self._unmarked = self._unmarked or _by_cupy(self._path, self._name, self._repaired)
        kernel = self._unmarked
        given = [np.uint64(one.data_ptr()) if hasattr(one, "data_ptr") else one for one in arguments]
        if shared > 48 << 10:
            kernel.max_dynamic_shared_size_bytes = shared
        shape = grid if isinstance(grid, tuple) else (grid,)
        kernel(shape, block if isinstance(block, tuple) else (block,), (*given, np.uint64(0)), shared_mem=shared)


def _by_cupy(path: Path, name: str, repaired: bool) -> Any:
    import cupy

    options = (*flags(off=True), *cuda_includes(), *_definitions(repaired), "-lineinfo")
    return cupy.RawModule(code=path.read_text(), options=options).get_function(name)


def _definitions(repaired: bool) -> tuple[str, ...]:
    return (f"-DREPAIRED={int(repaired)}",)
