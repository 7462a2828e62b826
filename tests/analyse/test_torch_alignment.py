"""Aligning a trace with a torch trace: the truth is found within the stated error, or the reason is said."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.torch_truth import Run
from warplens.analyse.torch.alignment import Aligned, align
from warplens.analyse.torch.kineto import read_torch
from warplens.errors import WarplensError
from warplens.ptx.symbols import base_name
from warplens.trace.interval_fit import fit_intervals

SETTINGS = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
RUNS = st.builds(
    Run,
    st.integers(0, 2**32),
    offset=st.integers(-5_000_000, 5_000_000),
    drift=st.floats(-6e-5, 6e-5),
)


def aligned(run: Run, folder: Path, **options: object) -> Aligned:
    return align(run.trace(**options), read_torch(run.write_torch(folder / "torch.json")))  # type: ignore[arg-type]


def assert_true(run: Run, found: Aligned) -> None:
    """Every launch is in its own kernel, and no farther from the truth than stated."""
    assert len(found.alignments) == 1
    alignment = found.alignments[0]
    seen = [at for at, one in enumerate(run.recorded) if any(one is kernel for kernel in run.kernels)]
    assert {launch: (kernel.start, kernel.end) for launch, kernel in found.kernels.items()} == {
        at: (run.recorded[at].start, run.recorded[at].end) for at in seen
    }
    assert alignment.unmatched == tuple(at for at in range(len(run.recorded)) if at not in seen)
    for at in seen:
        one = run.recorded[at]
        for device_ns in (one.begin_gpu, one.end_gpu):
            placed = int(alignment.line(np.array([device_ns]))[0])
            assert abs(placed - run.to_kineto(device_ns)) <= alignment.error_ns
        begin, end = (int(time) for time in alignment.line(np.array([one.begin_gpu, one.end_gpu])))
        assert max(one.start - begin, end - one.end) <= alignment.sticks_out_ns <= alignment.error_ns


@settings(SETTINGS, max_examples=200)
@given(run=RUNS, data=st.data())
def test_the_clock_is_found_within_the_stated_error(run: Run, data: st.DataObject, tmp_path: Path) -> None:
    """Random offset and drift; launches left out (every=), unrecorded ones of the same name, other kernels, gaps."""
    lost = paused = False
    for _ in range(data.draw(st.integers(1, 25))):
        kind = data.draw(st.sampled_from(["add", "add", "add", "matmul", "tuning", "pause", "lost"]))
        if kind == "tuning":
            for _ in range(data.draw(st.integers(1, 10))):
                run.launch("add", record=False, gap=0)
        elif kind == "pause":
            # With a kernel lost, a long pause leaves the drift open enough for another kernel to fit as well.
            run.now += 10**6 if lost else data.draw(st.sampled_from([10**6, 10**8, 3 * 10**9]))
            paused = True
        elif kind == "lost":
            run.launch("add", seen=lost or paused)
            lost = lost or not paused
        else:
            run.launch(kind, ns=data.draw(st.sampled_from([300, 5_000, 200_000])), record=data.draw(st.booleans()))
    for _ in range(3 if lost else 1):
        run.launch("add")
    found = aligned(run, tmp_path)
    assert found.alignments[0].method == "host"
    assert_true(run, found)


@settings(SETTINGS, max_examples=30)
@given(run=RUNS, data=st.data())
def test_the_kernels_own_times_are_enough(run: Run, data: st.DataObject, tmp_path: Path) -> None:
    """No host times, as in a C++ program's trace: irregular launches fit in one way, the true one."""
    for _ in range(data.draw(st.integers(8, 30))):
        gap = run.random.choice([10_000, 80_000, 300_000, 2_000_000])
        run.launch(run.random.choice(["add", "mul"]), ns=run.random.choice([4_000, 9_000, 50_000, 120_000]), gap=gap)
    for one in run.recorded[2::7]:
        run.kernels.remove(one)
    found = aligned(run, tmp_path, host=False)
    assert found.alignments[0].method == "time"
    assert_true(run, found)


def test_one_kernel_gives_an_offset_and_a_wider_error(tmp_path: Path) -> None:
    run = Run(1)
    run.launch()
    lonely = aligned(run, tmp_path).alignments[0]
    assert lonely.error_ns == pytest.approx(
        (run.recorded[0].end - run.recorded[0].start - run.recorded[0].end_gpu + run.recorded[0].begin_gpu) / 2, abs=5
    )
    for _ in range(30):
        run.launch()
    many = aligned(run, tmp_path).alignments[0]
    assert many.error_ns < lonely.error_ns
    assert many.drift_ppm == pytest.approx(11, abs=2e6 * many.error_ns / (run.now - run.first))


