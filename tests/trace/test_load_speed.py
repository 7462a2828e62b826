"""A trace file is made once and read often: reading it costs no more than decoding the raw capture again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT
from tests.support.processor_time import least_processor_time
from tests.support.synthetic_capture import make_capture
from warplens.decode import decode
from warplens.decode.trace_loader import load
from warplens.record.capture import write_capture


def test_statistics_from_a_trace_take_no_longer_than_from_its_capture(tmp_path: Path) -> None:
    capture = write_capture(make_capture(300_000), tmp_path / "t.wlcap")
    trace = load(capture).save(tmp_path / "t.warplens")
    decoded, read = (least_processor_time(lambda file=file: load(file).stats(), 5) for file in (capture, trace))
    assert read <= decoded


def test_statistics_of_a_trace_do_not_import_what_they_do_not_use(tmp_path: Path) -> None:
    """pyarrow.compute takes longer to import than a small trace to read."""
    trace = decode(make_capture(1000, blocks=4)).save(tmp_path / "t.warplens")
    program = f"import sys, warplens as wl; wl.load({str(trace)!r}).stats(); print('pyarrow.compute' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    assert subprocess.check_output([sys.executable, "-c", program], env=environment, text=True) == "False\n"
