"""The latest records that warps kept besides their statistics (`mode="aggregate"`, `full="ring"`), as launches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from warplens.launch.block_sampler import headers_of
from warplens.record.aggregate_rows import AGGREGATE, AggregateLayout
from warplens.record.capture import Launch
from warplens.record.layout import HEADER, HEADER_BYTES, SLOT_BYTES, track_stride


def last_records(launches: Sequence[Launch]) -> list[Launch]:
    """The rings of all launches that have one."""
    return [_ring(launch, layout) for launch in launches if (layout := _layout(launch)) is not None]


def _layout(launch: Launch) -> AggregateLayout | None:
    document = launch.extra.get(AGGREGATE)
    layout = None if document is None else AggregateLayout.restore(document)
    return layout if layout is not None and layout.ring and launch.tracks else None


def _ring(launch: Launch, layout: AggregateLayout) -> Launch:
    slots = launch.raw.reshape(launch.tracks, launch.stride)[:, HEADER_BYTES + layout.ring_at :]
    headers = headers_of(launch).copy()
    headers["written"] = np.ascontiguousarray(slots[:, :4]).view("<u4")[:, 0]
    stride, used = track_stride(layout.ring), SLOT_BYTES * layout.ring
    raw = np.zeros((launch.tracks, stride), np.uint8)
    raw[:, :HEADER_BYTES] = np.ascontiguousarray(headers).view(np.uint8).reshape(-1, HEADER.itemsize)
    raw[:, HEADER_BYTES : HEADER_BYTES + used] = slots[:, SLOT_BYTES : SLOT_BYTES + used]
    extra = {name: value for name, value in launch.extra.items() if name != AGGREGATE}
    return replace(launch, raw=raw.reshape(-1), capacity=layout.ring, stride=stride, full="ring", extra=extra)
