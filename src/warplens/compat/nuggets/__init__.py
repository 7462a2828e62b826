"""transformer_nuggets' CuTe profiler on warplens: `from warplens.compat.nuggets import profile_region, TagTable, ...`.

Names, buffer and layout are those of `transformer_nuggets.cute.profiler`. Host functions work without the CuTe DSL;
device functions are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from warplens.compat.nuggets.host import (
    Event,
    ProfileBuf,
    TagTable,
    allocate_profile_buffer,
    decode_events,
    events_to_perfetto,
    profile_session,
    to_trace,
)

_DEVICE = (
    "elected_start", "elected_stop", "lane0_warp0_start", "lane0_warp0_stop", "profile_region", "profile_start",
    "profile_stop", "read_globaltimer", "warp_start", "warp_stop",
)  # fmt: skip

__all__ = [
    "Event", "ProfileBuf", "TagTable", "allocate_profile_buffer", "decode_events", "events_to_perfetto",
    "profile_session", "to_trace", *_DEVICE,
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _DEVICE:
        return getattr(import_module("warplens.compat.nuggets.ops"), name)
    raise AttributeError(f"module 'warplens.compat.nuggets' has no attribute {name!r}")
