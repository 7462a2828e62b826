"""Marks for kernels of the CuTe DSL.

    import warplens as wl, warplens.cute as wlc

    @cute.kernel
    def gemm(mA, mB, mC):
        with wlc.region("load"):
            ...

    @cute.jit
    def run(mA, mB, mC):
        gemm(mA, mB, mC).launch(grid=..., block=...)

    compiled = cute.compile(run, a, b, c)
    with wl.profile("gemm.warplens"):
        compiled(a, b, c)

Outside `wl.profile` a mark is only a comment in the PTX. Inside, the kernel is woven and the comments become code that
records. A kernel that warplens cannot launch itself writes its records to a buffer that it takes as an argument:
`wlc.kernel(prof)` on its first line, and `prof = wlc.buffer()` on the host.
"""

from __future__ import annotations

from warplens.frontends.cute.requirement import require_cute

require_cute()

from warplens.frontends.cute.buffer_argument import Buffer  # noqa: E402
from warplens.frontends.cute.launch_hook import watch_launches  # noqa: E402
from warplens.frontends.cute.marks import *  # noqa: E402, F403
from warplens.frontends.cute.marks import __all__ as _MARKS  # noqa: E402
from warplens.frontends.cute.ptx_keeper import keep_marked_ptx  # noqa: E402
from warplens.frontends.cute.traced_kernel import kernel, watch_returns  # noqa: E402
from warplens.frontends.registry import attach  # noqa: E402

__all__ = ["Buffer", "buffer", "kernel", *_MARKS]

buffer = Buffer

watch_returns()
watch_launches()
attach("cutlass.cutlass_dsl")
keep_marked_ptx()
