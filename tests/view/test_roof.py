"""The report's roofline: there when FLOPs or bytes are given, absent otherwise, and true to the analysis."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.synthetic_capture import make_capture
from warplens.analyse.roofline import ceilings, place
from warplens.commands import main
from warplens.record.capture import Capture, Device, write_capture
from warplens.view.roofline_chart import HEIGHT, MARGIN, WIDTH, roofs


@pytest.fixture
def capture(tmp_path: Path) -> str:
    made = make_capture(800, blocks=8)
    return str(
        write_capture(Capture(made.launches, Device("NVIDIA H200", 0, 132, "9.0", 1980.0)), tmp_path / "c.wlcap")
    )


def test_a_point_on_the_roof_is_drawn_on_the_roof() -> None:
    roof = ceilings("H200", "fp16")
    flops = 1e12
    one = place("gemm", flops / roof.tflops / 1000, flops, flops / (2 * roof.ridge), roof)
    shown = roofs([one], ["A"])[0]
    chart = shown["chart"]
    bend = [tuple(map(float, corner.split(","))) for corner in chart["roof"].split()]
    assert chart["point"][1] == pytest.approx(bend[1][1], abs=0.2), "at the compute roof"
    assert bend[1][0] < chart["point"][0] < bend[2][0], "right of the ridge"
    assert all(MARGIN <= x <= WIDTH - MARGIN and 0 <= y <= HEIGHT - MARGIN for x, y in bend)
    assert dict(shown["facts"])["share of the roof"] == "100.0 %"


def test_the_report_has_a_roofline_only_when_work_is_given(capture: str, tmp_path: Path) -> None:
    plain, roofed = tmp_path / "plain.html", tmp_path / "roofed.html"
    assert main(["report", capture, "-o", str(plain)]) == 0
    assert main(["report", capture, "-o", str(roofed), "--flops", "2*4096*4096", "--bytes", "1M"]) == 0
    assert 'id="roof"' not in plain.read_text()
    text = roofed.read_text()
    assert 'id="roof"' in text
    assert "FLOP/byte, ridge at" in text


def test_wrong_amounts_are_refused(capture: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", capture, "-o", str(tmp_path / "x.html"), "--flops", "many"]) == 2
    assert "--flops 'many': expected a number" in capsys.readouterr().err
