"""A CuTe DSL kernel that is called through TVM-FFI, for benchmarks/reach.py. The DSL reads its source from its file."""

from collections.abc import Callable
from typing import Any

import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack

import warplens as wl

N, THREADS, RECORDED, TIMES = 1 << 20, 256, 6, 30


@cute.kernel
def scale_kernel(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * THREADS + thread
    s = cutlass.Float32(0.0)
    for _ in range(16):
        s = s * 0.5 + x[i]
    y[i] = s


@cute.jit
def scale(x: cute.Tensor, y: cute.Tensor):
    scale_kernel(x, y).launch(grid=[N // THREADS, 1, 1], block=[THREADS, 1, 1])


def run_tvm_ffi(described: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """Compile and call the function inside a profile and after it."""
    x, y = torch.rand(N, device="cuda"), torch.zeros(N, device="cuda")

    def run(function: Any) -> bytes:
        y.zero_()
        for _ in range(TIMES):
            function(x, y)
        torch.cuda.synchronize()
        return bytes(y.cpu().numpy().tobytes())

    def compiled() -> Any:
        return cute.compile(scale, from_dlpack(x), from_dlpack(y), options="--enable-tvm-ffi")

    with wl.profile(auto=True, launches=RECORDED) as profile:
        marked = run(compiled())
    plain = run(compiled())
    row = described(profile.trace, profile, {"scale_kernel": N // 32})
    return {**row, "identical": marked == plain and any(plain)}