def test_like_launches_at_even_steps_are_ambiguous_without_host_times(tmp_path: Path) -> None:
    run = Run(2)
    run.random.randint = lambda low, high: low  # type: ignore[method-assign]
    for at in range(40):
        run.launch(record=10 <= at < 14, jitter=0)
    with pytest.raises(WarplensError, match="matched to the 40 kernels of that name.* in .* ways.*torch=True"):
        aligned(run, tmp_path, host=False)
    assert_true(run, aligned(run, tmp_path))


def test_a_kernel_with_a_false_time_does_not_bend_the_line(tmp_path: Path) -> None:
    """A slice that cannot hold its launch is not taken for it, and the launch is reported."""
    run = Run(3)
    for _ in range(20):
        run.launch()
    straight = aligned(run, tmp_path).alignments[0]
    run.kernels[7].start += 9_000
    bent = aligned(run, tmp_path).alignments[0]
    assert bent.unmatched == (7,)
    assert bent.error_ns < 2 * straight.error_ns
    assert abs(bent.line.offset_ns - straight.line.offset_ns) < straight.error_ns
    assert "1 recorded launch not in it" in str(bent)


@pytest.mark.parametrize(
    ("name", "bare"),
    [
        ("add_kernel", "add_kernel"),
        ("scale(float*, int, wl::Buffer)", "scale"),
        ("void attention::flash<64, true, (Mode)1>(__half const*, Params<float>)", "flash"),
        ("(anonymous namespace)::reduce<float>(float*)", "reduce"),
        ("_Z5scalePfiN2wl6BufferE", "scale"),
        ("ampere_sgemm_128x64_nn", "ampere_sgemm_128x64_nn"),
    ],
)
def test_bare_names(name: str, bare: str) -> None:
    assert base_name(name) == bare


def test_intervals_that_no_line_meets_are_missed_least() -> None:
    time = np.array([0, 10, 20]) * 10**6
    fit = fit_intervals(time, np.array([0, 500, 0]), np.array([100, 600, 100]))
    assert fit.widened_ns == pytest.approx(200, abs=1)
    assert fit.line(time) - time == pytest.approx([300, 300, 300], abs=2)
    assert float(fit.error_ns(time).max()) >= 200


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "does not exist"),
        (b"{", "not readable JSON"),
        (b"[]", "traceEvents: is missing"),
        (b'{"traceEvents": [{"ph": "X", "pid": 1, "tid": 1, "name": "x"}]}', "cannot be read"),
        (b'{"traceEvents": [{"ph": "X", "pid": 1, "tid": 1, "ts": 1, "name": "x", "args": [1]}]}', "cannot be read"),
        (b'{"traceEvents": [{"ph": "X", "pid": 1, "tid": 1, "ts": 1e999999999, "name": "x"}]}', "cannot be read"),
        (b'{"traceEvents": [{"ph": "X", "pid": 1, "tid": 1, "ts": "9e9999999", "name": "x"}]}', "cannot be read"),
        (
            b'{"traceEvents": [{"ph": "s", "pid": 1, "tid": 1, "ts": 1, "cat": "fwdbwd", "id": 1e9999999}]}',
            "cannot be read",
        ),
        (b'{"traceEvents": [], "other": 1e9999999999999999999}', "no GPU kernel"),
        (gzip.compress(b'{"traceEvents": []}', mtime=0), "no GPU kernel"),
        (b"\x1f\x8b\x00", "not readable JSON"),
    ],
)
def test_bad_torch_traces_are_named(content: bytes | None, said: str, tmp_path: Path) -> None:
    run = Run(4)
    run.launch()
    path = tmp_path / "torch.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(WarplensError, match=said):
        align(run.trace(), read_torch(path))


def test_traces_of_different_runs_are_refused(tmp_path: Path) -> None:
    run, other = Run(5), Run(6)
    run.launch("add")
    other.launch("mul")
    torch = read_torch(other.write_torch(tmp_path / "torch.json"))
    with pytest.raises(WarplensError, match="no kernel called add"):
        align(run.trace(), torch)
    later = Run(7)
    later.now += 10**12
    later.gpu_free = later.now
    later.launch("mul", ns=900_000)
    with pytest.raises(WarplensError, match="same run"):
        align(later.trace(), torch)
