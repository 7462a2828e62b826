"""A Warp kernel for benchmarks/reach.py. Warp reads a kernel's source from its file."""

import warp as wp


@wp.kernel
def saxpy(x: wp.array(dtype=float), y: wp.array(dtype=float), a: float):
    i = wp.tid()
    s = 0.0
    for k in range(16):
        s += x[i] * a + float(k)
    y[i] = s + y[i]
