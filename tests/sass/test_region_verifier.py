"""Regions verified in real cubins: what each holds, and what ptxas and the compiler moved."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.golden_ptx import GOLDEN
from tests.support.sass_kernels import DIVISION, HOISTED, TENSOR, UNROLLED, code_of, kernel, loop, needs_tools, verify
from warplens.sass.cubin_file import SassError, read_cubin_file
from warplens.sass.cuda_tools import find_tool
from warplens.sass.disassembly import disassemble
from warplens.sass.machine_code import assemble_with_lines
from warplens.sass.marked_lines import marked_lines
from warplens.sass.region_verifier import verify_cubin, verify_function
from warplens.sass.verified_regions import KernelVerification
from warplens.weave.weaver import weave
from warplens.weave.weaving import Selection, Weaving

pytestmark = needs_tools
STORES = ("auto", "now", "late", "end", "spread")


def golden(name: str) -> tuple[str, str]:
    """A golden text that ptxas here can assemble, and its marked kernel."""
    text = (GOLDEN / f"{name}.ptx").read_text(errors="replace").replace("\0", "")
    woven = weave(text)
    try:
        assemble_with_lines(woven.text)
    except SassError as error:
        pytest.skip(str(error))
    return text, next(iter(woven.entries))


@pytest.mark.parametrize("store", STORES)
def test_a_load_that_ptxas_moved_before_its_begin_flags_the_region(store: str) -> None:
    load = verify(HOISTED, store=store)["load"]
    assert (load.kept, load.moved_out, load.purity, load.complete) == (0, 1, 0.0, 0.0)
    assert load.flag == "its only global load is before its begin"
    moved = next(one for one in load.moved if one.where == "before")
    assert moved.text.startswith("LDG")
    assert moved.kind == "load.global"
    assert "load.global" not in load.counts


def test_the_same_loop_without_an_invariant_load_is_not_flagged() -> None:
    moving = loop('\t.pragma "nounroll";').replace("\tadd.u32 %r3", "\tadd.s64 %rd1, %rd1, 512;\n\tadd.u32 %r3")
    load = verify(moving)["load"]
    assert (load.flag, load.complete) == ("", 1.0)
    assert load.counts["load.global"] == 1


def test_marks_of_a_warp_that_may_have_diverged_are_found() -> None:
    """There a warp barrier of warplens's own comes between a mark and its clock read."""
    diverging = UNROLLED.replace(
        "\t// @warplens B load",
        "\tsetp.gt.u32 %p2, %r2, %r3;\n\t@%p2 bra $M;\n\tadd.f32 %f2, %f2, %f2;\n$M:\n\t// @warplens B load",
    )
    woven = weave(diverging, how=Weaving(store="spread", aligned=True)).text
    assert re.search(r"@warplens B load\n\s*bar\.warp\.sync", woven)
    found = verify_cubin(assemble_with_lines(woven), "k", woven)
    assert [(one.region, one.copies) for one in found.regions] == [("load", 1), ("math", 1)]
    assert all(one.ranges for one in found.regions)
    assert not any("WARPSYNC" in one.text for region in found.regions for one in region.moved)


def test_a_warp_barrier_of_the_kernel_belongs_to_it() -> None:
    """Two marks share a clock read, and the warp barrier after the second is the kernel's own."""
    text = UNROLLED.replace("\t// @warplens B math\n", "\t// @warplens B math\n\tbar.warp.sync 0xffffffff;\n")
    lines = marked_lines(weave(text, how=Weaving(store="now")).text, "k")
    at = next(
        number
        for number, line in enumerate(weave(text, how=Weaving(store="now")).text.splitlines(), 1)
        if "bar.warp.sync" in line
    )
    assert at not in lines.own
    assert "math" in lines.owners(at)


def test_copies_of_an_unrolled_loop_are_told_apart() -> None:
    found = verify(UNROLLED)
    math, load = found["math"], found["load"]
    assert math.copies == load.copies == len(math.instances) > 2
    assert len({one.begin for one in math.instances}) == math.copies
    assert all(one.counts == {"fp32": 1} for one in math.instances)
    assert math.counts == {"fp32": math.copies}
    # Only some of the copies still load.
    holding = sum("load.global" in one.counts for one in load.instances)
    assert load.flag == f"{load.copies - holding} of its {load.copies} copies have no global load between their marks"


