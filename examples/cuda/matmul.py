"""Profile a CUDA kernel from Python: `python examples/cuda/matmul.py`. Needs a GPU, CuPy and warplens[cuda]."""

from __future__ import annotations

from pathlib import Path

import cupy

import warplens as wl
import warplens.cuda as wlcu

if not cupy.is_available():
    raise SystemExit("this example needs a GPU")

n = 512
a, b = (cupy.random.rand(n, n, dtype=cupy.float32) for _ in range(2))
c = cupy.zeros((n, n), cupy.float32)

module = wlcu.compile(Path(__file__).with_name("matmul.cu"))
with wl.profile("matmul.warplens") as prof:
    module["matmul"].launch((n // 32, n // 32), (32, 32), a, b, c, n)

assert float(abs(c - a @ b).max()) < 1e-2
print(prof.trace.stats())
