"""Automatic marks by PTX rules, on real PTX of every producer and on hand-written control flow."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.support.cuda_compilers import NVDISASM, sass
from tests.support.golden_ptx import assemble
from tests.support.marked_ptx import EVERYTHING, GOLDEN, GUARDED, SLOTS, clean, run, source, walk
from tests.support.ptx_kernels import kernel as kernel_of
from warplens import simulate
from warplens.auto.ptx import mark_ptx
from warplens.auto.ptx.instruction_classes import class_of
from warplens.auto.ptx.units import FunctionUnits
from warplens.auto.rules import CLASSES, Auto
from warplens.errors import UsageError
from warplens.ptx import tree
from warplens.weave.weaver import weave
from warplens.weave.weaving import SymbolBuffer, Weaving, shift_for

FILES = sorted(path for path in GOLDEN.glob("*.ptx"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_operation_lies_in_one_region_of_its_class(path: Path) -> None:
    """And in none of another: a region that strays over its neighbours would report their time as its own."""
    text = source(path)
    marked = mark_ptx(text, Auto.of(",".join(name for name in CLASSES if name not in ("loops", "lines"))))
    assert not marked.left_out
    seen = 0
    for function in tree.parse(text).entries:
        words = {"load": "loads", "store": "stores", "atomic": "stores", "copy": "copies"}
        calls = {
            id(node)
            for u in FunctionUnits(function, {}).units
            if isinstance(u.node, tree.Scope)
            for node in u.node.body
        }
        expected = sum(1 for i in function.instructions() if class_of(i.opcode, i.modifiers)[0] and id(i) not in calls)
        found, inside = 0, []
        for letter, name, instruction in walk(marked, function.name):
            if letter == "B":
                inside.append(name)
            elif letter == "E":
                inside.remove(name)
            elif (
                instruction is not None
                and (kind := class_of(instruction.opcode, instruction.modifiers)[0])
                and "%wl_z" not in instruction.arguments
            ) and any(
                words.get(name.split()[0], name.split()[0].rstrip("s") + "s") in (kind[0], kind[0] + "s")
                for name in inside
            ):
                found += 1
        seen += expected
        assert found == expected, function.name
    assert seen or path.stem == "cute_saxpy"


@pytest.mark.parametrize("auto", ["all", "loads,stores,copies,waits,mma,reduce,barriers"])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_marks_are_valid_unique_and_idempotent(path: Path, auto: str) -> None:
    wanted = Auto.of(auto, most=100_000)
    marked = mark_ptx(source(path), wanted)
    assert mark_ptx(marked.text, wanted).text == marked.text
    for kernel, sites in marked.sites.items():
        marks = walk(marked, kernel)
        assert sum(letter == "B" for letter, _, _ in marks) >= len(sites)
        assert {name for letter, name, _ in marks if letter} == {site.region for site in sites}
    # Without the marks and what they need, the text is what it was.
    bare = re.sub(
        r"\n\t(?:// @warplens [^\n]*|\.reg \.b32 %wl_n[^\n]*|[^\n]*%wl_(?:n\d|hi)[^\n]*)(?=\n)", "", marked.text
    )
    squeezed = re.sub(r"\s+", "", source(path))
    assert re.sub(r"\s+", "", bare.removeprefix("// @marked\n")) == squeezed


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_ptxas_takes_what_the_rules_and_the_weaver_make(path: Path, arch: str, tmp_path: Path) -> None:
    text = source(path)
    target = re.findall(r"^\.target\s+(sm_\d+a?)", text, re.M)[0]
    if target != arch and (target.endswith("a") or int(arch[3:].rstrip("a")) < int(target[3:].rstrip("a"))):
        pytest.skip(f"made for {target}")
    woven = weave(mark_ptx(text, EVERYTHING).text, buffer=SymbolBuffer())
    assemble(woven.text, path.stem, tmp_path, arch)


@pytest.mark.parametrize("name", ["nvcc_kernels", "nvcc_kernels_lineinfo", "nvcc_kernels_debug"])
def test_kernels_compute_the_same_and_nest(name: str) -> None:
    text = source(name)
    x = np.sin(np.arange(5 * 200, dtype=np.float32))
    outputs = []
    for auto in (False, True):
        memory = simulate.GlobalMemory(64 << 20)
        a, out = memory.alloc(x), memory.alloc(x.nbytes)
        if auto:
            _, trace = run(text, "softmax", 5, 256, [a, out, 200], memory)
            clean(trace)
            assert len(set(zip(*(trace.numpy(name) for name in ("block", "warp")), strict=True))) == 5 * 8
        else:
            simulate.run(text, "softmax", 5, 256, [a, out, 200], memory=memory)
        outputs.append(memory.read(out, np.uint32, x.size))
    np.testing.assert_array_equal(*outputs)
    for kernel, block, arguments in (("tiled_matmul", (16, 16), 3), ("divergent", 64, 2), ("reduce", 64, 2)):
        results = []
        for auto in (False, True):
            memory = simulate.GlobalMemory(64 << 20)
            data = np.resize(np.arange(1024, dtype=np.int32) % 23 if kernel == "divergent" else x, 4096)
            places = [memory.alloc(data) for _ in range(arguments)]
            last = 64 if kernel == "tiled_matmul" else 256
            if auto:
                _, trace = run(text, kernel, 4, block, [*places, last], memory, shared=512)
                clean(trace)
            else:
                simulate.run(text, kernel, 4, block, [*places, last], memory=memory, shared=512)
            results.append(memory.read(places[-1], np.uint32, 64))
        np.testing.assert_array_equal(*results)


def test_iterations_are_counted_and_lines_account_for_the_time() -> None:
    memory = simulate.GlobalMemory(64 << 20)
    n = 64
    a = np.arange(n * n, dtype=np.float32) / 64
    places = [memory.alloc(a), memory.alloc(a), memory.alloc(a.nbytes)]
    marked, trace = run(source("nvcc_kernels_lineinfo"), "tiled_matmul", 4, (16, 16), [*places, n], memory)
    clean(trace)
    rows = trace.spans.to_pylist()
    loop = "loop kernels.cu:66"
    for block in range(4):
        values = [r["value"] for r in rows if r["region"] == loop and r["kind"] == "value" and r["block"] == block
                  and r["warp"] == 3]  # fmt: skip
        assert values == [0.0, 1.0, 2.0, 3.0]
    by_region = {site.region: site for site in marked.sites["tiled_matmul"]}
    assert by_region["load kernels.cu:67"].location == "golden/kernels.cu:67"
    parents = {
        (r["region"], rows[r["parent"]]["region"]) for r in rows if r["kind"] == "span" and r["parent"] >= 0
    }  # fmt: skip
    assert ("load kernels.cu:67", "line kernels.cu:67") in parents
    assert ("line kernels.cu:67", loop) in parents
    assert ("barrier kernels.cu:69", "line kernels.cu:69") in parents


def marks_of(body: str, auto: str = "loads,stores,waits,loops") -> list[str]:
    marked = mark_ptx(GUARDED.replace("BODY", body), Auto.of(auto))
    assert weave(marked.text, buffer=SymbolBuffer()).entries.get("k", 0) or not marked.sites
    return [f"{letter} {name}" if letter else str(i and i.opcode) for letter, name, i in walk(marked, "k")][3:-1]


def test_a_load_ends_where_its_value_is_needed() -> None:
    near = marks_of("\tld.global.f32 %f1, [%rd1];\n\tadd.s64 %rd3, %rd2, 4;\n\tst.global.f32 [%rd3], %f1;", "loads")
    assert near == ["B load k+3", "ld", "add", "mov", "mad", "E load k+3", "st"]
    far = marks_of("\tld.global.f32 %f1, [%rd1];\n\tst.global.f32 [%rd2], %f2;\n\tadd.f32 %f3, %f1, %f1;", "loads")
    assert far == [
        "B load issue k+3", "ld", "E load issue k+3", "st", "B load wait k+3", "mov", "mad", "E load wait k+3", "add",
    ]  # fmt: skip
    other_block = marks_of(
        "\tld.global.f32 %f1, [%rd1];\n\tsetp.eq.u32 %p1, %r1, 0;\n\t@%p1 bra $L;\n\tadd.f32 %f3, %f1, %f1;\n$L:",
        "loads",
    )
    assert other_block[:3] == ["B load issue k+3", "ld", "E load issue k+3"]
    assert not any("wait" in word for word in other_block)
    assert marks_of("\tatom.global.add.f32 %f1, [%rd1], %f2;", "stores") == ["B atomic k+3", "atom", "E atomic k+3"]


SPINS = {
    "triton": "\t{\n\t.reg .pred %c;\n$W:\n\tmbarrier.try_wait.parity.shared.b64 %c, [%r1], %r2;\n\t@!%c bra $W;\n\t}",
    "cutlass": "\t{\n\t.reg .pred P1;\n$W:\n\tmbarrier.try_wait.parity.shared::cta.b64 P1, [%r1], %r2;\n\t@P1 bra $D;\n"
    "\tbra $W;\n$D:\n\t}",
    "jumped to": "\tbra $M;\n$B:\n\tnanosleep.u32 20;\n$M:\n\tmbarrier.test_wait.shared.b64 %p1, [%r1], %rd3;\n"
    "\t@%p1 bra $D;\n\tbra $B;\n$D:\n\tadd.u32 %r3, %r3, 1;",
}


@pytest.mark.parametrize("form", SPINS)
def test_a_wait_covers_the_whole_spin(form: str) -> None:
    marks = marks_of(SPINS[form])
    begin, end = marks.index(next(m for m in marks if m.startswith("B wait"))), 0
    end = marks.index(next(m for m in marks if m.startswith("E wait")))
    assert not any(word.startswith(("B loop", "E loop")) for word in marks), "a spin is no loop of the author's"
    tried = next(i for i, word in enumerate(marks) if word == "mbarrier")
    assert begin < tried < end
    assert len([word for word in marks if word.startswith(("B ", "E "))]) == 2
    # The begin stands on the way in only, the end on the way out only: both outside what repeats.
    text = mark_ptx(GUARDED.replace("BODY", SPINS[form]), Auto.of("waits")).text
    repeated = text[text.index("$B:" if form == "jumped to" else "$W:") : text.rindex("bra $")]
    assert "@warplens B" not in repeated
    if form != "jumped to":
        assert "@warplens E" not in repeated


SKIPPED_SPIN = (
    "\tsetp.eq.u32 %p2, %r2, 0;\n\t@%p2 bra $D;\n\tbra $M;\n$B:\n\tnanosleep.u32 20;\n$M:\n"
    "\tld.volatile.global.u32 %r4, [%rd1];\n\tsetp.ne.u32 %p1, %r4, 0;\n\t@%p1 bra $D;\n\tbra $B;\n$D:\n"
    "\tadd.u32 %r3, %r3, 1;"
)
"""A wait for a flag that some threads skip: `while (first && !flag) sleep();`."""


def test_a_wait_ends_on_its_own_edge_where_others_arrive_too() -> None:
    text = mark_ptx(GUARDED.replace("BODY", SKIPPED_SPIN), Auto.of(True)).text
    woven = weave(text, buffer=SymbolBuffer())
    (number,) = (number for number, name in woven.regions.items() if name.startswith("spin wait"))
    assert woven.code["k"][str(number)]["polls"] == 1
    assert not any("loop" in name for name in woven.regions.values())
    ended = text[text.index("@warplens E spin") :].splitlines()
    assert next(line.strip() for line in ended[1:4] if line.strip()) == "bra $D;", "what skips it ends nothing"
    assert text.count("@warplens E spin") == 1


def test_inline_asm_may_repeat_its_labels() -> None:
    """Each pair of braces has labels of its own: a second copy of the same wait is another spin."""
    spin = ["mbarrier", "bra", "bra"]
    found = marks_of(SPINS["cutlass"] + "\n" + SPINS["cutlass"])
    assert found == ["B wait k+3", *spin, "E wait k+3", "B wait k+6", *spin, "E wait k+6"]


def test_loops_are_marked_only_where_that_is_sound() -> None:
    breaking = (
        "\tmov.u32 %r2, 0;\n$L:\n\tld.global.u32 %r3, [%rd1];\n\tsetp.eq.u32 %p1, %r3, 7;\n\t@%p1 bra $OUT;\n"
        "\tadd.u32 %r2, %r2, 1;\n\tsetp.lt.u32 %p2, %r2, %r1;\n\t@%p2 bra $L;\n$OUT:\n\tst.global.u32 [%rd2], %r2;"
    )
    assert not any("loop" in word for word in marks_of(breaking, "loops")), "two ways out meet at one label"
    early = breaking.replace("@%p1 bra $OUT;", "@%p1 bra $EARLY;").replace(
        "$OUT:", "\tbra $OUT;\n$EARLY:\n\tadd.u32 %r2, %r2, 100;\n$OUT:"
    )
    marks = [word for word in marks_of(early, "loops") if "loop" in word]
    assert [word[0] for word in marks] == ["B", "E", "E"]
    irreducible = (
        "\tsetp.eq.u32 %p1, %r1, 0;\n\t@%p1 bra $B;\n$A:\n\tadd.u32 %r2, %r2, 1;\n"
        "$B:\n\tadd.u32 %r2, %r2, 2;\n\tsetp.lt.u32 %p2, %r2, %r1;\n\t@%p2 bra $A;"
    )
    assert not any("loop" in word for word in marks_of(irreducible, "loops"))
    inside = breaking.replace("@%p1 bra $OUT;", "@%p1 ret;")
    assert not any("loop" in word for word in marks_of(inside, "loops")), "a thread may end inside an iteration"


def test_early_ways_out_close_their_iteration() -> None:
    body = (
        "\tmov.u32 %r2, 0;\n$L:\n\tsetp.eq.u32 %p1, %r2, %r1;\n\t@%p1 bra $EARLY;\n\tadd.u32 %r2, %r2, 1;\n"
        "\tsetp.lt.u32 %p2, %r2, 9;\n\t@%p2 bra $L;\n\tbra $OUT;\n$EARLY:\n\tadd.u32 %r2, %r2, 100;\n$OUT:\n"
        "\tst.global.u32 [%rd2], %r2;"
    )
    for stop, value, rounds in ((5, 105, 6), (50, 9, 9)):
        memory = simulate.GlobalMemory(16 << 20)
        out = memory.alloc(4)
        _, trace = run(GUARDED.replace("BODY", body), "k", 1, 32, [0, out, stop], memory)
        clean(trace)
        assert memory.read(out, np.uint32, 1)[0] == value
        loops = [r for r in trace.spans.to_pylist() if r["region"].startswith("loop") and r["kind"] == "span"]
        assert len(loops) == rounds


def test_marks_stay_out_of_call_sequences() -> None:
    marked = mark_ptx(source("nvcc_kernels_debug"), EVERYTHING)
    for function in tree.parse(marked.text).functions:
        for node in function.walk():
            if isinstance(node, tree.Scope) and any(
                isinstance(part, tree.Instruction) and part.opcode == "call" for part in node.body
            ):
                assert not any(isinstance(part, tree.Comment) and "@warplens" in part.raw for part in node.body)


def test_a_range_of_lines_is_one_region_where_its_code_is_one_piece() -> None:
    text = source("nvcc_kernels_lineinfo")
    marked = mark_ptx(text, Auto.of(None, {"loop": "kernels.cu:66-72"}), lambda name: name == "tiled_matmul")
    assert [site.region for site in marked.sites["tiled_matmul"]] == ["loop"]
    memory = simulate.GlobalMemory(64 << 20)
    places = [memory.alloc(np.ones(1024, np.float32)) for _ in range(3)]
    woven = weave(marked.text, buffer=SymbolBuffer())
    shift = shift_for(SLOTS, "stop", woven.slack)
    buffer = memory.alloc(8 << shift, align=1 << shift)
    simulate.run(woven.text, "tiled_matmul", 1, (16, 16), [*places, 32], memory=memory,
                 symbols={"warplens_buffer": buffer | shift})  # fmt: skip
    body = mark_ptx(text, Auto.of(None, ["body=kernels.cu:70"]), lambda name: name == "tiled_matmul")
    assert {site.region for site in body.sites["tiled_matmul"]} == {"body"}
    assert not mark_ptx(text, Auto.of(None, ["none=kernels.cu:5000"])).sites
    assert not mark_ptx(text, Auto.of(None, ["none=other.cu:66-72"])).sites


def test_labels_that_nothing_jumps_to_do_not_divide_a_range() -> None:
    work = "add.f32 %f1, %f1, %f1;"
    lines = [
        ".loc 1 2 1",
        work,
        ".loc 1 9 1",
        "add.u32 %r1, %r1, 1;",
        "$debug:",
        ".loc 1 2 1",
        work,
        ".loc 1 9 1",
        work,
    ]
    jump = "setp.eq.u32 %p1, %r1, 1;\n@%p1 bra $end;\n"
    body = jump + "\n".join([*lines, ".loc 1 2 1", work, "$end:", ".loc 1 9 1", work])
    text = kernel_of(f".reg .f32 %f<4>;\n{body}").replace(".address_size 64", '.address_size 64\n.file 1 "a.cu"')
    wanted = Auto.of(None, ["part=a.cu:2"])
    assert mark_ptx(text, wanted).text.replace("$debug:\n", "") == mark_ptx(text.replace("$debug:\n", ""), wanted).text


def test_the_cap_keeps_ranges_loops_and_operations_before_lines() -> None:
    text = source("nvcc_gemm_lineinfo")
    all_of_it = mark_ptx(text, EVERYTHING).sites["gemm"]
    few = mark_ptx(text, Auto.of("all", most=10))
    assert len(few.sites["gemm"]) == 10
    assert few.left_out["gemm"] == len(all_of_it) - 10
    assert "loops" in {site.kind for site in few.sites["gemm"]}
    assert "lines" not in {site.kind for site in few.sites["gemm"]}


def test_code_from_headers_is_named_by_the_authors_line() -> None:
    """A pipeline copy, a barrier's wait and a shuffle are inlined several headers deep."""
    regions = {site.region for site in mark_ptx(source("nvcc_gemm_lineinfo"), EVERYTHING).sites["gemm"]}
    regions |= {site.region for site in mark_ptx(source("nvcc_gemm_lineinfo"), EVERYTHING).sites["bulk"]}
    assert {
        "copy issue gemm.cu:18", "wait gemm.cu:26", "mma gemm.cu:41", "wait gemm.cu:69", "reduce gemm.cu:72",
        "copy issue gemm.cu:64", "atomic gemm.cu:73", "barrier gemm.cu:27", "loop gemm.cu:23",
    } <= regions  # fmt: skip
    assert not [name for name in regions if "gemm.cu" not in name]


