"""Run by test_attention_triton.py under TRITON_INTERPRET=1: the Triton kernel against float64, without torch."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from triton.runtime import interpreter

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "attention"))
import reference
from triton_flash import Config, run

import warplens as wl


def one_element(tensor: Any, scope: Any, patch: Any = interpreter._patch_lang_tensor) -> None:
    """numpy 2.4 no longer makes an int of an array of one element, which the interpreter of Triton 3.6 asks it for."""
    patch(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())


interpreter._patch_lang_tensor = one_element


@dataclass(frozen=True)
class Dtype:
    name: str
    itemsize: int

    def __str__(self) -> str:
        return f"torch.{self.name}"


class Tensor:
    """A numpy array with the names that Triton's interpreter asks a tensor for."""

    def __init__(self, array: np.ndarray, dtype: str) -> None:
        self.array, self.dtype = array, Dtype(dtype, array.itemsize)
        self.shape = array.shape

    def data_ptr(self) -> int:
        return self.array.ctypes.data

    def untyped_storage(self) -> Tensor:
        return self

    def cpu(self) -> Tensor:
        return self

    def new_empty(self, size: int, device: str) -> Tensor:
        return Tensor(self.array, self.dtype.name)

    def set_(self, *storage: object) -> None:
        assert storage[0].data_ptr() == self.data_ptr()

    def storage_offset(self) -> int:
        return 0

    def size(self) -> tuple[int, ...]:
        return self.shape

    def stride(self) -> tuple[int, ...]:
        return tuple(step // self.array.itemsize for step in self.array.strides)

    def copy_(self, other: Tensor) -> None:
        assert other.data_ptr() == self.data_ptr()


def aligned(array: np.ndarray) -> np.ndarray:
    """The same values at an address that a tensor descriptor may name."""
    room = np.empty(array.nbytes + 16, np.uint8)
    start = -room.ctypes.data % 16
    made = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


def check(head: int, length: int, causal: bool, config: Config) -> None:
    """fp16 only: the interpreter multiplies the bits of bf16 as if they were integers."""
    rng = np.random.default_rng(length)
    stored = [rng.standard_normal((1, 2, length, head), np.float32).astype(np.float16) for _ in range(3)]
    q, k, v = (Tensor(aligned(array), "float16") for array in stored)
    out = Tensor(aligned(np.full((1, 2, length, head), np.nan, np.float16)), "float16")
    with wl.profile() as profile:
        run(q, k, v, out, causal=causal, config=config)
    error = reference.error(out.array, reference.attention(*stored, causal=causal))
    assert error.within(reference.TOLERANCE["fp16"]), (head, length, causal, error)
    regions = {row.region for row in profile.trace.stats()}
    assert regions == {"load q", "qk", "softmax", "pv", "store"}, regions
    print(f"head {head} length {length} causal {causal}: {error.relative:.1e}")


check(64, 200, False, Config(64, 32, 4, 2))
check(64, 130, True, Config(64, 32, 4, 2))
check(128, 97, True, Config(32, 64, 4, 2))
check(128, 64, False, Config(64, 64, 4, 2))
check(64, 1, False, Config(64, 64, 4, 2))
