"""Rooflines and occupancy against numbers that can be checked by hand or with NVIDIA's own calculator."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import warplens as wl
from tests.support.builders import Span, make_trace
from tests.support.paths import GOLDEN
from warplens.analyse.devices import PEAKS, find_peak
from warplens.analyse.occupancy import achieved
from warplens.analyse.roofline import ceilings
from warplens.commands import main
from warplens.driver.limits import SM_LIMITS, limits_of
from warplens.driver.theoretical_occupancy import blocks_per_sm, occupancy, registers_for_warps, shared_for_blocks
from warplens.errors import UsageError
from warplens.trace.model import Trace


def on(trace: Trace, **device: object) -> Trace:
    return Trace(trace.spans, replace(trace.meta, devices={"0": device}))


def test_a_matmul_under_the_roof_of_an_h200() -> None:
    """4096³ in 200 µs: 687 of 989 TFLOP/s, and 100 MB at 503 GB/s of 4800."""
    trace = on(make_trace([Span("mma", 0, 200_000)]), name="NVIDIA H200", sm_count=132)
    one = wl.roofline(trace, flops=2 * 4096**3, bytes=3 * 2 * 4096**2, dtype="fp16")
    assert one.tflops == pytest.approx(687.2, abs=0.1)
    assert one.bandwidth == pytest.approx(503.3, abs=0.1)
    assert one.intensity == pytest.approx(1365.3, abs=0.1)
    assert (one.bound, one.roof) == ("compute", "compute")
    assert one.of_roof == pytest.approx(687.2 / 989.4, abs=1e-3)
    assert one.ceilings.ridge == pytest.approx(206.1, abs=0.1)
    json.dumps(one.to_json())


def test_memory_bound_and_neither() -> None:
    copy = wl.roofline(time_ns=1e6, bytes=4.2e9, device="NVIDIA H200")
    assert (copy.bound, copy.of_roof) == ("memory", pytest.approx(4200 / 4800))
    slow = wl.roofline(time_ns=1e6, bytes=0.5e9, flops=1e9, device="H200", dtype="fp32")
    assert slow.bound == "neither"
    assert "left of the ridge" in slow.advice
    dense = wl.roofline(time_ns=1e6, bytes=1e6, flops=1.2e9, device="H200")
    assert "at 1,200 FLOP/byte" in dense.advice
    impossible = wl.roofline(time_ns=1e6, bytes=9e9, device="H200")
    assert "Above the roof" in impossible.advice


def test_a_regions_time_is_its_active_time_per_sm() -> None:
    """Two warps of each of two SMs are in `mma` at overlapping times: 150 ns active per SM in a launch of 1000."""
    spans = []
    for sm in (0, 1):
        spans += [Span("mma", 0, 100, block=sm, warp=0, sm=sm), Span("mma", 50, 100, block=sm, warp=1, sm=sm)]
        spans += [Span("rest", 150, 850, block=sm, warp=0, sm=sm)]
    trace = on(make_trace(spans), name="NVIDIA H100 80GB HBM3", sm_count=2)
    assert wl.roofline(trace, flops=1e6, region="mma").time_ns == pytest.approx(150)
    assert wl.roofline(trace, flops=1e6, region="mma", per_span=True).flops == pytest.approx(4e6)
    assert wl.roofline(trace, flops=1e6).time_ns == 1000


def test_measured_ceilings_replace_listed_ones() -> None:
    roof = ceilings("NVIDIA H200", "fp16", {"bandwidth": 4100.0, "fp16": 700.0})
    assert (roof.bandwidth, roof.tflops, roof.measured) == (4100.0, 700.0, True)
    assert not ceilings("NVIDIA H200", "fp8", {"bandwidth": 4100.0, "fp16": 700.0}).measured


@pytest.mark.parametrize(
    ("name", "listed"),
    [
        ("Tesla V100-SXM2-32GB", "V100 SXM2"),
        ("NVIDIA A100-SXM4-80GB", "A100 SXM4 80GB"),
        ("NVIDIA A100 80GB PCIe", "A100 PCIe 80GB"),
        ("NVIDIA A100-PCIE-40GB", "A100 40GB"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM5"),
        ("NVIDIA H200", "H200 SXM"),
        ("NVIDIA GH200 480GB", "GH200"),
        ("NVIDIA B200", "B200"),
    ],
)
def test_devices_are_known_by_their_drivers_names(name: str, listed: str) -> None:
    found = find_peak(name)
    assert found is not None
    assert found.name == listed


def test_every_listed_device_has_a_source_and_limits() -> None:
    for peak in PEAKS:
        assert peak.source
        assert peak.capability in SM_LIMITS
        assert peak.bandwidth > 0
        assert all(rate > 0 for rate in peak.tflops.values())
    for other in ("Some other card", "NVIDIA RTX A1000", "H2000", "NVIDIA B2000"):
        assert find_peak(other) is None


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"flops": 1e9},
        {"flops": 1e9, "device": "H200", "time_ns": -5.0},
        {"flops": 1e9, "device": "Some other card", "time_ns": 5.0},
        {"flops": 1e9, "device": "V100", "time_ns": 5.0, "dtype": "fp8"},
        {"flops": 1e9, "device": "H200", "time_ns": 5.0, "dtype": "fp17"},
    ],
)
def test_requests_that_cannot_be_placed(options: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        wl.roofline(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "capability", "blocks", "limiters"),
    [
        (256, 32, 0, "9.0", 8, {"warps", "registers"}),
        (256, 64, 0, "9.0", 4, {"registers"}),
        (256, 65, 0, "9.0", 3, {"registers"}),
        (128, 168, 0, "8.0", 3, {"registers"}),
        (128, 0, 100_000, "9.0", 2, {"shared memory"}),
        (128, 0, 100_000, "8.0", 1, {"shared memory"}),
        (32, 16, 0, "9.0", 32, {"blocks"}),
        (1024, 32, 0, "8.6", 1, {"warps"}),
        (96, 40, 0, "7.5", 10, {"warps"}),
    ],
)
def test_theoretical_occupancy(
    threads: int, registers: int, shared: int, capability: str, blocks: int, limiters: set[str]
) -> None:
    found = occupancy(threads, registers, shared, capability)
    assert found.blocks == blocks
    assert set(found.limiters) == limiters
    assert found.share == pytest.approx(blocks * -(-threads // 32) / SM_LIMITS[capability].warps)


def test_what_would_lift_the_limit_does() -> None:
    found = occupancy(256, 90, 0, "9.0")
    assert "at most 80 registers" in found.lift
    assert occupancy(256, 80, 0, "9.0").blocks == found.blocks + 1
    assert occupancy(256, 81, 0, "9.0").blocks == found.blocks
    by_shared = occupancy(128, 0, 100_000, "9.0")
    assert "at most 76,800 bytes" in by_shared.lift
    assert occupancy(128, 0, 76_800, "9.0").blocks == by_shared.blocks + 1
    assert occupancy(128, 0, 76_801, "9.0").blocks == by_shared.blocks
    stepped = occupancy(32, 161, 0, "9.0")
    assert stepped.lift == "at most 128 registers per thread (now 161) would fit 16 blocks"
    assert occupancy(32, 128, 0, "9.0").blocks == 16, "registers are allocated in steps"
    assert occupancy(256, 32, 0, "9.0").lift == "nothing: blocks that fill every warp slot fit already"


@pytest.mark.parametrize("arguments", [(0,), (2048,), (128, 300), (128, 32, 999_999), (128, 32, 0, "1.0")])
def test_impossible_blocks_are_refused(arguments: tuple[int, ...]) -> None:
    with pytest.raises(UsageError):
        occupancy(*arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("capability", SM_LIMITS)
def test_what_lets_blocks_fit_is_the_most_that_does(capability: str) -> None:
    limits = SM_LIMITS[capability]
    for warps in range(1, limits.warps + 1):
        registers = registers_for_warps(limits, warps)
        assert blocks_per_sm(limits, 32 * warps, registers) >= 1
        if registers < 255:
            assert blocks_per_sm(limits, 32 * warps, registers + 8) == 0
    for blocks in range(1, limits.blocks + 1):
        shared = shared_for_blocks(limits, blocks)
        assert blocks_per_sm(limits, 32, shared=shared) >= blocks
        assert limits.shared // (shared + limits.reserved + 1) < blocks or shared % limits.shared_unit == 0


def test_capabilities_may_be_written_as_people_do() -> None:
    assert limits_of("sm_90a") == limits_of("90") == limits_of("9.0")
    assert limits_of("sm_100") == SM_LIMITS["10.0"]


def test_achieved_occupancy_counts_warps_alive() -> None:
    """Two warps for the whole launch and two for its first half, on one SM: three on average."""
    spans = [Span("x", 0, 1000 if warp < 2 else 500, warp=warp) for warp in range(4)]
    plain = on(make_trace(spans), capability="9.0")
    one = achieved(plain)["kernel"]
    assert (one.warps, one.share) == (pytest.approx(3.0), pytest.approx(3 / 64))
    assert (one.over_time[10], one.over_time[90]) == (pytest.approx(4.0), pytest.approx(2.0))
    assert one.theoretical is None
    launches = tuple(replace(info, extra={"registers": 64, "shared_bytes": 0}) for info in plain.meta.launches)
    known = Trace(plain.spans, replace(plain.meta, launches=launches))
    limit = achieved(known)["kernel"].theoretical
    assert limit is not None
    assert limit.limiters == ("registers",)


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["roofline", "--time-ns", "200000", "--device", "H200", "--flops", "2*4096*4096*4096", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bound"] == "compute"
    assert main(["roofline", "--time-ns", "1e6", "--device", "H200", "--bytes", "4.2G"]) == 0
    assert "memory bound" in capsys.readouterr().out
    assert main(["roofline", "--time-ns", "1", "--device", "H200", "--bytes", "4.2G"]) == 0
    assert "as fast" not in capsys.readouterr().out, "what is above the roof has no room left"
    assert main(["roofline", "--list", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["devices"]) == len(PEAKS)
    assert main(["roofline", "--flops", "many", "--time-ns", "5", "--device", "H200"]) == 2
    for words in (["--flops", "1e999", "--time-ns", "5"], ["--flops", "1", "--time-ns", "nan"]):
        assert main(["roofline", *words, "--device", "H200"]) == 2
    assert main(["roofline", "--flops", "5"]) == 2
    assert main(["occupancy", "--threads", "256", "--registers", "64", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["blocks"] == 4


@pytest.mark.parametrize("rate", ["0", "-1", "NaN", "Infinity"])
def test_ceilings_that_nothing_can_be_held_against_are_refused(
    rate: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "ceilings.json"
    file.write_text(f'{{"device": "H200", "measured": {{"bandwidth": {rate}, "fp16": 700}}}}')
    assert main(["roofline", "--ceilings", str(file), "--bytes", "1G", "--time-ns", "1e6"]) == 1
    assert "not a file of measured ceilings (bandwidth is " in capsys.readouterr().err


def test_the_time_of_a_region_is_called_what_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A warp of this recording is in `dot` for about 1 µs; averaged over all 132 SMs it is 174 ns."""
    capture = str(GOLDEN / "captures" / "triton_matmul.wlcap")
    assert main(["roofline", capture, "--flops", "67e6"]) == 0
    said = capsys.readouterr().out
    assert "matmul in 6.00 µs: neither" in said
    assert main(["roofline", capture, "--flops", "67e3"]) == 0
    assert "at the roof it would be 88,544 times as fast" in capsys.readouterr().out
    assert main(["roofline", capture, "--flops", "67e6", "--region", "dot"]) == 0
    assert "matmul: dot, active 174 ns on the average SM: neither" in capsys.readouterr().out


def test_a_missing_file_of_ceilings_is_named_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["roofline", "--ceilings", "none.json", "--bytes", "1G", "--time-ns", "1e6"]) == 1
    said = capsys.readouterr().err
    assert "none.json: cannot be read (No such file or directory)" in said
    assert "Errno" not in said
