"""Delays on a GPU: kernels whose answer is known, within a tenth, with the results they have without delays."""

from __future__ import annotations

from typing import Any

import pytest

import warplens as wl
from tests.support.cuda_gpu import NEEDS_GPU
from tests.support.known_delays import KNOWN, SOURCE, known_case

pytestmark = NEEDS_GPU


@pytest.fixture(scope="module")
def module() -> Any:
    import warplens.cuda as wlcu

    return wlcu.compile(SOURCE)


@pytest.mark.parametrize("name", KNOWN)
def test_kernels_with_known_answers(name: str, module: Any) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    found = wl.sensitivity(known_case(name, module, sms), kernels=KNOWN[name]["kernel"])
    assert found.results == "identical"
    for region, slope in KNOWN[name]["expected"].items():
        assert found[region].slope == pytest.approx(slope, abs=0.1 * max(1, slope))
