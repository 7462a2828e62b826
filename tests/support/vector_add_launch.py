"""A kernel that nvcc compiled, as intercepted libraries load it, and the data of its launches."""

from __future__ import annotations

import re

import numpy as np

from tests.support.fake_driver import FakeDriver
from tests.support.golden_ptx import GOLDEN
from warplens.ptx import tree


def kernel_only(name: str, text: str) -> str:
    """The module with one of its kernels and none of its variables."""
    module = tree.parse(re.sub(r"// @warplens.*", "", text))
    module.items = [
        item for item in module.items
        if not (isinstance(item, tree.Function) and item.name != name) and not isinstance(item, tree.Declaration)
    ]  # fmt: skip
    return module.text().replace('"golden/kernels.cu"', '"folder/default_program"')


PTX = kernel_only("vector_add", (GOLDEN / "nvcc_kernels_lineinfo.ptx").read_text())


class Data:
    """Arguments of vector_add, and what it should leave."""

    def __init__(self, gpu: FakeDriver) -> None:
        self.gpu = gpu
        self.a, self.b = np.arange(100, dtype=np.float32), np.ones(100, np.float32)
        self.places = [gpu.space.alloc(self.a), gpu.space.alloc(self.b), gpu.space.alloc(400)]
        self.arguments = (*self.places, np.int32(100))

    def result(self) -> np.ndarray:
        values = self.gpu.space.read(self.places[2], np.float32, 100)
        self.gpu.space.write(self.places[2], np.zeros(100, np.float32))
        np.testing.assert_array_equal(values, self.a + self.b)
        return values


GRID, BLOCK = (4,), (32,)
