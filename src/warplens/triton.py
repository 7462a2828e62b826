"""Marks for Triton and Gluon kernels.

    import warplens as wl, warplens.triton as wlt

    @triton.jit
    def kernel(p):
        with wlt.region("load"):
            x = tl.load(p)

    with wl.profile("out.warplens"):
        kernel[grid](...)

Outside `wl.profile` a mark is only a comment in the PTX. Inside, kernels are compiled again and the comments become
code that records. Under TRITON_INTERPRET=1 the same marks record the host time of each program.
"""

from __future__ import annotations

from warplens.frontends.triton.requirement import require_triton

require_triton()

from warplens.frontends.registry import attach  # noqa: E402
from warplens.frontends.triton.marks import *  # noqa: E402, F403
from warplens.frontends.triton.marks import __all__ as __all__  # noqa: E402

attach("triton")
