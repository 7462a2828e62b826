"""Marks for TileLang kernels.

    import warplens as wl, warplens.tilelang as wlt

    @T.prim_func
    def gemm(A: T.Tensor(...), ...):
        with T.Kernel(...) as (bx, by):
            for k in T.Pipelined(...):
                with wlt.region("load"):
                    T.copy(A[by * M, k * K], A_shared)

    with wl.profile("out.warplens"):
        kernel(a, b)

A region changes nothing in the kernel that TileLang compiles. In a profile, the kernel is compiled once more, with the
begin and the end of each region around the code that TileLang made of it.
"""

from __future__ import annotations

from warplens.installed import require

require("tilelang", "tilelang", "tilelang")

from warplens.frontends.driver_calls.loaded_code import expect_hand_marks  # noqa: E402
from warplens.frontends.registry import attach  # noqa: E402
from warplens.frontends.tilelang.frontend import keep_latest_regions  # noqa: E402
from warplens.frontends.tilelang.marks import *  # noqa: E402, F403
from warplens.frontends.tilelang.marks import __all__ as __all__  # noqa: E402

expect_hand_marks("tilelang")
keep_latest_regions()
attach("tilelang")