def test_a_tensor_instruction_after_the_end_flags_the_region() -> None:
    woven = weave(TENSOR).text
    function = disassemble(assemble_with_lines(woven))["k"]
    lines = marked_lines(woven, "k")
    assert verify_function(function, lines, {})["mma"].flag == ""
    # The same code, had ptxas issued the product after the clock read of the end.
    rows = list(function.instructions)
    product = next(at for at, one in enumerate(rows) if one.opcode.startswith("HMMA"))
    end = next(at for at, one in enumerate(rows) if at > product and one.reads_clock)
    moved = [*rows[:product], *rows[product + 1 : end + 1], rows[product], *rows[end + 1 :]]
    moved = [replace(one, address=place.address) for one, place in zip(moved, rows, strict=True)]
    found = verify_function(type(function)("k", tuple(moved), function.labels), lines, {})["mma"]
    assert found.flag == "its only tensor instruction is after its end"
    assert found.moved_out_counts == {"tensor": 1}
    assert "tensor" not in found.counts


def test_a_subroutine_of_ptxas_belongs_to_the_region_that_calls_it() -> None:
    divide = verify(DIVISION)["divide"]
    assert divide.kept > 30
    assert divide.moved_out == 0
    assert divide.purity > 0.9
    assert divide.counts["special"] >= 1


@pytest.mark.parametrize("separate", [False, True])
def test_a_function_belongs_to_every_region_that_calls_it(separate: bool, tmp_path: Path) -> None:
    """Also where it is compiled separately, and so is in a section of its own."""
    call = "\t{\n\t.param .b32 x;\n\t.param .b32 y;\n\tst.param.f32 [x], %f1;\n\tcall (y), f, (x);\n"
    call += "\tld.param.f32 %f1, [y];\n\t}\n"
    function = (
        ".visible .func (.param .b32 y) f(.param .b32 x)\n{\n\t.reg .f32 %f<4>;\n"
        "\tld.param.f32 %f1, [x];\n\tsin.approx.f32 %f1, %f1;\n\tsin.approx.f32 %f1, %f1;\n"
        "\tst.param.f32 [y], %f1;\n\tret;\n}\n"
    )
    body = "".join(f"\t// @warplens B {name}\n{call}\t// @warplens E {name}\n" for name in ("one", "two"))
    text = kernel(f"\tld.global.f32 %f1, [%rd1];\n{body}{call}\tst.global.f32 [%rd2], %f1;")
    woven = weave(text.replace(".visible .entry", function + ".visible .entry")).text
    source, made = tmp_path / "k.ptx", tmp_path / "k.cubin"
    source.write_text(woven)
    options = ["-c"] if separate else []
    subprocess.run([find_tool("ptxas"), "-lineinfo", "-arch=sm_90", *options, str(source), "-o", str(made)], check=True)
    assert read_cubin_file(made.read_bytes()).kernels == ["k"], "a function is no kernel"
    assert ("f" in disassemble(made.read_bytes())) == separate
    found = verify_cubin(made.read_bytes(), "k", woven)
    assert found.missing == ()
    for region in (found["one"], found["two"]):
        assert region.counts["special"] == 2
        assert (region.moved_in, region.moved_out) == (0, 0)
        assert all(0 <= first < last < 1 << 32 for first, last in region.ranges)
    assert found.counts["special"] == 2


