"""As much of torch as the drop-ins' host halves use, on the interpreter's memory."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.fake_gpu import FakeGpu, Tensor


class FakeTensor(Tensor):
    """A tensor of the fake GPU with torch's names for what is done to it."""

    device = SimpleNamespace(type="cpu")

    def numel(self) -> int:
        return int(np.prod(self.shape))

    def zero_(self) -> FakeTensor:
        self.space.write(self.address, np.zeros(self.shape, self._dtype))
        return self

    def __getitem__(self, part: slice) -> Any:
        first, stop, _ = part.indices(self.numel())

        def copy(source: np.ndarray) -> None:
            assert len(source) == stop - first
            self.space.write(self.address + first * self.element_size(), np.ascontiguousarray(source))

        return SimpleNamespace(copy_=copy)

    def cpu(self) -> FakeTensor:
        return self


def install(monkeypatch: pytest.MonkeyPatch, gpu: FakeGpu) -> ModuleType:
    """`import torch` gives this for the rest of the test."""
    torch = ModuleType("torch")
    torch.int64, torch.float32 = np.int64, np.float32
    # Newer launchers ask whether an argument is a torch.Tensor; ours are not, and go by their data_ptr.
    torch.Tensor, torch.dtype = type("Tensor", (), {}), type("dtype", (), {})
    torch.zeros = lambda size, dtype, device: FakeTensor(gpu.space, np.zeros(size, dtype))
    torch.from_numpy = lambda values: values
    torch.cuda = SimpleNamespace(is_available=lambda: True, synchronize=lambda: None)
    monkeypatch.setitem(sys.modules, "torch", torch)
    return torch
