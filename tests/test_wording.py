"""Numbers in words, and the same numbers in the report's script."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from warplens.view import bundle
from warplens.wording import byte_size, change, digits, duration, integer, number_ranges, numbered, percent, plural

TIMES = [0, 0.4, 0.5, 2.5, 7, 99.5, 999.4, 999.5, 1000, 1005, 1015, 1125, 9994, 9995, 10_250, 99_949, 99_950, 123_456]
TIMES += [999_499, 999_999, 1e6, 4_044_999, 4_045_000, 131_000_000, 1e9, 59_999_999_999, 1.5e12, -1500]


def test_percent() -> None:
    assert [percent(share) for share in (0, 0.00049, 0.0005, 0.123, 1, -0.05)] == [
        "0.0 %", "0.0 %", "0.1 %", "12.3 %", "100.0 %", "-5.0 %",
    ]  # fmt: skip
    assert percent(0.01234, 2) == "1.23 %"


def test_change() -> None:
    assert change(0.05) == "+5.0 %"
    assert change(0.05, 0.031, 0.069) == "+5.0 % [+3.1, +6.9]"


def test_duration_and_digits() -> None:
    assert [duration(ns) for ns in (8, 131_000, 4_040_000, 1.5e9)] == ["8 ns", "131 µs", "4.04 ms", "1.50 s"]
    assert [digits(value) for value in (0, 0.1234, 1.5, 45.67, 99.96, 1234.5)] == [
        "0", "0.123", "1.50", "45.7", "100", "1,235",
    ]  # fmt: skip
    assert byte_size(1536) == "1.50 KiB"
    assert byte_size(12) == "12 B"


def test_plural() -> None:
    assert [plural(1, "launch"), plural(2, "launch"), plural(1000, "warp")] == ["1 launch", "2 launches", "1,000 warps"]
    assert [plural(1, "copy"), plural(2, "copy"), plural(2, "day")] == ["1 copy", "2 copies", "2 days"]


def test_numbered() -> None:
    assert [numbered("warp", [3]), numbered("SM", [1, 0])] == ["warp 3", "SMs 0-1"]
    assert numbered("block", range(0, 20, 2), 3) == "blocks 0, 2, 4 and 7 more"


def test_number_ranges() -> None:
    assert number_ranges([3, 1, 2, 7, 9, 9]) == "1-3, 7, 9"
    assert number_ranges(range(0, 20, 2), most=3) == "0, 2, 4 and 7 more"


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_report_rounds_alike() -> None:
    print_all = f"console.log(JSON.stringify({json.dumps(TIMES)}.map((ns) => [duration(ns), integer(ns)])))"
    script = bundle.script("format.js") + print_all
    out = subprocess.run(["node", "--input-type=module", "-e", script], capture_output=True, text=True, check=True)
    assert json.loads(out.stdout) == [[duration(ns), integer(ns)] for ns in TIMES]
