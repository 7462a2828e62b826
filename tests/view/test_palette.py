"""Names on the colours of regions and in heat tables are legible."""

from __future__ import annotations

import pytest

from warplens.view.palette import colours, contrast, ink
from warplens.view.sections import shaded


def test_the_contrast_ratio_is_that_of_wcag() -> None:
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21)
    assert contrast("#777777", "#FFFFFF") == pytest.approx(4.48, abs=0.01)


def test_every_region_colour_has_a_legible_ink() -> None:
    assert min(contrast(ink(colour), colour) for colour in colours(60)) >= 4.5


def test_every_shade_of_a_heat_table_has_a_legible_ink() -> None:
    cells = [shaded("1", share / 200) for share in range(201)]
    assert min(contrast(cell["ink"], cell["fill"]) for cell in cells) >= 4.5
