"""Marks for kernels of the CuTe DSL.

    import warplens as wl, warplens.cute as wlc

    @cute.kernel
    def gemm(mA, mB, mC, prof):
        wlc.kernel(prof)
        with wlc.region("load"):
            ...

    @cute.jit
    def run(mA, mB, mC, prof):
        gemm(mA, mB, mC, prof).launch(grid=..., block=...)

    prof = wlc.buffer()
    compiled = cute.compile(run, a, b, c, prof)
    with wl.profile("gemm.warplens"):
        compiled(a, b, c, prof)

Each launch inside a profile has its own buffer, even if the compiled kernel is cached and reused. Outside a profile the
kernel records nothing.
"""

from __future__ import annotations

from warplens.frontends.cute.requirement import require_cute

require_cute()

from warplens.frontends.cute.buffer_argument import Buffer  # noqa: E402
from warplens.frontends.cute.launch_hook import watch_launches  # noqa: E402
from warplens.frontends.cute.marks import *  # noqa: E402, F403
from warplens.frontends.cute.marks import __all__ as _MARKS  # noqa: E402
from warplens.frontends.cute.traced_kernel import kernel, watch_returns  # noqa: E402

__all__ = ["Buffer", "buffer", "kernel", *_MARKS]

buffer = Buffer

watch_returns()
watch_launches()
