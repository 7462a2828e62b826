"""The passes over all anchors in C give the bits of those with numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warplens import native
from warplens.decode.clock.anchor_sums import AnchorSums


@pytest.mark.skipif(native.load() is None, reason="needs a C compiler")
@given(st.integers(0, 2**32), st.integers(1, 9), st.integers(1, 300), st.sampled_from([0.0, 1e-10, 1.0, 40.0]))
def test_c_and_numpy_give_the_same_bits(seed: int, units: int, anchors: int, noise: float) -> None:
    draw = np.random.default_rng(seed)
    member, x = draw.integers(0, units, anchors), draw.integers(0, 10**7, anchors).astype(np.float64)
    y = np.round(x * 0.57 + 1e9 + noise * draw.standard_normal(anchors))
    plain, fast = AnchorSums(member, units, x, y), AnchorSums.of(member, units, x, y)
    assert type(fast) is not AnchorSums
    for _ in range(3):
        with np.errstate(invalid="ignore", divide="ignore"):
            means = plain.means()
            moments = plain.moments(*means)
            for one, other in zip((*means, *moments), (*fast.means(), *fast.moments(*fast.means())), strict=True):
                assert one.tobytes() == other.tobytes()
            slope = moments[1] / moments[0]
            offset = means[1] - slope * means[0]
            for sums in (plain, fast):
                sums.weigh(offset, slope, 48.0)
        assert plain.residual.tobytes() == fast.residual.tobytes()
        assert plain.weight.tobytes() == fast.weight.tobytes()


def test_numpy_stands_in_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPLENS_NATIVE", "0")
    assert type(AnchorSums.of(np.zeros(1, np.int64), 1, np.zeros(1), np.zeros(1))) is AnchorSums