@pytest.mark.parametrize("store", STORES)
def test_warplens_own_code_is_counted_apart(store: str) -> None:
    text = (GOLDEN / "nvcc12_kernels.ptx").read_text()
    found = verify(text, "vector_add", store)
    region = found["add"]
    assert region.counts["load.global"] == 2
    assert region.counts["store.global"] == 1
    assert region.counts["fp32"] == 1
    assert region.purity == region.complete == 1.0
    assert found.own + sum(found.counts.values()) == found.instructions
    assert sum(size // 16 for start, end in region.ranges for size in [end - start]) == region.inside + region.own


def test_counts_agree_with_the_plain_kernel() -> None:
    """Without warplens's own code, the woven kernel has the loads, stores and products of the plain one."""
    text = (GOLDEN / "nvcc12_kernels.ptx").read_text()
    plain = disassemble(assemble_with_lines(text))["vector_add"].instructions
    found = verify(text, "vector_add")
    for kind in ("load.global", "store.global", "fp32"):
        assert found.counts[kind] == sum(one.kind == kind for one in plain)


@pytest.mark.parametrize(
    ("name", "region", "holds"),
    [
        ("nvcc12_kernels", "add", "load.global"),
        ("nvcc_kernels", "add", "load.global"),
        ("nvcc_kernels_lineinfo", "add", "load.global"),
        ("nvrtc12_kernels", "add", "load.global"),
        ("nvrtc13_kernels", "add", "load.global"),
        ("triton_vector_add", "load", "load.global"),
        ("triton37_vector_add", "load", "load.global"),
        ("triton38_vector_add", "load", "load.global"),
        ("triton39_vector_add", "load", "load.global"),
        ("triton_attention_sm80", "scores", "tensor"),
        ("triton39_attention_sm80", "softmax", "special"),
        ("gluon_row_sum", "load", "load.global"),
        ("cute_saxpy", "sum", "store.global"),
    ],
)
def test_regions_of_every_producer_hold_their_work(name: str, region: str, holds: str) -> None:
    text, symbol = golden(name)
    found = verify(text, symbol)
    assert not found.missing
    assert not found.problem
    one = found[region]
    assert one.counts[holds] >= 1
    assert one.flag == ""
    assert one.purity > 0.9
    assert one.copies == 1


@pytest.mark.parametrize(
    "name",
    [
        "triton_matmul_sm80",
        "triton_matmul_sm90",
        "triton37_matmul_sm80",
        "triton38_matmul_sm80",
        "triton39_matmul_sm80",
    ],
)
def test_copies_that_a_pipeliner_issues_elsewhere_flag_the_load(name: str) -> None:
    """Triton issues the copies of a later iteration after the marks: their source line says that they belong there."""
    text, symbol = golden(name)
    found = verify(text, symbol)
    load = found["load"]
    assert re.fullmatch(r"all of its \d+ asynchronous copies are outside its marks", load.flag)
    assert load.moved_out_counts["copy"] >= 4
    assert "copy" not in load.counts
    assert found["dot"].flag == ""
    assert found["dot"].counts["tensor"] >= 2


@pytest.mark.parametrize("name", ["nvcc12_kernels", "triton_matmul_sm80", "triton_attention_sm80", "cute_saxpy"])
def test_a_line_table_does_not_change_the_machine_code(name: str, tmp_path: Path) -> None:
    text, symbol = golden(name)
    # Without `.loc`, ptxas makes no line table unless it is asked for one.
    plain = re.sub(r"^\s*\.loc.*$", "", weave(text).text, flags=re.M)
    with_lines = read_cubin_file(assemble_with_lines(plain))
    without = read_cubin_file(_assemble_plain(plain, tmp_path))
    assert with_lines.has_lines
    assert not without.has_lines
    assert with_lines.code(symbol) == without.code(symbol) != b""


def _assemble_plain(text: str, folder: Path) -> bytes:
    arch = re.search(r"\.target (\w+)", text)
    assert arch is not None
    (folder / "k.ptx").write_text(text)
    command = [find_tool("ptxas"), f"-arch={arch[1]}", "k.ptx", "-o", "k.cubin"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return (folder / "k.cubin").read_bytes()


def test_a_ring_and_a_wide_clock_are_found_too() -> None:
    for how in (Weaving(full="ring"), Weaving(clock="64"), Weaving(lean=True), Weaving(fuse=False)):
        woven = weave(HOISTED, how=how).text
        found = verify_function(disassemble(assemble_with_lines(woven))["k"], marked_lines(woven, "k"), {})
        assert found["load"].flag == "its only global load is before its begin", how
        assert found["math"].counts["fp32"] == 1, how


def test_fixed_slots_are_found_too() -> None:
    woven = weave(TENSOR, how=Weaving(fixed=True)).text
    found = verify_function(disassemble(assemble_with_lines(woven))["k"], marked_lines(woven, "k"), {})
    assert found["mma"].counts == {"tensor": 1}
    assert found["mma"].copies == 1


def test_a_verification_survives_json() -> None:
    found = verify(UNROLLED)
    document = json.loads(json.dumps(found.to_json()))
    assert KernelVerification.from_json(document) == KernelVerification.from_json(found.to_json())
    assert KernelVerification.from_json(document)["math"].purity == found["math"].purity
    for wrong in ({"regions": [{"region": "x"}]}, {"kernel": "k", "regions": [3]}, {}):
        with pytest.raises(ValueError, match="no verification"):
            KernelVerification.from_json(wrong)


def test_names_replace_the_numbers_of_marks() -> None:
    numbered = HOISTED.replace("B load", "B #7").replace("E load", "E #7")
    code = code_of(numbered)
    function = disassemble(code.cubin or b"")["k"]
    found = verify_function(function, marked_lines(code.ptx, "k"), {"#7": "load"})
    assert [one.region for one in found.regions] == ["load", "math"]


@pytest.mark.parametrize("store", ["auto", "now", "spread"])
def test_a_kernel_that_is_nothing_but_a_region_of_some_blocks(store: str) -> None:
    """Its marks stand in front of all code, where the choice of blocks and their plain copy go."""
    text = (
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 prof)\n{\n"
        "\t// @warplens B load\n\t// @warplens E load\n\tret;\n}\n"
    )
    how = Weaving(store=store, select=Selection(blocks=(8, 1 << 30, 17)), plain_copy=True)
    woven = weave(text, how=how).text
    found = verify_cubin(assemble_with_lines(woven), "k", woven)
    assert [one.region for one in found.regions] == ["load"]
    assert found.missing == ()
