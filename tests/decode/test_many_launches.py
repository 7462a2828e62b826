"""Captures of many launches: the same rows and, within the stated error, the same times as launch by launch."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.paths import ROOT
from tests.support.small_launches import small_launches
from tests.support.track_programs import Program, capture_of, write
from warplens import native
from warplens.decode import capture_decoder, decode
from warplens.decode.clock import anchor_fit, launch_fit
from warplens.decode.clock.anchor_fit import ClockLines
from warplens.decode.native_decoder import NativeDecoder
from warplens.errors import WarplensError
from warplens.record.capture import Capture, Device
from warplens.trace.model import Trace

EXACT = ("launch", "kernel", "sm", "block", "warp", "region", "kind", "depth", "parent", "start_cycle", "dur_cycles")


def fully_fitted(capture: Capture, monkeypatch: pytest.MonkeyPatch) -> Trace:
    """The trace when all anchors of all launches are fitted."""
    with monkeypatch.context() as patch:
        patch.setattr(launch_fit, "_MANY", 1 << 30)
        return decode(capture)


def test_times_are_those_of_a_fit_of_all_anchors_within_the_stated_error(monkeypatch: pytest.MonkeyPatch) -> None:
    capture = small_launches(150, blocks=132)
    want, got = fully_fitted(capture, monkeypatch), decode(capture)
    assert got.meta.clock.anchors < want.meta.clock.anchors / 2, "not all anchors were needed"
    assert all(got.spans[name].equals(want.spans[name]) for name in EXACT)
    off = np.abs(got.numpy("start_ns") + got.meta.origin_ns - want.numpy("start_ns") - want.meta.origin_ns)
    assert off.max() <= want.meta.clock.residual_p99_ns
    assert np.median(off) <= want.meta.clock.residual_p50_ns / 2
    for name in ("residual_p50_ns", "residual_p99_ns", "residual_max_ns"):
        assert getattr(got.meta.clock, name) == pytest.approx(getattr(want.meta.clock, name), rel=0.25)
    assert (got.meta.clock.clocks, got.meta.clock.sms) == (want.meta.clock.clocks, want.meta.clock.sms) == (8, 132)


def test_the_times_are_the_true_ones() -> None:
    capture = small_launches(100, blocks=132)
    trace = decode(capture)
    true = np.concatenate([launch.extra["true_ns"] for launch in capture.launches])
    off = trace.numpy("start_ns") + trace.meta.origin_ns - true
    assert np.abs(off - np.median(off)).max() < 20


def test_a_launch_whose_clock_changed_is_fitted_from_all_its_anchors(monkeypatch: pytest.MonkeyPatch) -> None:
    capture = small_launches(100, blocks=264, lasting_ns=400_000, slows_down=(7, 55))
    want, got = fully_fitted(capture, monkeypatch), decode(capture)
    assert got.meta.clock.method == want.meta.clock.method == "piecewise"
    changed = np.isin(got.numpy("launch"), (7, 55))
    off = np.abs(got.numpy("start_ns") + got.meta.origin_ns - want.numpy("start_ns") - want.meta.origin_ns)
    assert off[changed].max() <= 1
    assert off.max() <= 2 * want.meta.clock.residual_p99_ns


def test_sms_that_only_a_few_launches_ran_on_are_placed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    capture = small_launches(90, blocks=4, moving=True)
    want, got = fully_fitted(capture, monkeypatch), decode(capture)
    off = np.abs(got.numpy("start_ns") + got.meta.origin_ns - want.numpy("start_ns") - want.meta.origin_ns)
    assert off.max() <= 2 * want.meta.clock.step_ns


def test_each_device_keeps_to_its_own_maximum_clock() -> None:
    capture = small_launches(80, blocks=16)
    slow = Device("slow", index=1, clock_mhz=1500.0)
    mixed = [replace(one, device=slow) if number % 2 else one for number, one in enumerate(capture.launches)]
    trace = decode(replace(capture, launches=mixed))
    rates = {info.device: [] for info in trace.meta.launches}
    for info in trace.meta.launches:
        rates[info.device].append(1000 * info.busy_cycles / info.busy_ns)
    assert max(rates[1]) <= 1501
    assert np.mean(rates[0]) == pytest.approx(1755, rel=0.01)


def test_few_launches_are_fitted_from_all_anchors() -> None:
    capture = small_launches(10, blocks=8)
    trace = decode(capture)
    tracks = trace.meta.losses.tracks
    assert trace.meta.clock.anchors == 2 * tracks


def test_launches_without_a_track_are_listed_and_empty() -> None:
    capture = small_launches(3, blocks=2)
    capture.launches[1].raw[:] = 0
    trace = decode(capture)
    assert [info.tracks for info in trace.meta.launches] == [8, 0, 8]
    assert (trace.meta.launches[1].begin_ns, trace.meta.launches[1].covered) == (0, {})


def test_a_rank_and_kernels_beyond_sixteen_bits_keep_their_values() -> None:
    one = small_launches(1, blocks=1).launches[0]
    capture = Capture([replace(one, kernel=f"kernel_{i}") for i in range(33_000)], Device(), rank=40_000)
    trace = decode(capture)
    assert set(trace.numpy("rank").tolist()) == {40_000}
    codes, names = trace.codes("kernel")
    assert len(names) == 33_000
    assert names[codes[-1]] == "kernel_32999"


def test_the_timer_step_is_that_of_all_anchors() -> None:
    ns = np.array([10**18 + 96, 10**18, 10**18 + 32])
    assert anchor_fit.GlobalTimer.of(ns) == anchor_fit.GlobalTimer(10**18, 32.0)
    assert anchor_fit.GlobalTimer.of(ns[:1]).step == 0.0


@pytest.mark.skipif(native.load() is None, reason="needs a C compiler")
def test_clocks_are_fitted_while_records_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, fit, fill = threading.Event(), capture_decoder.fit_launches, NativeDecoder.fill

    def fitting(*given: Any) -> ClockLines:
        begun.set()
        return fit(*given)

    def filling(*given: Any) -> Any:
        assert begun.wait(10), "the fit waits for the records"
        return fill(*given)

    capture = small_launches(70, blocks=8)
    expected = decode(capture)
    monkeypatch.setattr(capture_decoder, "_FEW_TRACKS", 0)
    monkeypatch.setattr(capture_decoder, "fit_launches", fitting)
    monkeypatch.setattr(NativeDecoder, "fill", filling)
    found = decode(capture)
    assert found.spans.equals(expected.spans)
    assert found.meta.clock == expected.meta.clock


@pytest.mark.skipif(native.load() is None, reason="needs a C compiler")
def test_clocks_wait_for_anchors_that_are_records(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    fit, fill = capture_decoder.fit_launches, NativeDecoder.fill
    monkeypatch.setattr(capture_decoder, "_FEW_TRACKS", 0)
    monkeypatch.setattr(capture_decoder, "fit_launches", lambda *given: order.append("fit") or fit(*given))
    monkeypatch.setattr(NativeDecoder, "fill", lambda *given: fill(*given) + (order.append("rows") or []))
    track = write(Program(8, steps=[("begin", 1, 10), ("anchor", 1, 100), ("end", 1, 5)]))
    trace = decode(capture_of([track], 8))
    assert order == ["rows", "fit"]
    assert trace.meta.clock.anchors == 3


def test_a_fit_that_fails_beside_the_records_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*given: Any) -> ClockLines:
        raise WarplensError("no clock")

    monkeypatch.setattr(capture_decoder, "fit_launches", failing)
    monkeypatch.setattr(capture_decoder, "_FEW_TRACKS", 0)
    with pytest.raises(WarplensError, match="no clock"):
        decode(small_launches(2, blocks=2))


def test_a_small_capture_is_decoded_when_the_program_ends() -> None:
    """Python starts no thread any more then."""
    program = (
        "import atexit\n"
        "from tests.support.flown_launches import plain_launches\n"
        "from warplens.decode import decode\n"
        "from warplens.record.capture import Capture\n"
        "capture = Capture(plain_launches(3, blocks=2))\n"
        "decode(capture)\n"
        "atexit.register(lambda: print(len(decode(capture))))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    ended = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    assert int(ended.stdout) > 0, ended.stderr
