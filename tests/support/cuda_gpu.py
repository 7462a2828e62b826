"""Device memory, a kernel and parallel commands for tests that need a real CUDA GPU."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from warplens.driver.libcuda import driver
from warplens.errors import WarplensError


def has_gpu() -> bool:
    try:
        driver()
    except WarplensError:
        return False
    return True


NEEDS_GPU = [pytest.mark.gpu, pytest.mark.skipif(not has_gpu(), reason="needs a GPU")]


class Ints:
    """Device ints, zeroed."""

    def __init__(self, count: int) -> None:
        self.count, self.address = count, driver().allocate(4 * count)
        driver().clear(self.address, 4 * count, 0)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"data": (self.address, False), "shape": (self.count,), "typestr": "<i4", "version": 3}

    def read(self) -> list[int]:
        driver().synchronize()
        return list(np.frombuffer(driver().download(self.address, 4 * self.count), np.int32))

    def __del__(self) -> None:
        driver().free(self.address)


SAXPY = r"""
#include <warplens.cuh>
extern "C" __global__ void saxpy(float a, const float* x, float* y, int n, wl::Buffer prof) {
  wl::Kernel k(prof);
  WL_REGION("saxpy");
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float v;
  { WL_REGION("load"); v = x[i]; }
  y[i] += a * v;
}
"""


def in_parallel(commands: Sequence[Sequence[str | Path]]) -> list[subprocess.CompletedProcess[str]]:
    def run(command: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
        return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300)

    with ThreadPoolExecutor(len(commands)) as pool:
        return list(pool.map(run, commands))
