"""Regions for cuTile kernels.

    import warplens as wl, warplens.cutile as wlt

    @ct.kernel
    def softmax(x, y, TILE: ct.Constant[int]):
        with wlt.region("load"):
            row = ct.load(x, index=(ct.bid(0), 0), shape=(1, TILE))
        with wlt.region("exp"):
            e = ct.exp(row - ct.max(row))
        ...

    with wl.profile("out.warplens"):
        ct.launch(stream, grid, softmax, (x, y, TILE))

A region changes nothing in the kernel that cuTile compiles. In a profile, the kernel is compiled once more, and the
region is the code of the lines in its `with` block.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from warplens.frontends.cutile.frontend import LIBRARY
from warplens.frontends.driver_calls.loaded_code import expect_hand_marks
from warplens.frontends.registry import attach

__all__ = ["region"]


@contextmanager
def region(name: str) -> Iterator[None]:
    """`with region("load"):` names the code of its body. The name must be written as a string."""
    yield


expect_hand_marks(LIBRARY)
attach(LIBRARY)
