"""Automatic marks in PTX, for kernels that do not come from Triton."""

from warplens.auto.ptx.ptx_marker import Marked, mark_ptx, mark_unmarked_code

__all__ = ["Marked", "mark_unmarked_code", "mark_ptx"]
