"""The benchmark of host launches, and the driver whose calls it counts: with and without the compiled library."""

from __future__ import annotations

from functools import partial

import pytest

from benchmarks import host_launch
from benchmarks.lib.idle_libcuda import idle_driver
from warplens import native

needs_compiler = pytest.mark.skipif(native.why_not() is not None, reason=str(native.why_not()))


@needs_compiler
def test_launches_of_triton_and_of_others_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_launch, "LAUNCHES", 80)
    monkeypatch.setattr(host_launch, "REPEATS", 5)
    monkeypatch.setattr(host_launch, "PAUSE_S", 0.0)
    monkeypatch.setattr(host_launch, "beside_decoding", partial(host_launch.beside_decoding, 3, 1))
    found = host_launch.measure()
    for library in ("triton", "cupy", "cuda_core"):
        costs = found[f"launch_{library}"]
        assert costs["plain_us"] > 0
        assert costs["recorded_more_us"] > 0
        assert "closed_more_us" in costs
    assert all(found[f"end_{kind}_later"]["cpu_s"] > 0 for kind in ("trace", "file", "sampled"))
    ends = host_launch.quickest_ends(1)
    assert all({"collect", "decode"} <= ends[name]["steps"].keys() for name in host_launch.ENDS)
    assert all("save" in ends[name]["steps"] for name, (save, *_) in host_launch.ENDS.items() if save)
    assert found["beside_decoding"]["decoding"]["median_us"] > 0
    assert found["waiting_for_lock"]["recording_us"] > 0
    assert all(found[f"end_sampled_{kind}"]["cpu_s"] > 0 for kind in ("trace", "file"))
    assert all(found[f"end_{kind}_{blocks}_blocks"]["cpu_s"] > 0 for kind in ("trace", "file") for blocks in (8, 132))


@needs_compiler
def test_the_compiled_calls_answer_as_those_from_python() -> None:
    with idle_driver() as lib:
        context = lib.context()
        answers = []
        for _ in range(2):
            library = lib._lib
            for stream, captured in ((5, False), (6, True)):
                library.idle_capture(stream if captured else 0)
                answers.append((lib.runs_now(stream, context), lib.runs_now(stream, context + 1)))
            library.idle_capture(0)
            events = lib.new_events(40)
            assert len(set(events)) == 40
            assert all(events)
            lib.speed_up()
        assert lib._native is not None
        assert answers == [(True, False), (False, False)] * 2
