"""Marks under TRITON_INTERPRET=1, in a process of their own because Triton reads the switch when `@jit` runs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.paths import SUPPORT

pytest.importorskip("triton", reason="triton is not installed")


def test_the_interpreter_records_host_time_per_program() -> None:
    script = SUPPORT / "interpreted_kernel.py"
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "cpu" in done.stdout, "the trace must say whose time this is"


def test_the_choice_of_launches_holds_in_the_interpreter() -> None:
    program = """
import triton, triton.language as tl
import warplens as wl, warplens.triton as wlt

@triton.jit
def kernel(N: tl.constexpr):
    with wlt.region("work"):
        wlt.value("n", N)

def recorded(**options):
    with wl.profile(**options) as profile:
        for number in range(7):
            for constant in (1, 2):
                kernel[(1,)](constant)
    values = profile.trace.select(kind="value").spans["value"].to_pylist()
    return len(profile.trace.meta.launches), values.count(1.0), profile.seen

print(recorded(), recorded(launches=2), recorded(launches=2, skip="cold"), recorded(skip=1, every=3))
"""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-"], input=program, capture_output=True, text=True, env=environment, check=False
    )
    seen = {"kernel": 14}
    assert done.stdout.strip() == f"{(14, 7, seen)} {(4, 2, seen)} {(4, 2, seen)} {(4, 2, seen)}", done.stderr[-2000:]


def test_variants_are_named_by_their_constants_as_compiled_ones_are() -> None:
    program = """
import triton, triton.language as tl
import warplens as wl, warplens.triton as wlt
from warplens.analyse.kernel_variants import kernel_variants

@triton.jit
def krec(D: tl.constexpr, MODE: tl.constexpr = "fast"):
    with wlt.region("work"):
        wlt.value("n", D)

def labels(*launches):
    with wl.profile() as profile:
        for grid, arguments, options in launches:
            krec[grid](*arguments, **options)
    return [(one.label, len(one.launches)) for one in kernel_variants(profile.trace.meta.launches)]

one, by_size = (2,), lambda meta: (meta["D"],)
print(labels((one, (2,), {}), (one, (), {"D": 7}), (one, (2, "fast"), {}), (one, (tl.constexpr(2),), {})))
print(labels((by_size, (2,), {}), (by_size, (7,), {})))
print(labels((one, (2,), {}), ((4, 3), (2,), {}), ((4, 3), (2, "slow"), {})))
print(labels((one, (2, tl.float32), {}), (one, (2, tl.int8), {})))
"""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-"], input=program, capture_output=True, text=True, env=environment, check=False
    )
    assert done.stdout.splitlines() == [
        str([("krec[D=2]", 3), ("krec[D=7]", 1)]),
        str([("krec[D=2]", 1), ("krec[D=7]", 1)]),
        str([("krec[grid 2 MODE=fast]", 1), ("krec[grid 4×3 MODE=fast]", 1), ("krec[grid 4×3 MODE=slow]", 1)]),
        str([("krec[default]", 1), ("krec[#2]", 1)]),
    ], done.stderr[-2000:]


_MISTAKES = """
import triton, triton.language as tl
import warplens as wl, warplens.triton as wlt

@triton.jit
def kernel(N: tl.constexpr):
    if N > 0:
        with wlt.region("work"):
            wlt.value("n", N)
    if N == 2:
        wlt.value("block", tl.arange(0, 4))
    if N > 2 or N < 0:
        tl.load(N)  # no pointer

def recorded(N, **options):
    try:
        with wl.profile(**options) as profile:
            if N is not None:
                kernel[(1,)](N)
    except Exception as error:
        print(N, error)
    return profile
"""


def _mistaken(program: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    return subprocess.run(
        [sys.executable, "-"], input=_MISTAKES + program, capture_output=True, text=True, env=environment, check=False
    )


def test_a_kernel_that_raises_keeps_what_it_recorded_until_then() -> None:
    done = _mistaken("print(recorded(3).trace.spans['region'].to_pylist())")
    assert done.stdout.splitlines()[-1] == "['work', 'n']", done.stderr[-2000:]
    assert "no kernel was profiled" not in done.stdout + done.stderr


def test_a_block_of_values_is_refused_as_on_a_gpu() -> None:
    done = _mistaken("recorded(2)")
    assert "value 'block' is a block of shape [4]: reduce it to a scalar first" in done.stdout, done.stderr[-2000:]


def test_a_profile_without_a_record_does_not_advise_what_is_already_done() -> None:
    done = _mistaken("recorded(0); recorded(None)")
    unmarked, empty = done.stdout.splitlines()
    assert "none of those that TRITON_INTERPRET=1 ran reached a mark in its source: kernel (1)" in unmarked
    assert "none that warplens can record was launched" in empty


def test_options_without_effect_in_the_interpreter_are_named() -> None:
    done = _mistaken("recorded(1, blocks=2, mode='aggregate'); recorded(1, every=1)")
    said = [line for line in done.stderr.splitlines() if "without effect" in line]
    assert len(said) == 1, done.stderr[-2000:]
    assert said[0].endswith("without effect: blocks=, mode=")


def test_the_device_of_an_interpreted_launch_has_a_name() -> None:
    done = _mistaken("print([one['name'] for one in recorded(1).trace.meta.distinct_devices])")
    assert done.stdout.splitlines() == ["['Triton interpreter (CPU)']"], done.stderr[-2000:]
