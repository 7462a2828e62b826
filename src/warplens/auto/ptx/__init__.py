"""Automatic marks in PTX, for kernels that do not come from Triton."""

from warplens.auto.ptx.barrier_marks import has_barriers, mark_barriers
from warplens.auto.ptx.ptx_marker import Marked, mark_ptx, mark_unmarked_code

__all__ = ["Marked", "has_barriers", "mark_barriers", "mark_ptx", "mark_unmarked_code"]
