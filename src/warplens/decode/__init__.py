"""Decode a capture into a trace: find each track's slots, pair the records, and place them in time by a clock fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warplens.decode.part_store import PartStore
    from warplens.record.capture import Capture
    from warplens.trace.model import Trace


def decode(capture: Capture, *, native: bool = True, decoded: PartStore | None = None) -> Trace:
    """Decode every launch of a capture. Losses are counted in the trace's meta and never raise.

    `decoded` has launches that were decoded while the program ran; those of the capture are not decoded again. It is
    used up by this.
    """
    from warplens.decode.capture_decoder import decode_capture  # a trace file is read without the decoder

    return decode_capture(capture, native=native, decoded=decoded)
