"""Marked kernels are compiled and assembled for AMD's GPUs. No test here runs them."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import pytest

triton = pytest.importorskip("triton", reason="triton is not installed")
pytest.importorskip("triton.backends.amd.compiler", reason="this Triton has no back end for AMD's GPUs")

from triton.backends.compiler import GPUTarget  # noqa: E402

from tests.support.amd_kernels import CALLING, CLOCKS, GLUON_COPY, KERNELS, TARGETS, WHILE_LOOP  # noqa: E402
from warplens.errors import UsageError, WarplensError  # noqa: E402
from warplens.frontends.triton import amd_compiler  # noqa: E402
from warplens.frontends.triton.amd_compiler import code_resources, compile_for_amd  # noqa: E402
from warplens.record.layout import Kind, ValueType, word0  # noqa: E402
from warplens.weave.weaving import Selection, Weaving  # noqa: E402

_TIMERS = {"gfx942": "s_memrealtime s[", "gfx1100": "sendmsg(MSG_RTN_GET_REALTIME)"}
_TIMERS["gfx1250"] = _TIMERS["gfx1100"]
HAND_MARKED = ("vector_add", "matmul", "softmax")
each_gpu = pytest.mark.parametrize("arch", TARGETS)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "triton"))


@functools.cache
def woven(name: str, arch: str, how: Weaving | None = None) -> Any:
    kernel = KERNELS[name]
    return compile_for_amd(kernel.source(), TARGETS[arch], how=how, options=kernel.options)


def plain(name: str, arch: str) -> Any:
    kernel = KERNELS[name]
    return triton.compile(kernel.source(), target=TARGETS[arch], options=kernel.options)


def record_words(llir: str) -> list[int]:
    """The first words of the records, in the order of the code."""
    found = re.findall(
        r"%wl\.\d+\.words\.[02] = insertelement <[24] x i32> (?:poison|%\S+), i32 (-?\d+), i64 [02]", llir
    )
    return [int(word) & 0xFFFFFFFF for word in found]


each_kernel = pytest.mark.parametrize("name", [name for name in KERNELS if name != "large_matmul"])


@each_gpu
@each_kernel
def test_a_woven_kernel_is_assembled_without_spills(name: str, arch: str) -> None:
    kernel = woven(name, arch)
    assert len(kernel.asm["hsaco"]) > 1000
    used = code_resources(kernel.asm["amdgcn"])
    assert used == kernel.metadata.warplens["resources"]
    assert (used["spills"], used["scalar_spills"], used["private_bytes"]) == (0, 0, 0)
    assert used["registers"] > 0
    assert kernel.metadata.profile_scratch_size > 0
    assert kernel.metadata.warplens_remarks["notes"] == []


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1250"])
def test_a_kernel_with_few_registers_left_says_what_marks_change(arch: str) -> None:
    """Triton 3.6 leaves fences out of the one, and spills in the other; 3.9 does neither."""
    kernel = woven("large_matmul", arch)
    code, notes = kernel.asm["amdgcn"], kernel.metadata.warplens_remarks["notes"]
    more = code_resources(code)["spills"] - code_resources(plain("large_matmul", arch).asm["amdgcn"])["spills"]
    assert ("sched_barrier" in code) == (notes == [])
    assert more <= 0 or notes[0].endswith(f"it still spills {more} more")
    assert code.count(CLOCKS[arch]) == kernel.asm["llir"].count("= call i64 @llvm.readcyclecounter()")


@pytest.mark.parametrize(
    ("fenced", "loose", "unmarked", "note"),
    [
        (12, 0, 0, "arithmetic may be moved across its marks: otherwise it spills 12 more registers"),
        (12, 5, 3, "otherwise it spills 9 more registers, and it still spills 2 more"),
        (12, 12, 3, "with marks it spills 9 more registers"),
        (3, 0, 3, ""),
    ],
)
def test_fences_are_left_out_if_that_spills_less(
    fenced: int, loose: int, unmarked: int, note: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def counted(text: str) -> dict[str, int]:
        spills = fenced if "sched_barrier" in text else loose if CLOCKS["gfx1100"] in text else unmarked
        return {**code_resources(text), "spills": spills}

    monkeypatch.setattr(amd_compiler, "code_resources", counted)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    kernel = compile_for_amd(KERNELS["vector_add"].source(), TARGETS["gfx1100"])
    notes = kernel.metadata.warplens_remarks["notes"]
    assert notes[0].endswith(note) if note else notes == [], notes
    assert ("sched_barrier" in kernel.asm["amdgcn"]) == (not note or note.startswith("with marks"))


@each_gpu
@each_kernel
def test_each_clock_read_stands_between_two_scheduling_barriers(name: str, arch: str) -> None:
    code = woven(name, arch).asm["amdgcn"]
    reads = woven(name, arch).asm["llir"].count("= call i64 @llvm.readcyclecounter()")
    lines = [line.strip() for line in code.splitlines() if not line.lstrip().startswith((".loc", ".Ltmp"))]
    at = [number for number, line in enumerate(lines) if CLOCKS[arch] in line]
    assert len(at) == reads
    fences = [number for number, line in enumerate(lines) if "sched_barrier mask(0x00000000)" in line]
    assert len(fences) == 2 * reads
    for number, before, after in zip(at, fences[::2], fences[1::2], strict=True):
        assert before < number < after
        assert not any(line.startswith(("buffer_", "global_", "ds_", "v_")) for line in lines[before + 1 : after])


@each_gpu
def test_the_records_of_the_source_are_there_in_order(arch: str) -> None:
    kernel = woven("vector_add", arch)
    ids = {name: int(number) for number, name in kernel.metadata.warplens["regions"].items()}
    marks = [
        (Kind.BEGIN, "all"), (Kind.BEGIN, "load"), (Kind.END, "load"), (Kind.INSTANT, "loaded"),
        (Kind.BEGIN, "store"), (Kind.END, "store"), (Kind.END, "all"),
    ]  # fmt: skip
    assert record_words(kernel.asm["llir"]) == [word0(kind, ids[name]) for kind, name in marks]
    assert kernel.metadata.warplens["entries"] == {"vector_add": 7}
    # Start and exit; `load` with `all`; its end, the instant and the begin of `store`; the end of `store` with `all`.
    # Masked loads are branches on one GPU, so that marks which are neighbours here need not be there.
    assert kernel.asm["amdgcn"].count(CLOCKS[arch]) <= 2 + 7
    assert kernel.asm["amdgcn"].count(_TIMERS[arch]) == 2


@each_gpu
def test_a_loop_that_triton_pipelines_keeps_its_marks(arch: str) -> None:
    kernel = woven("matmul", arch)
    ids = {name: int(number) for number, name in kernel.metadata.warplens["regions"].items()}
    assert set(ids) == {"step", "load", "dot", "store"}
    words = record_words(kernel.asm["llir"])
    for name in ids:
        begins, ends = (words.count(word0(kind, ids[name])) for kind in (Kind.BEGIN, Kind.END))
        assert begins == ends >= 1
    # The offset of the next record goes around the loop in a register.
    assert re.search(r"%wl\.in\.\d+ = phi i32 ", kernel.asm["llir"])
    assert "wlt" not in kernel.asm["llir"]
    assert "@warplens" not in kernel.asm["amdgcn"]


@each_gpu
@pytest.mark.parametrize("name", KERNELS)
def test_marks_leave_no_branch(name: str, arch: str) -> None:
    """The branch that carries a mark through Triton's pipeliner asks whether the block's index is negative."""
    llir = woven(name, arch).asm["llir"]
    blocks = re.findall(r"(%\d+) = tail call i32 @llvm\.amdgcn\.workgroup\.id\.x\(\)", llir)
    assert not [block for block in blocks if re.search(rf"icmp \w+ i32 {block},", llir)]


def test_marks_in_a_while_loop_and_in_gluon_are_woven() -> None:
    kernel = compile_for_amd(WHILE_LOOP.source(), TARGETS["gfx942"])
    assert kernel.metadata.warplens["entries"] == {"while_loop": 2}
    kernel = compile_for_amd(GLUON_COPY.source(), TARGETS["gfx942"])
    assert kernel.metadata.warplens["entries"] == {"gluon_copy": 4}
    assert kernel.metadata.warplens["resources"]["spills"] == 0


def test_marks_in_a_function_that_is_not_inlined_are_refused() -> None:
    with pytest.raises(WarplensError, match="remove noinline=True or the marks"):
        compile_for_amd(CALLING.source(), TARGETS["gfx942"])


@each_gpu
def test_values_anchors_and_tags_are_stored_with_their_payload(arch: str) -> None:
    kernel = woven("every_kind", arch)
    ids = {name: int(number) for number, name in kernel.metadata.warplens["regions"].items()}
    words = record_words(kernel.asm["llir"])
    for name, kind in (("signed", ValueType.I64), ("wide", ValueType.I64), ("half", ValueType.F64)):
        assert word0(Kind.VALUE, ids[name], kind) in words
    assert word0(Kind.VALUE, ids["double"], ValueType.F64) in words
    assert word0(Kind.ASYNC_END, ids["flight"], 3) in words
    assert f"or i32 %wl.mark1.tag.high, {word0(Kind.ASYNC_BEGIN, ids['flight'])}" in kernel.asm["llir"]
    # What a warp does with a barrier is not recorded; the region of its wait is.
    assert {word0(Kind.BEGIN, ids["full"]), word0(Kind.END, ids["full"])} <= set(words)
    assert not [word for word in words if word & 7 == Kind.VALUE and word >> 27 == ValueType.BARRIER]


@each_gpu
def test_a_kernel_without_marks_records_the_life_of_its_waves(arch: str) -> None:
    kernel = woven("unmarked", arch)
    assert kernel.asm["amdgcn"].count(CLOCKS[arch]) == 2
    assert kernel.metadata.warplens["regions"] == {}


@each_gpu
@pytest.mark.parametrize("name", HAND_MARKED)
def test_outside_of_weaving_a_kernel_is_what_it_would_be_without_marks(
    name: str, arch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    woven(name, arch)
    marked = plain(name, arch)
    assert marked.metadata.profile_scratch_size == 0
    assert not hasattr(marked.metadata, "warplens")
    assert CLOCKS[arch] not in marked.asm["amdgcn"]
    assert "warplens" not in marked.asm["llir"]
    assert "wl." not in marked.asm["llir"]
    import warplens.frontends.triton.marks as marks

    monkeypatch.setattr(marks, "_emit", lambda *_: None)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    assert plain(name, arch).asm["amdgcn"] == marked.asm["amdgcn"]


def test_only_the_clock_of_gfx11_is_noted_as_short() -> None:
    assert woven("vector_add", "gfx1100").metadata.warplens["clock_bits"] == 20
    assert "clock_bits" not in woven("vector_add", "gfx942").metadata.warplens


def test_regions_can_be_left_out() -> None:
    kernel = woven("vector_add", "gfx942", Weaving(omit=("load",)))
    assert "load" not in kernel.metadata.warplens["regions"].values()
    assert kernel.metadata.warplens["entries"] == {"vector_add": 5}


@pytest.mark.parametrize(
    "how",
    [
        Weaving(full="ring"),
        Weaving(clock="64"),
        Weaving(mode="aggregate"),
        Weaving(delay="load"),
        Weaving(select=Selection(warps=(0,))),
    ],
)
def test_what_is_only_woven_into_ptx_is_refused(how: Weaving) -> None:
    with pytest.raises(UsageError, match="not supported in kernels for AMD's GPUs"):
        woven("vector_add", "gfx942", how)


def test_other_gpus_are_refused() -> None:
    source = KERNELS["vector_add"].source()
    with pytest.raises(UsageError, match="not one of AMD's GPUs"):
        compile_for_amd(source, GPUTarget("cuda", 90, 32))
    with pytest.raises(WarplensError, match="gfx906"):
        compile_for_amd(source, GPUTarget("hip", "gfx906", 64))