def test_the_authors_own_marks_keep_their_place() -> None:
    body = (
        "\tld.global.f32 %f1, [%rd1];\n\t// @warplens B mine\n\tld.global.f32 %f2, [%rd2];\n"
        "\t// @warplens E mine\n\tadd.f32 %f3, %f1, %f2;\n\tst.global.f32 [%rd2], %f3;"
    )
    marks = [word for word in marks_of(body, "loads") if word[:2] in ("B ", "E ")]
    open_, order = [], []
    for word in marks:
        if word[0] == "B":
            open_.append(word[2:])
        else:
            order.append(word[2:])
            assert open_.pop() == word[2:], marks
    assert "mine" in order


def test_a_loop_that_a_kernel_jumps_to_behind_a_mark_of_its_author_counts_from_zero() -> None:
    text = kernel_of("$x:\nadd.u32 %r1, %r1, 1;\nsetp.lt.u32 %p1, %r1, 5;\n@%p1 bra $x;")
    first = text.index("\tld.param")
    text = text[:first] + "\t// @warplens I mine\n\tbra $x;\n" + text[text.index("$x:") :]
    lines = [line.strip() for line in mark_ptx(text, Auto.of("loops")).text.splitlines()]
    cleared = next(n for n, line in enumerate(lines) if re.fullmatch(r"mov\.u32 %\w+, 0;", line))
    assert cleared < lines.index("bra $x;")


