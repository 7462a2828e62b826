"""Automatic marks for kernels that do not come from Triton: rules over the instructions of their PTX."""

from warplens.auto.ptx.ptx_marker import Marked, fill, mark_ptx

__all__ = ["Marked", "fill", "mark_ptx"]
