"""Kernels that a C++ library launches, in processes of their own: the library and the hooks are real, the driver is a
C library, and the kernels run in the interpreter."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.cpp_launches import run_scenario
from warplens.launch.timing import TIMED_LAUNCHES

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler")

TRACKS, SPANS = 4, 16
"""Of one launch with automatic marks."""


def test_every_way_to_launch_is_recorded_with_the_programs_own_results() -> None:
    told = run_scenario("ways")
    assert told["fired"] == [True] * 5
    assert told["packed"] == 1, "arguments packed in one buffer stay packed: the kernel's parameters are its own"
    assert (told["launches"], told["tracks"], told["spans"]) == (5, 5 * TRACKS, 5 * SPANS)
    assert told["seen"] == {"vector_add": 5}
    assert "load vector_add.cu:21" in told["regions"]
    assert told["streams"] == [7, 7, 7, 7, 2], "the default stream of a thread is its own"
    assert told["stderr"] == ""


def test_kernels_of_libraries_are_recorded() -> None:
    told = run_scenario("library_kernels")
    assert (told["fired"], told["tracks"]) == ([True], TRACKS)


def test_a_library_that_knew_the_driver_before_the_profile_is_followed() -> None:
    told = run_scenario("loaded_before")
    assert told["fired"] == [False, False, True], "what it loads inside the profile is recorded"
    assert "loaded before warplens could see it" in told["stderr"]
    assert told["stderr"].count("\n") == 1


def test_code_stays_known_from_one_profile_to_the_next() -> None:
    told = run_scenario("two_profiles")
    assert told["first"]["fired"] == [True]
    assert told["second"]["fired"] == [True, False, True], "between the profiles the plain kernel runs"
    assert told["second"]["launches"] == 1


def test_launches_beyond_the_quota_are_counted_and_run_plain() -> None:
    told = run_scenario("quota")
    assert told["fired"] == [True] * 2 + [False] * 10
    assert told["seen"] == {"vector_add": 12}
    assert told["launches"] == 2


def test_threads_that_python_does_not_know_are_recorded() -> None:
    told = run_scenario("threads")
    assert told["fired"] == [True] * 3
    assert (told["launches"], told["tracks"]) == (3, 3 * TRACKS)


@pytest.mark.parametrize("thread", ["python", "cpp"])
def test_recorded_launches_need_no_python_while_memory_is_at_hand(thread: str) -> None:
    told = run_scenario("steady", thread, "{}")
    assert told["fired"] == [True] * 40
    assert (told["launches"], told["tracks"], told["spans"]) == (40, 40 * TRACKS, 40 * SPANS)
    assert told["seen"] == {"vector_add": 40}
    assert told["streams"] == [7 + number % 3 for number in range(40)]
    assert told["order"] == sorted(told["order"]), "launches of the trace are in the order of the program"
    assert told["asked"] == 1, "Python was asked about the first launch alone"
    assert told["stderr"] == ""


@pytest.mark.parametrize(
    ("options", "recorded", "asked"),
    [({"launches": 30}, 30, 22), ({"within": "never"}, 0, 40)],
)
def test_launches_without_python_keep_to_what_is_asked_for(options: dict[str, Any], recorded: int, asked: int) -> None:
    told = run_scenario("steady", "python", json.dumps(options))
    assert sum(told["fired"]) == told["launches"] == recorded
    assert told["seen"] == {"vector_add": 40}
    assert told["asked"] <= asked


def test_memory_for_threads_of_cpp_is_filled_up_ahead_of_time() -> None:
    told = run_scenario("refilled")
    assert told["fired"] == [True] * 30
    assert told["launches"] == 30
    assert told["asked"] == 1, "only the first launch waited for Python"
    assert told["refills"] > 1


def test_memory_that_no_launch_needed_is_given_back() -> None:
    told = run_scenario("shelves")
    assert told["fired"] == [True] * 8 + [False] + [True] * 3
    assert told["in_use"] == [0, 0]
    assert told["launches"] == 3


def test_a_woven_kernel_that_the_driver_refuses_later_runs_plain() -> None:
    told = run_scenario("refused_later")
    assert told["fired"] == [True] * 4 + [False] * 4
    assert told["launches"] == 4
    assert told["seen"] == {"vector_add": 8}
    assert told["notes"]["vector_add"] == ["runs unmarked: the driver refuses the woven kernel (CUDA error 701)"]


def test_captured_launches_between_recorded_ones_go_into_the_graph() -> None:
    told = run_scenario("captured_between")
    assert told["fired"] == [True] * 5
    assert (told["launches"], told["tracks"]) == (5, 5 * TRACKS)


def test_threads_of_both_kinds_launch_at_the_same_time() -> None:
    told = run_scenario("many_threads")
    assert told["fired"] == [True] * 16
    assert (told["launches"], told["tracks"]) == (16, 16 * TRACKS)


def test_a_thread_for_which_python_waits_with_its_lock_held_is_not_held_up() -> None:
    told = run_scenario("locked")
    assert told["seconds"] < 3, "it must not wait for a lock that its own caller holds, 20 times over least of all"
    assert told["launches"] == 0


def test_a_woven_kernel_that_the_driver_refuses_runs_plain() -> None:
    told = run_scenario("refused")
    assert told["fired"] == [False, False]
    assert told["notes"]["vector_add"] == ["runs unmarked: the driver refuses the woven kernel (CUDA error 701)"]


def test_a_launch_that_fails_comes_back_with_the_drivers_status() -> None:
    assert run_scenario("fails")["fired"] == []


@pytest.mark.parametrize("way", ["plain", "packed"])
def test_graphs_captured_in_cpp_record_each_replay(way: str) -> None:
    told = run_scenario("graph", way, "0", "3")
    assert told["fired"] == [True] * 3
    assert (told["launches"], told["tracks"]) == (3, 3 * TRACKS)


@pytest.mark.parametrize(("early", "fired"), [("0", [True, False, False]), ("1", [True, True, True])])
def test_replays_beyond_the_quota_run_plain_while_the_graph_is_there(early: str, fired: list[bool]) -> None:
    told = run_scenario("graph", "plain", early, "1")
    assert told["fired"] == fired, "the nodes of a graph that was destroyed cannot be changed"
    assert (told["launches"], told["tracks"]) == (1, TRACKS)
    assert ("run the woven kernel without recording" in told["stderr"]) == (early == "1")


def test_machine_code_is_listed_once_with_its_launches_and_times() -> None:
    told = run_scenario("machine_code")
    assert told["fired"] == [False] * 12
    assert told["stderr"].count("\n") == 1
    assert "1 kernel (vector_add; 12 launches) unmarked: there is only machine code" in told["stderr"]
    (kernel,) = told["unmarked"]
    assert (kernel["kernel"], kernel["launches"], kernel["library"]) == ("vector_add", 12, "")
    assert len(kernel["times_ns"]) == TIMED_LAUNCHES, "the others are only counted"
    assert kernel["reason"].startswith("there is only machine code")


@pytest.mark.skipif(not shutil.which("nvcc"), reason="needs nvcc")
def test_ptx_in_a_programs_own_fat_binary_is_woven(tmp_path: Path) -> None:
    source, made = tmp_path / "add.cu", tmp_path / "add.fatbin"
    source.write_text(
        'extern "C" __global__ void vector_add(const float* a, const float* b, float* c, int n) {\n'
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n) c[i] = a[i] + b[i];\n}\n"
    )
    command = ["nvcc", "-arch=sm_90", "-lineinfo", "-fatbin", str(source), "-o", str(made)]
    subprocess.run(command, check=True, capture_output=True)
    told = run_scenario("fat_binary", str(made))
    assert (told["fired"], told["tracks"]) == ([True], TRACKS)
    assert "load add.cu:3" in told["regions"]


def test_kernels_that_are_not_asked_for_are_not_shown_again() -> None:
    told = run_scenario("closed_kernels")
    assert told["asked"] == 0
    assert told["seen"] == {"vector_add": 6}


@pytest.mark.parametrize(
    ("switch", "reason"), [({"CC": "no-such-compiler"}, "no-such-compiler"), ({"WARPLENS_CPP": "0"}, "WARPLENS_CPP=0")]
)
def test_without_the_hooks_one_line_says_why(switch: dict[str, str], reason: str, tmp_path: object) -> None:
    told = run_scenario("library_kernels", XDG_CACHE_HOME=str(tmp_path), **switch)
    assert told["fired"] == [False]
    assert told["stderr"].count("\n") == 1
    assert "kernels launched from C++ run unmarked" in told["stderr"]
    assert reason in told["stderr"]
