"""Regenerate the numba-cuda sample: `python tests/golden/ptx/make_numba.py` with numba-cuda and libnvvm installed."""

from __future__ import annotations

import re
from pathlib import Path

from numba import cuda, float32, types

TILE = 16


def tiled(a, b, c):
    sa = cuda.shared.array((TILE, TILE), float32)
    sb = cuda.shared.array((TILE, TILE), float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0.0)
    for i in range(a.shape[1] // TILE):
        sa[ty, tx] = a[y, tx + i * TILE]
        sb[ty, tx] = b[ty + i * TILE, x]
        cuda.syncthreads()
        for j in range(TILE):
            total += sa[ty, j] * sb[j, tx]
        cuda.syncthreads()
    c[y, x] = total


def main():
    array = types.Array(types.float32, 2, "C")
    ptx, _ = cuda.compile_ptx(tiled, (array, array, array), cc=(8, 0), lineinfo=True)
    # Nothing in it needs the newest PTX, and ptxas of CUDA 13.0 refuses what is newer than itself.
    ptx = re.sub(r"^\.version .*$", ".version 8.8", ptx, flags=re.M)
    ptx = re.sub(r'"/[^"\n]*/', '"golden/', ptx)
    Path(__file__).with_name("numba_tiled_lineinfo.ptx").write_text(ptx)


if __name__ == "__main__":
    main()
