"""A trace file is made once and read often: reading it costs no more than decoding the raw capture again."""

from __future__ import annotations

from pathlib import Path

from tests.support.processor_time import least_processor_time
from tests.support.synthetic_capture import make_capture
from warplens.decode.trace_loader import load
from warplens.record.capture import write_capture


def test_statistics_from_a_trace_take_no_longer_than_from_its_capture(tmp_path: Path) -> None:
    capture = write_capture(make_capture(300_000), tmp_path / "t.wlcap")
    trace = load(capture).save(tmp_path / "t.warplens")
    decoded, read = (least_processor_time(lambda file=file: load(file).stats(), 5) for file in (capture, trace))
    assert read <= decoded
