"""Small traces whose documents hold what few profiles write: verified regions, samples, slopes, clocks of ranks."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import warplens as wl
from tests.support.builders import Span, make_trace
from tests.support.late_job import late_job, write_late_job
from tests.support.wave_capture import launch_of, waves
from warplens.analyse.region_sensitivity import RegionSensitivity, Sensitivity
from warplens.decode import decode
from warplens.launch.block_sampler import sample_launches
from warplens.record.capture import HOST_NS, MACHINE_CODE, VARIANT, VARIANT_LAUNCHES, Capture, Device
from warplens.sass.pc_samples import PcSampling, SampledCode
from warplens.sass.verified_regions import KernelVerification, MovedInstruction, RegionCode, RegionInstance
from warplens.trace.io import rank_part

_DIGEST = "0123456789abcdef"


def full_documents() -> list[wl.Trace]:
    """One profile of one rank, two ranks on one axis, the part of a rank as it was written, and a sampled launch."""
    job = late_job({1: {"softmax": 40_000}}, ranks=2, steps=3)
    with tempfile.TemporaryDirectory() as folder:
        part = wl.load(rank_part(write_late_job(Path(folder), job), 0))
        part.spans  # noqa: B018  # the file is removed
    return [_verified(), job, part, _sampled()]


def _sampled() -> wl.Trace:
    """A launch of which some blocks were recorded."""
    blocks = waves(60, uneven=40, spans=20)
    return decode(
        Capture(
            list(sample_launches([launch_of(blocks, warps=1)], 1 << 13)),
            device=Device("test", sm_count=16, capability="9.0"),
        )
    )


def _verified() -> wl.Trace:
    spans = [
        Span(region, begin, lasts, block, launch=launch)
        for launch in range(2)
        for block in range(4)
        for region, begin, lasts in (("load", 10, 400), ("mma", 420, 300), ("store", 730, 90))
    ]
    trace = make_trace(spans)
    extra = {
        MACHINE_CODE: _DIGEST,
        VARIANT: {"grid": [4, 1, 1], "BLOCK": 64},
        VARIANT_LAUNCHES: 9,
        HOST_NS: 10**18,
        "registers": 40,
    }
    return wl.Trace(
        trace.spans,
        replace(
            trace.meta,
            launches=tuple(replace(info, extra=extra, cost={"records": 12.0}) for info in trace.meta.launches),
            devices={"0": {"name": "GPU", "sm_count": 132, "capability": "9.0"}},
            verification={_DIGEST: _code().to_json()},
            pc_samples=_samples().to_json(),
            sensitivity=_slopes().to_json(),
            locations={"load": "kernel.py:3", "mma": "kernel.py:9"},
            notes={"kernel": ["one block in 17 is recorded"]},
        ),
    )


def _code() -> KernelVerification:
    def region(name: str, begin: int, flag: str = "") -> RegionCode:
        instance = RegionInstance(begin, 6, 2, {"memory": 4})
        moved = (MovedInstruction(begin - 16, "LDG.E R1, [R2]", "memory", "before", 4, name),)
        ranges = ((begin, begin + 96),)
        lines = (("kernel.py", 3, 8),)
        counts = {"memory": 4}
        return RegionCode(
            name, 4, 0, 1, 2, counts, {}, {"memory": 1}, flag, 1, (instance,), moved, ranges, ranges, lines
        )

    regions = (region("load", 64, "its load is outside its marks"), region("mma", 256), region("store", 512))
    return KernelVerification("kernel", regions, 60, 9, {"memory": 20}, ("epilogue",), "cubin", "f" * 16)


def _samples() -> PcSampling:
    counts = {at: {"long scoreboard": 5, "wait": 2} for at in range(64, 600, 48)}
    lines = {at: {"barrier": 3} for at in range(3, 9)}
    codes = (
        SampledCode.of("kernel", _DIGEST, counts, 90),
        SampledCode.of("kernel", _DIGEST, lines, 18, plain=True, file="kernel.py"),
    )
    return PcSampling(codes, taken=120, dropped=1, other=11, overflows=1, period=4096, problems=("a buffer was full",))


def _slopes() -> Sensitivity:
    answered = RegionSensitivity(
        "kernel", "grid 4", "mma", 0.9, 0.8, 1.0, "critical", 8.0, (0.0, 64.0), ((0.0, -1.0, 1.0), (60.0, 50.0, 70.0)),
        900.0, 0.01, 0.02, 0.0, 9, 3, 0.5,
    )  # fmt: skip
    return Sensitivity((answered, RegionSensitivity("kernel", "grid 4", "load", reason="locked")), "identical", "GPU")
