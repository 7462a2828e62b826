"""Kernels that other libraries compile and launch: marked, woven, and launched in place of the plain ones.

A library keeps the kernels it made. While a profile with automatic marks runs, each launch is looked at: where the
kernel's PTX can be had, a woven twin of it is launched instead, with the buffer as one more argument. Nothing woven is
ever in a library's own cache, and when the profile ends the library is as it was.
"""
