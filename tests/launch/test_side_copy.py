"""Copies through pinned memory of a limited size."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.hanging_kernel import HangingDriver
from warplens.launch.side_copy import RowCopy, SideCopy


@pytest.mark.parametrize("staging", [64, 100, 1000, 1 << 20])
def test_rows_of_any_width_come_home_through_any_staging(staging: int) -> None:
    driver = HangingDriver()
    data = np.random.default_rng(0).integers(0, 256, (7, 512)).astype(np.uint8)
    address = driver.space.alloc(data)
    copy = SideCopy(driver, driver.stream(), staging)  # type: ignore[arg-type]
    copies = [RowCopy(address, 512, 300, 7), RowCopy(address + 512, 512, 8, 3), RowCopy(address, 512, 0, 3)]
    wide, narrow, empty = copy.all_rows(copies)
    np.testing.assert_array_equal(wide, data[:, :300])
    np.testing.assert_array_equal(narrow, data[1:4, :8])
    assert empty.shape == (3, 0)
    copy.release()
