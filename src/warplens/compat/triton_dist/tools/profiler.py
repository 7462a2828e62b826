"""`from warplens.compat.triton_dist.tools.profiler import ...`: the same names under triton_dist's own path."""

from __future__ import annotations

from warplens.compat.triton_dist import *  # noqa: F403
from warplens.compat.triton_dist import __all__ as __all__
