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
from warplens.frontends.cute.marks import (  # noqa: E402
    Token,
    anchor,
    arrive,
    async_begin,
    async_end,
    begin,
    end,
    end_event,
    instant,
    region,
    start_event,
    value,
    wait,
)
from warplens.frontends.cute.traced_kernel import kernel, watch_returns  # noqa: E402

__all__ = [
    "Buffer", "Token", "anchor", "arrive", "async_begin", "async_end", "begin", "buffer", "end", "end_event", "instant",
    "kernel", "region", "start_event", "value", "wait",
]  # fmt: skip

buffer = Buffer

watch_returns()
watch_launches()
