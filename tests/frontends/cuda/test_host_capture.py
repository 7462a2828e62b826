"""wl::Capture as programs use and misuse it, and its Chrome JSON as Perfetto's trace_processor reads it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import SHIM
from warplens.decode import decode
from warplens.record.c_header import PATH
from warplens.record.capture import read_capture

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("host") / "host"
    strict = ["-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror"]
    command = ["g++", "-std=c++20", "-O1", *strict, "-pthread", f"-isystem{SHIM}", f"-I{PATH.parent}"]
    done = subprocess.run([*command, SHIM / "host_main.cpp", "-o", out], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out


def run(program: Path, what: str, out: Path, **environment: str) -> str:
    """What it said on stderr; empty when all went well."""
    done = subprocess.run(
        [program, what, out], capture_output=True, text=True, timeout=120, env={**os.environ, **environment}
    )
    assert done.returncode == bool(done.stderr)
    return done.stderr


def test_chrome_json_keeps_warps_apart_and_spans_whole(program: Path, tmp_path: Path) -> None:
    from tests.support.trace_processor import TraceProcessor

    assert not run(program, "crossing", tmp_path / "c.wlcap")
    trace = decode(read_capture(tmp_path / "c.wlcap"))
    expected = sorted((row["region"], row["dur_cycles"]) for row in trace.spans.to_pylist() if row["kind"] == "span")
    loaded = TraceProcessor(tmp_path / "c.wlcap.json")
    found = sorted((row["name"], row["dur"]) for row in loaded.query("select name, dur from slice where dur != 0"))
    assert [name for name, _ in found] == [name for name, _ in expected]
    for (name, ns), (_, cycles) in zip(found, expected, strict=True):
        assert ns == pytest.approx(cycles, rel=0.01, abs=40), name  # the CPU's clock counts nanoseconds
    counters = loaded.query("select t.name as name, c.value as value from counter c join track t on c.track_id = t.id")
    assert sorted((row["name"], row["value"]) for row in counters) == [
        (f"block {block} warp {warp} warp", warp) for block in range(2) for warp in range(2)
    ]


def test_every_threads_spans_have_a_thread_of_their_own(program: Path, tmp_path: Path) -> None:
    assert not run(program, "threads", tmp_path / "c.wlcap")
    events = json.loads((tmp_path / "c.wlcap.json").read_text())["traceEvents"]
    assert len({event["tid"] for event in events if event["ph"] == "B"}) == 64
    assert {"block 0 warp 1", "block 0 warp 1 lane 31"} <= {e["args"]["name"] for e in events if e["ph"] == "M"}


def test_names_of_any_bytes_reach_both_files(program: Path, tmp_path: Path) -> None:
    assert not run(program, "names", tmp_path / "c.wlcap")
    spoken = ['"quoted" \\ \t größe 漢字 🙂', "latin größe", "cut"]
    rows = decode(read_capture(tmp_path / "c.wlcap")).spans.to_pylist()
    assert [row["region"] for row in rows] == [*spoken, "infinite", "largest"]
    events = json.loads((tmp_path / "c.wlcap.json").read_text())["traceEvents"]
    assert [event["name"] for event in events if event["ph"] == "i"] == [*spoken, "infinite"]
    assert [event["args"] for event in events if event["ph"] == "C"] == [{"largest": 2**64 - 1}]


def test_a_capture_may_be_written_again_after_another_launch(program: Path, tmp_path: Path) -> None:
    assert not run(program, "again", tmp_path / "c.wlcap")
    assert [launch.grid for launch in read_capture(tmp_path / "c.wlcap").launches] == [(1, 1, 1), (2, 1, 1)]


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("no grid", "grid [4,0,1], block [64,1,1]: each size must be at least 1"),
        ("unused", "unused recorded nothing: no warp reached a wl::Kernel"),
    ],
)
def test_mistakes_are_told(program: Path, tmp_path: Path, what: str, said: str) -> None:
    assert said in run(program, what, tmp_path / "c.wlcap")


def test_a_place_that_cannot_be_written_is_named(program: Path, tmp_path: Path) -> None:
    assert "absent/c.wlcap: cannot be opened for writing" in run(program, "crossing", tmp_path / "absent" / "c.wlcap")


def test_switched_off_in_the_environment_nothing_is_recorded_or_written(program: Path, tmp_path: Path) -> None:
    assert not run(program, "crossing", tmp_path / "c.wlcap", WARPLENS="0")
    assert list(tmp_path.iterdir()) == []