def test_nothing_asked_for_changes_nothing() -> None:
    text = source("nvcc_kernels")
    assert mark_ptx(text, Auto()).text == text
    assert mark_ptx(text, Auto.of("lines")).text == text, "without line information there are no lines"
    with pytest.raises(UsageError, match="did you mean 'loads'"):
        Auto.of("laods")


@pytest.mark.skipif(NVDISASM is None or shutil.which("ptxas") is None, reason="needs ptxas and nvdisasm")
@pytest.mark.parametrize("auto", ["mma,copies,waits,barriers", "all"])
def test_sass_keeps_what_each_region_holds(auto: str, tmp_path: Path) -> None:
    """Tensor-core instructions and asynchronous copies stand between the same clock reads as in PTX."""
    marked = mark_ptx(source("nvcc_gemm_lineinfo"), Auto.of(auto, most=1000), lambda name: name == "gemm")
    woven = weave(marked.text, buffer=SymbolBuffer(), how=Weaving(store="late", fuse=False))
    (tmp_path / "gemm.ptx").write_text(woven.text)
    subprocess.run(["ptxas", "-arch=sm_90a", "gemm.ptx", "-o", "gemm.cubin"], cwd=tmp_path, check=True)
    lines = sass((tmp_path / "gemm.cubin").read_bytes(), tmp_path, "gemm")
    words = {"SR_CLOCKLO": "c", "HMMA": "M", "LDGSTS": "A"}
    made = "".join(letter for line in lines for word, letter in words.items() if word in line)
    meant = ""
    for letter, _, instruction in walk(marked, "gemm"):
        if letter:
            meant += "c"
        elif instruction is not None and instruction.full_opcode.startswith(("mma.sync", "cp.async.c")):
            meant += "A" if instruction.opcode == "cp" and instruction.modifiers[1] in ("ca", "cg") else ""
            meant += "M" if instruction.opcode == "mma" else ""
    values = marked.text.count("// @warplens V") + marked.text.count("// @warplens S")
    ends = 0 if auto == "all" else 2  # the ends share the reads of regions that reach them
    assert made.count("c") == meant.count("c") + values + ends
    assert re.findall("[AM]+", made) == re.findall("[AM]+", meant)


