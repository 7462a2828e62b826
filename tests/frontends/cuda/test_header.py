"""The unmodified CUDA header and host half, run on threads by g++, against the records they must leave."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import SHIM
from tests.support.shim_records import SLOTS_PER_STEP, step, tracks
from warplens.decode import decode
from warplens.record.c_header import PATH
from warplens.record.capture import Launch, read_capture
from warplens.record.layout import TrackState

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("shim")
    running = {}
    for ring in (0, 1):
        out = folder / ("ring" if ring else "stop")
        command = [
            "g++",
            "-std=c++20",
            "-O1",
            "-g",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pthread",
            f"-DWARPLENS_RING={ring}",
        ]
        command += [f"-I{SHIM}", f"-I{PATH.parent}", str(SHIM / "main.cpp"), "-o", str(out)]
        running[out.name] = out, subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for out, process in running.values():
        assert process.wait() == 0, f"{out.name}: {process.communicate()[1]}"
    return {name: out for name, (out, _) in running.items()}


def run(program: Path, kernel: str, records: int, out: Path, steps: int = 3) -> Launch:
    done = subprocess.run([program, kernel, str(records), out, str(steps)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"exit {done.returncode} (3: a write outside the buffer) {done.stderr}"
    return read_capture(out).launches[0]


def test_nested_regions_of_a_3d_launch(programs: dict[str, Path], tmp_path: Path) -> None:
    launch = run(programs["stop"], "nested", 100, tmp_path / "c.wlcap")
    found = tracks(launch)
    assert [(int(h["block"]), int(h["warp"])) for h, _ in found] == [(b, w) for b in range(4) for w in range(2)]
    for head, records in found:
        assert records == [line for i in range(3) for line in step(i)]
        assert (head["state"], head["lane"], head["written"]) == (TrackState.EXITED, 0, 3 * SLOTS_PER_STEP)
        assert head["start_clock"] <= head["exit_clock"]
    trace = decode(read_capture(tmp_path / "c.wlcap"))
    assert trace.meta.losses.clean
    first = trace.spans.slice(0, 6).to_pydict()
    assert first["region"] == ["step", "inner", "manual", "tick", "index", "half"]
    assert first["depth"] == [0, 1, 1, 2, 2, 2]
    events = json.loads((tmp_path / "c.wlcap.json").read_text())["traceEvents"]
    events = [event for event in events if event["ph"] != "M"]
    assert len(events) == 8 * 3 * 9
    assert [e["ph"] for e in events[:9]] == ["B", "B", "E", "B", "i", "C", "C", "E", "E"]
    assert min(e["ts"] for e in events) >= 0


@pytest.mark.parametrize("records", [0, 1, 2, 32, 33, 34])
@pytest.mark.parametrize("mode", ["stop", "ring"])
def test_any_capacity_keeps_what_fits_counts_the_rest_and_writes_nowhere_else(
    programs: dict[str, Path], tmp_path: Path, mode: str, records: int
) -> None:
    everything = [line for i in range(3) for line in step(i)]
    launch = run(programs[mode], "nested", records, tmp_path / "c.wlcap")
    assert launch.full == mode
    for head, found in tracks(launch):
        assert head["written"] == 3 * SLOTS_PER_STEP
        found = [line for line in found if line != "empty 0"]
        if records >= 33 and mode == "stop":
            assert found == everything
        elif mode == "stop":
            assert found == everything[: len(found)]
            assert len(found) >= min(records, 5), "only a value that does not fit may leave a slot unused"
        else:
            assert launch.capacity == (1 << records.bit_length() - 1 if records else 0)
            assert found == everything[len(everything) - len(found) :]
            assert len(found) >= launch.capacity // 2


def test_a_value_that_does_not_fit_leaves_an_empty_slot_not_half_of_itself(
    programs: dict[str, Path], tmp_path: Path
) -> None:
    launch = run(programs["stop"], "nested", 6, tmp_path / "c.wlcap")
    for _, found in tracks(launch):
        assert found == [*step(0)[:5], "empty 0"]


def test_threads_that_return_early_and_regions_left_open(programs: dict[str, Path], tmp_path: Path) -> None:
    found = tracks(run(programs["stop"], "early", 100, tmp_path / "c.wlcap"))
    opened, closed = ["begin outer", "begin open", "end outer"], ["begin outer", "begin open", "end open", "end outer"]
    assert [records for _, records in found] == [opened, closed, opened, closed]
    assert all(head["state"] == TrackState.EXITED for head, _ in found)


def test_divergence_records_the_leaders_side(programs: dict[str, Path], tmp_path: Path) -> None:
    for _, records in tracks(run(programs["stop"], "diverge", 100, tmp_path / "c.wlcap")):
        assert records == ["begin both", "begin lane 0", "end lane 0", "end both", "instant after"]


@pytest.mark.parametrize(
    ("kernel", "recording"),
    [
        ("by_block", [(0, 0), None]),
        ("by_warp1", [None, (1, 0)]),
        ("by_lane5", [(0, 5), (1, 5)]),
        ("by_predicate", [(0, 7), (1, 7)]),
        ("by_thread", [(t // 32, t % 32) for t in range(64)]),
    ],
)
def test_who_records(
    programs: dict[str, Path], tmp_path: Path, kernel: str, recording: list[tuple[int, int] | None]
) -> None:
    found = tracks(run(programs["stop"], kernel, 10, tmp_path / "c.wlcap"))
    assert len(found) == 2 * len(recording)
    for (head, records), who in zip(found, recording * 2, strict=True):
        assert records == (["instant a", "instant b"] if who else []), "a warp without a leader records nothing"
        assert head["state"] == TrackState.EXITED, "but its lifetime is known"
        if who:
            assert (head["warp"], head["lane"]) == who


def test_functions_that_are_not_inlined(programs: dict[str, Path], tmp_path: Path) -> None:
    for _, records in tracks(run(programs["stop"], "linked", 100, tmp_path / "c.wlcap")):
        assert records == ["instant before", "begin apart", "end apart", "instant after"]


def test_async_work_anchors_and_iterations(programs: dict[str, Path], tmp_path: Path) -> None:
    for _, records in tracks(run(programs["stop"], "async_copy", 1000, tmp_path / "c.wlcap")):
        assert records[:7] == [
            "async_begin copy", "async_begin copy #1", "async_begin copy #2", "anchor 0",
            "async_end copy", "async_end copy #1", "async_end copy #2",
        ]  # fmt: skip
        assert [i for i, line in enumerate(records) if line.startswith("anchor")] == [3, 8, 73]


def test_no_buffer_records_nothing(programs: dict[str, Path], tmp_path: Path) -> None:
    done = subprocess.run([programs["stop"], "null", "0", tmp_path / "none"], capture_output=True, timeout=60)
    assert done.returncode == 0
    assert not (tmp_path / "none").exists()


@pytest.fixture(scope="session")
def quick_start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("shim") / "quick_start"
    command = ["g++", "-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{SHIM}", f"-I{PATH.parent}"]
    done = subprocess.run([*command, SHIM / "quick_start_main.cpp", "-o", out], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out


def _sm_profiler(program: Path, out: Path, *shape: int) -> tuple[list[dict[str, object]], str]:
    done = subprocess.run([program, out, *map(str, shape)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"exit {done.returncode} (30: a write outside the buffer) {done.stderr}"
    return json.loads(out.read_text())["traceEvents"], done.stderr


def test_the_sm_profiler_quick_start_runs_with_the_include_changed(quick_start: Path, tmp_path: Path) -> None:
    events, complaints = _sm_profiler(quick_start, tmp_path / "trace.json", 4, 4, 100, 1)
    assert not complaints
    assert {e["args"]["name"] for e in events if e["ph"] == "M"} >= {"SM 0", "block 3 warp 3"}
    one = [(e["ph"], e["name"]) for e in events if e["ph"] != "M"][:8]
    nested = [("B", "compute"), ("B", "memory"), ("B", "memory"), ("E", "memory"), ("E", "memory"), ("E", "compute")]
    assert one == [*nested, ("i", "sync"), ("i", "event 31")]
    assert len([e for e in events if e["ph"] != "M"]) == 4 * 4 * 8


def test_the_sm_profiler_never_writes_outside_and_says_what_it_lost(quick_start: Path, tmp_path: Path) -> None:
    _, complaints = _sm_profiler(quick_start, tmp_path / "small.json", 2, 3, 3, 1)
    # Blocks 2 and 3 and the fourth group have no track: 80 events; six tracks keep 6 of 8.
    assert "92 records were lost" in complaints
    assert "max_events_per_group=4" in complaints
    events, _ = _sm_profiler(quick_start, tmp_path / "off.json", 4, 4, 100, 0)
    assert events == []
