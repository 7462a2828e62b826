"""Weave the LLVM IR of Triton kernels for AMD's GPUs: the same marks, tracks and records as in PTX."""