@pytest.mark.skipif(NVDISASM is None or shutil.which("ptxas") is None, reason="needs ptxas and nvdisasm")
@pytest.mark.parametrize("store", ["now", "late", "end", "defer", "spread"])
def test_a_load_ends_when_its_value_is_there_wherever_its_record_waits(store: str, tmp_path: Path) -> None:
    text = mark_ptx(
        kernel_of("ld.global.u32 %r4, [%rd1];\nadd.u32 %r5, %r4, %r4;\nst.global.u32 [%rd1], %r5;"), Auto.of("loads")
    ).text
    woven = weave(text, buffer=SymbolBuffer(), how=Weaving(store=store, aligned=True))
    assert woven.stores["k"] == store
    (tmp_path / "k.ptx").write_text(woven.text)
    subprocess.run(["ptxas", "-arch=sm_90a", "k.ptx", "-o", "k.cubin"], cwd=tmp_path, check=True)
    lines = sass((tmp_path / "k.cubin").read_bytes(), tmp_path, "k")
    load = next(n for n, line in enumerate(lines) if "LDG" in line)
    value = re.findall(r"\bR\d+\b", lines[load])[0]
    stamped = next(n for n, line in enumerate(lines) if n > load and "SR_CLOCKLO" in line)
    assert any(re.search(rf", {value}\b", line) for line in lines[load + 1 : stamped]), lines[load : stamped + 1]
