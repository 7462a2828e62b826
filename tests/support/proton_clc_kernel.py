"""A Gluon kernel with Proton's scopes whose blocks take over the work of blocks that have not started (Blackwell)."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import clc
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

import warplens.compat.proton.language as pl


@gluon.jit
def taking_over(x, y, n, BLOCK: gl.constexpr):
    spread: gl.constexpr = gl.BlockedLayout([2], [32], [4], [0])
    answer = gl.allocate_shared_memory(gl.int64, [2], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    ready = mbarrier.allocate_mbarrier()
    mbarrier.init(ready, count=1)
    tile, parity, more = gl.program_id(0), gl.to_tensor(0), gl.to_tensor(True)
    while more:
        at = tile * BLOCK + gl.arange(0, BLOCK, spread)
        with pl.scope("scale"):
            gl.store(y + at, gl.load(x + at, at < n) * 2, at < n)
        pl.enter_scope("next tile")
        clc.try_cancel(answer, ready)
        mbarrier.expect(ready, 16)
        mbarrier.wait(ready, parity)
        found = clc.load_result(answer)
        pl.exit_scope("next tile")
        more, tile, parity = found.is_canceled(), found.program_id(0), parity ^ 1
