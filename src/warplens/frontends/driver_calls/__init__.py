"""Kernels launched from C++: torch extensions, TVM-FFI, Warp, and every other library with a CUDA runtime inside.

A C library of ours stands in front of the driver (native/driver_hooks), notes what is loaded, and shows launches to
Python, where they take the same way as those of Python's own libraries (frontends/intercept).
"""
