"""The kernel of Proton's intra-kernel tutorial with only its imports changed."""

from __future__ import annotations

import pytest

triton = pytest.importorskip("triton", reason="triton is not installed")

import triton.language as tl  # noqa: E402

import warplens.compat.proton.language as pl  # noqa: E402

pl.enable_semantic("triton")


@triton.jit
def add_kernel(x_ptr, y_ptr, output_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(axis=0)
    with pl.scope("kernel"):
        offsets = pid * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
        mask = offsets < n_elements
        with pl.scope("load_and_add"):
            with pl.scope("load_x"):
                x = tl.load(x_ptr + offsets, mask=mask)
            pl.enter_scope("load_y")
            y = tl.load(y_ptr + offsets, mask=mask)
            pl.exit_scope("load_y")
            output = x + y
        tl.store(output_ptr + offsets, output, mask=mask)


SCOPES = ("kernel", "load_and_add", "load_x", "load_y")
