"""Automatic marks for kernels that do not come from Triton: rules over the instructions of their PTX."""

from warplens.auto.ptx.ptx_marker import Marked, mark_ptx, mark_unmarked_code

__all__ = ["Marked", "mark_unmarked_code", "mark_ptx"]
