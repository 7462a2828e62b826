"""The rows and the ring of a track in aggregate mode, as a launch describes them."""

from __future__ import annotations

import pytest

from warplens.record.aggregate_rows import AggregateLayout, AggregateRow
from warplens.record.layout import SLOT_BYTES

ROWS = (AggregateRow(1, -1), AggregateRow(2, 0, "instant"))


@pytest.mark.parametrize("ring", [0, 1, 64])
def test_a_layout_survives_its_description(ring: int) -> None:
    layout = AggregateLayout(ROWS, ring=ring)
    assert AggregateLayout.restore(layout.describe()) == layout
    assert layout.slots * SLOT_BYTES == layout.ring_at + SLOT_BYTES * (ring + 1 if ring else 0)


@pytest.mark.parametrize("ring", [-1, 3, 1 << 40, "many"])
def test_a_ring_that_cannot_be_is_refused(ring: object) -> None:
    with pytest.raises(ValueError, match="ring|rows"):
        AggregateLayout.restore({**AggregateLayout(ROWS).describe(), "ring": ring})


@pytest.mark.parametrize("number", [float("inf"), float("nan"), "one", None])
def test_rows_that_are_no_numbers_are_refused(number: object) -> None:
    with pytest.raises(ValueError, match="no list of rows"):
        AggregateLayout.restore({**AggregateLayout(ROWS).describe(), "rows": [[number, -1, "span"]]})
