"""PC sampling through CUPTI: the structures of its header, what is read, what is lost, and what is refused."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.support.fake_cupti import FIRST, FakeCupti, FakeLibrary, crc_of
from warplens.driver import cupti_structures, pc_sampler, sample_buffer
from warplens.driver.cupti_structures import ContextParams
from warplens.driver.libcupti import Cupti, CuptiError, find_cupti
from warplens.driver.pc_sampler import PcSampler, cubin_crc, source_line
from warplens.errors import WarplensError

LAYOUTS = {
    "StallCount": ("CUpti_PCSamplingStallReason", "pcSamplingStallReasonIndex samples"),
    "PcRecord": (
        "CUpti_PCSamplingPCData",
        "size cubinCrc pcOffset functionIndex pad functionName stallReasonCount stallReason correlationId",
    ),
    "SamplingData": (
        "CUpti_PCSamplingData",
        "size collectNumPcs totalSamples droppedSamples totalNumPcs remainingNumPcs rangeId pPcData "
        "nonUsrKernelsTotalSamples hardwareBufferFull",
    ),
    "ConfigurationInfo": ("CUpti_PCSamplingConfigurationInfo", "attributeType attributeStatus attributeData"),
    "ContextParams": ("CUpti_PCSamplingEnableParams", "size pPriv ctx"),
    "ConfigurationParams": (
        "CUpti_PCSamplingConfigurationInfoParams",
        "size pPriv ctx numAttributes pPCSamplingConfigurationInfo",
    ),
    "DataParams": ("CUpti_PCSamplingGetDataParams", "size pPriv ctx pcSamplingData"),
    "ReasonParams": (
        "CUpti_PCSamplingGetStallReasonsParams",
        "size pPriv ctx numStallReasons stallReasonIndex stallReasons",
    ),
    "CrcParams": ("CUpti_GetCubinCrcParams", "size cubinSize cubin cubinCrc"),
    "LineParams": (
        "CUpti_GetSassToSourceCorrelationParams",
        "size cubin functionName cubinSize lineNumber pcOffset fileName dirName",
    ),
}
ATTRIBUTES = {
    "PERIOD": "SAMPLING_PERIOD",
    "REASONS": "STALL_REASON",
    "HARDWARE": "HARDWARE_BUFFER_SIZE",
    "MODE": "COLLECTION_MODE",
    "START_STOP": "ENABLE_START_STOP_CONTROL",
    "BUFFER": "SAMPLING_DATA_BUFFER",
}


def header_folder() -> Path | None:
    library = find_cupti()
    near = [Path(library).resolve().parents[1] / "include"] if library else []
    places = [*near, Path("/usr/local/cuda/include"), Path("/usr/local/cuda/extras/CUPTI/include")]
    return next((place for place in places if (place / "cupti_pcsampling.h").exists()), None)


def test_the_structures_are_those_of_the_header(tmp_path: Path) -> None:
    folder, compiler = header_folder(), shutil.which("cc") or shutil.which("gcc")
    if folder is None or compiler is None:
        pytest.skip("needs cupti_pcsampling.h and a C compiler")
    (tmp_path / "cuda.h").write_text("typedef struct CUctx_st *CUcontext;\n")
    lines = ["#include <stdio.h>", "#include <cupti_pcsampling.h>", 'int main() { printf("{\\"\\": 0");']
    for name, (of, fields) in LAYOUTS.items():
        lines.append(f'printf(", \\"{name}\\": %zu", sizeof({of}));')
        lines += [f'printf(", \\"{name}.{one}\\": %zu", offsetof({of}, {one}));' for one in fields.split()]
    prefix = "CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_"
    lines += [f'printf(", \\"{name}\\": %d", {prefix}{one});' for name, one in ATTRIBUTES.items()]
    lines.append('printf(", \\"CONTINUOUS\\": %d}", CUPTI_PC_SAMPLING_COLLECTION_MODE_CONTINUOUS); }')
    (tmp_path / "layout.c").write_text("\n".join(lines))
    made = [compiler, f"-I{tmp_path}", f"-I{folder}", str(tmp_path / "layout.c"), "-o", str(tmp_path / "layout")]
    subprocess.run(made, check=True, capture_output=True)
    header = json.loads(subprocess.run([str(tmp_path / "layout")], check=True, capture_output=True).stdout)
    ours: dict[str, int] = {"": 0, "CONTINUOUS": pc_sampler.CONTINUOUS}
    for name, (_, fields) in LAYOUTS.items():
        cls = getattr(cupti_structures, name)
        ours[name] = ctypes.sizeof(cls)
        for (mine, *_), theirs in zip(cls._fields_, fields.split(), strict=True):
            ours[f"{name}.{theirs}"] = getattr(cls, mine).offset
    assert header == ours | {name: getattr(cupti_structures.Attribute, name) for name in ATTRIBUTES}


@pytest.fixture(autouse=True)
def never_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pc_sampler, "_sampled_before", set())


def sampled(library: FakeLibrary) -> PcSampler:
    return PcSampler(FakeCupti(library), 77)


def test_samples_are_summed_by_instruction_and_reason() -> None:
    library = FakeLibrary()
    library.sample(b"one", "k", 16, wait=3, long_scoreboard=2)
    sampler = sampled(library)
    assert sampler.read() == 1
    library.sample(b"one", "k", 16, wait=1, selected=4)
    library.sample(b"two", "k", 16, barrier=5)
    library.late.append((crc_of(b"two"), "k", 32, {"wait": 1}))
    found = sampler.stop()
    one, two = crc_of(b"one"), crc_of(b"two")
    assert found.counts == {
        (one, "k", 16): Counter(wait=4, long_scoreboard=2, selected=4),
        (two, "k", 16): Counter(barrier=5),
        (two, "k", 32): Counter(wait=1),
    }
    assert (found.total, found.dropped, found.overflows) == (16, 0, 0)
    assert library.enabled == set()
    assert library.calls[-3:] == ["Stop", "GetData", "Disable"]


def test_samples_that_only_count_idle_schedulers_are_not_asked_for() -> None:
    library = FakeLibrary()
    sampler = sampled(library)
    assert list(sampler.reasons.values()) == ["selected", "wait", "long_scoreboard", "barrier", "no_instructions"]
    assert FIRST + 4 not in sampler.reasons
    assert sampler.period == 1 << pc_sampler.PERIOD == 1 << library.attributes[cupti_structures.Attribute.PERIOD][0]


def test_more_instructions_than_fit_are_fetched_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_buffer, "RECORDS", 8)
    library = FakeLibrary()
    for at in range(20):
        library.sample(b"one", "k", 16 * at, wait=1)
    sampler = sampled(library)
    assert sampler.read() == 20
    assert library.calls.count("GetData") == 1 + 3
    assert sampler.samples.total == 20


def test_dropped_samples_and_full_buffers_are_counted() -> None:
    library = FakeLibrary()
    sampler = sampled(library)
    library.dropped, library.foreign, library.full = 7, 5, 1
    library.sample(b"one", "k", 16, wait=3)
    sampler.read()
    library.sample(b"one", "k", 16, wait=3)
    found = sampler.stop()
    assert (found.total, found.dropped, found.foreign, found.overflows) == (18, 7, 5, 1)
    assert found.counts[crc_of(b"one"), "k", 16] == Counter(wait=6)


@pytest.mark.parametrize(
    ("status", "remedy"),
    [
        (35, "NVreg_RestrictProfilingToAdminUsers=0"),
        (40, "ERR_NVGPUCTRPERM"),
        (27, "does not support it"),
        (26, "another context or profiler"),
        (999, "CUPTI error 999)"),
    ],
)
def test_what_is_refused_names_the_remedy(status: int, remedy: str) -> None:
    library = FakeLibrary({"Enable": status})
    with pytest.raises(CuptiError, match=r"cuptiPCSamplingEnable failed: CUPTI_ERROR_\d+") as failure:
        sampled(library)
    assert remedy in str(failure.value)
    assert "\n" not in str(failure.value)
    assert "Disable" not in library.calls


def test_a_context_that_another_profiler_samples_is_left_alone() -> None:
    library = FakeLibrary()
    library.enabled.add(77)
    library.attributes[cupti_structures.Attribute.START_STOP] = [1, 0, 0]
    library.sample(b"its own", "k", 0, wait=1)
    with pytest.raises(WarplensError, match="another profiler, such as Proton, is sampling this context"):
        sampled(library)
    assert library.enabled == {77}
    assert len(library.records) == 1
    assert not {"Enable", "Disable", "SetConfigurationAttribute"} & set(library.calls)


def test_what_an_earlier_sampler_left_does_not_look_like_another_profiler() -> None:
    library = FakeLibrary()
    sampled(library).stop()
    library._Enable(ContextParams(24, None, 77))  # CUPTI might answer as if sampling were still enabled
    library.calls.clear()
    with pytest.raises(CuptiError, match="Enable"):
        sampled(library)


@pytest.mark.parametrize("call", ["GetNumStallReasons", "SetConfigurationAttribute", "Start"])
def test_a_sampler_that_cannot_start_leaves_nothing_enabled(call: str) -> None:
    library = FakeLibrary({call: 1})
    with pytest.raises(CuptiError, match=call):
        sampled(library)
    assert library.enabled == set()


def test_a_sampler_that_cannot_be_read_is_disabled_all_the_same() -> None:
    library = FakeLibrary()
    sampler = sampled(library)
    library.failing["GetData"] = 3
    with pytest.raises(CuptiError, match="GetData"):
        sampler.stop()
    assert library.enabled == set()


def test_a_library_from_before_cuda_12_4_is_refused() -> None:
    with pytest.raises(WarplensError, match=r"too old: samples need that of CUDA 12\.4"):
        sampled(FakeLibrary(version=21))


def test_a_library_without_the_function_is_refused() -> None:
    with pytest.raises(WarplensError, match=r"libcupti\.so\.fake has no cuptiNothing"):
        FakeCupti(FakeLibrary()).call("cuptiNothing")


def test_lines_come_with_their_folder() -> None:
    library = FakeLibrary()
    library.lines["k", 16] = ("/src", "k.cu", 12)
    library.lines["k", 32] = ("", "/src/k.py", 3)
    lib = FakeCupti(library)
    assert source_line(lib, b"cubin", "k", 16) == ("/src/k.cu", 12)
    assert source_line(lib, b"cubin", "k", 32) == ("/src/k.py", 3)
    assert source_line(lib, b"cubin", "k", 48) == ("", 0)


def test_the_real_library_knows_cubins_and_their_lines(tmp_path: Path) -> None:
    path, nvcc = find_cupti(), shutil.which("nvcc")
    if path is None or nvcc is None:
        pytest.skip("needs libcupti and nvcc")
    source = 'extern "C" __global__ void k(float* a) {\n  float x = a[0];\n  a[1] =\n    x * 2;\n}\n'
    (tmp_path / "k.cu").write_text(source)
    command = [nvcc, "-lineinfo", "-cubin", "-arch=sm_90", "k.cu", "-o", "k.cubin"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    cubin = (tmp_path / "k.cubin").read_bytes()
    lib = Cupti(path)
    assert cubin_crc(lib, cubin) == cubin_crc(lib, cubin) != cubin_crc(lib, cubin[:-16]) != 0
    places = {source_line(lib, cubin, "k", offset) for offset in range(0, 160, 16)}
    assert (str(tmp_path / "k.cu"), 2) in places
    assert source_line(lib, cubin, "unknown", 0) == ("", 0)
