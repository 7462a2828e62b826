"""Rules on real kernels, compiled to cubin: every site marked once, nested, and in SASS where the source has it."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

triton = pytest.importorskip("triton", reason="triton is not installed")

import tests.support.plain_kernels as kernels  # noqa: E402
from tests.support.plain_jobs import CAPABILITY, blackwell_job, plain_jobs  # noqa: E402
from tests.support.triton_examples import Job, assemble, compile_woven  # noqa: E402
from warplens.auto.rules import Auto  # noqa: E402
from warplens.auto.ttgir import mark_ttgir  # noqa: E402
from warplens.frontends.triton.weaving_compiler import Recipe  # noqa: E402
from warplens.weave.weaving import Weaving  # noqa: E402

SOURCE = Path(kernels.__file__).read_text().splitlines()
MARK = re.compile(r"// @warplens ([BE]) (\S+)")

# Every operation that a rule is about, by what it is called and a piece of its source line.
EXPECTED: dict[str, dict[tuple[str, str], int]] = {
    "add": {("load", "total = tl.load"): 1, ("store", "tl.store(out + offsets, total"): 1},
    "row_softmax": {
        ("load", "values = tl.load(source"): 1, ("reduce", "tl.max(values, axis=0)"): 1,
        ("reduce", "tl.sum(values, axis=0)"): 1, ("store", "tl.store(out + row + offsets, result"): 1,
    },
    "layer_norm": {
        ("loop", "total += tl.load@-2"): 1, ("load", "total += tl.load"): 1, ("reduce", "mean = tl.sum"): 1,
        ("loop", "centred = tl.where@-2"): 1, ("load", "centred = tl.where"): 1, ("reduce", "scale = 1 / tl.sqrt"): 1,
        ("loop", "inside = columns < n@-2"): 1, ("load issue", "w = tl.load(weight"): 1,
        ("load issue", "b = tl.load(bias"): 1, ("load", "value = tl.load(x + row"): 1,
        ("load wait", "w = tl.load(weight"): 1, ("load wait", "b = tl.load(bias"): 1,
        ("store", "(value - mean) * scale * w"): 1,
    },
    "gemm": {
        ("copy issue", "x = tl.load(pa)"): 3, ("copy issue", "y = tl.load(pb)"): 3, ("copy wait", "x = tl.load(pa)"): 1,
        ("loop", "for _ in range(0, K, BK)"): 1, ("mma issue", "acc = tl.dot(x, y, acc)"): 1,
        ("mma wait", "acc = tl.dot(x, y, acc)"): 1, ("mma wait", "for _ in range(0, K, BK)"): 1,
        ("copy wait", "for _ in range(0, K, BK)"): 1, ("store", "acc.to(c.dtype.element_ty))"): 1,
    },
    "gemm_tma": {
        ("copy issue", "x = a.load"): 3, ("copy issue", "y = b.load"): 3, ("loop", "x = a.load@-1"): 1,
        ("mbarrier wait", "x = a.load@-1"): 1, ("mma issue", "y = b.load@1"): 1, ("mma wait", "y = b.load@1"): 1,
        ("mma wait", "x = a.load@-1"): 1, ("copy issue", "y = b.load@2"): 1, ("store wait", "y = b.load@2"): 1,
    },
    "triton_poi_fused_add_gelu_0": {
        ("load", "tmp0 = tl.load(in_out_ptr0..1"): 1, ("store", "tl.store(in_out_ptr0"): 1,
    },
    "triton_red_fused_sum_1": {
        ("loop", "for r0_offset"): 1, ("load", "tmp0 = tl.load(in_ptr0 + (r0_1"): 1, ("reduce", "tmp2 = tl.sum"): 1,
        ("store", "tl.store(out_ptr0"): 1,
    },
    "collatz": {("loop", "while number > 1"): 1, ("store", "tl.store(out + tl.program_id(0), steps)"): 1},
    "gluon_scale": {("load", "values = gl.load"): 1, ("store", "gl.store(out"): 1},
    "gluon_gemm": {
        ("loop", "for step in range(gl.cdiv(K, BK)):"): 1, ("loop", "for step in range(gl.cdiv(K, BK)):#1"): 1,
        ("mbarrier wait", "mbarrier.wait(empty"): 1, ("copy issue", "_copy(a,"): 1, ("copy issue", "_copy(b,"): 1,
        ("mbarrier wait", "mbarrier.wait(ready"): 1, ("mma issue", "acc = warpgroup_mma("): 1,
        ("mma wait", "acc = warpgroup_mma_wait"): 1, ("mbarrier arrive", "mbarrier.arrive(empty"): 1,
        ("copy issue", "_write(c,"): 1, ("store wait", "tma.store_wait"): 1,
    },
}  # fmt: skip
COUNTED = {
    "gemm_persistent": {"copies": 8, "waits": 8, "mma": 1, "loops": 2},
    "flash_forward": {"copies": 12, "waits": 8, "mma": 4, "reduce": 4, "stores": 2, "loops": 2, "loads": 1},
    "flash_backward": {"copies": 8, "waits": 6, "mma": 5, "stores": 3, "loads": 1, "loops": 1},
}
"""Where the same lines come up too often to list: sites by class."""


def number(piece: str) -> int:
    """`text`, `text@2` (two lines below it) or `text#1` (its second occurrence) to a line number."""
    text, _, nth = piece.partition("#")
    text, _, below = text.partition("@")
    return [n for n, line in enumerate(SOURCE, 1) if text in line][int(nth or 0)] + int(below or 0)


def named(what: str, piece: str) -> str:
    """A region's name; `text..1` is the range from the line to the one below."""
    piece, _, more = piece.partition("..")
    return f"{what} plain_kernels.py:{number(piece)}" + (f"-{number(piece) + int(more)}" if more else "")


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("TRITON_ALWAYS_COMPILE", "1")
        yield


def compiled(job: Job, capability: int = CAPABILITY, **recipe: Any) -> Any:
    return compile_woven(job, capability, Recipe(Weaving(fuse=False), **recipe))


JOBS = {job.name: job for job in plain_jobs()}
every_job = pytest.mark.parametrize("job", [pytest.param(job, id=name) for name, job in JOBS.items()])
ALL_BUT_LINES = [kind for kind in Auto.of("all").classes if kind != "lines"]


@functools.cache
def marked_but_for_lines(name: str) -> Any:
    """A kernel that every rule but `lines` has marked; its TTGIR is that of the plain kernel."""
    return compiled(JOBS[name], auto=Auto.of(ALL_BUT_LINES), least_occupancy=0.0)


@every_job
def test_every_site_is_marked_once_and_stays_in_its_place_down_to_sass(job: Job) -> None:
    kernel = marked_but_for_lines(job.name)
    plain = kernel.asm["ttgir"]
    assert "@warplens" not in plain, "Triton's own copy of the TTGIR stays as it is"
    marked = mark_ttgir(plain, Auto.of(ALL_BUT_LINES))
    assert _unmarked(marked.text) == plain
    found = Counter(site.region for site in marked.sites)
    if job.name in EXPECTED:
        assert found == {named(*key): count for key, count in EXPECTED[job.name].items()}
    else:
        assert Counter(site.kind for site in marked.sites) == COUNTED[job.name]
    if job.name == "flash_backward":
        # Which rung does no harm depends on the registers that this Triton's compiler takes.
        note = kernel.metadata.warplens_remarks["notes"][0]
        assert re.match(r"only its body (is|and its outermost loops are) marked: with marks it spills", note), note
        found = Counter({f"body {named('', 'def flash_backward').split()[-1]}": 0})
        assert len(kernel.metadata.warplens["regions"]) == (2 if "outermost loops" in note else 1)
        return
    ptx = kernel.asm["ptx"]
    assert Counter(unquote(name) for letter, name in MARK.findall(ptx) if letter == "B") == found
    assert_nested_on_every_path(ptx)
    assert_same_order(ptx)


@every_job
def test_lines_fill_the_blocks_and_nest_with_the_rest(job: Job) -> None:
    plain = marked_but_for_lines(job.name).asm["ttgir"]
    marked = mark_ttgir(plain, Auto.of("all", most=1000))
    assert _unmarked(marked.text) == plain
    assert_nested(marked.text)
    for site in marked.sites:
        file, at, _ = site.location.rsplit(":", 2)
        assert site.region.endswith(f" plain_kernels.py:{at}"), site
        assert file == kernels.__file__
    # Every line that a rule finds something in is a line that works.
    lines = {site.region.split()[-1] for site in marked.sites if site.kind == "lines"}
    assert {site.region.split()[-1] for site in marked.sites if site.kind not in ("lines", "loops")} <= lines


def test_tritons_own_warp_specialisation_is_marked_in_every_partition() -> None:
    kernel = compiled(blackwell_job(), 100, auto=Auto.of(ALL_BUT_LINES), least_occupancy=0.0)
    marked = mark_ttgir(kernel.asm["ttgir"], Auto.of(ALL_BUT_LINES))
    dot = number("acc = tl.dot(a.load([row, k]), b.load([k, column]), acc)")
    found = Counter(site.region for site in marked.sites)
    assert found[f"mma issue plain_kernels.py:{dot}"] == 1
    assert found[f"copy issue plain_kernels.py:{dot}"] == 2
    assert found[f"loop plain_kernels.py:{dot - 1}"] == 2, "one per partition"
    # LLVM peels the first iteration off, so a place may be there twice.
    assert {unquote(name) for _, name in MARK.findall(kernel.asm["ptx"])} == set(found)


def test_marks_leave_the_pipeline_as_it_is() -> None:
    job = JOBS["gemm"]
    plain, marked = job.compile(CAPABILITY).asm, compiled(job, auto=Auto.of("all"), least_occupancy=0.0).asm
    assert plain["ttgir"] == marked["ttgir"]
    for word in ("cp.async.cg", "cp.async.commit_group", "cp.async.wait_group", "wgmma.mma_async", "wgmma.wait_group"):
        assert plain["ptx"].count(word) == marked["ptx"].count(word) > 0, word
    assert assemble(marked["ptx"], CAPABILITY).warnings == assemble(plain["ptx"], CAPABILITY).warnings


@pytest.mark.parametrize("name", ["add", "triton_poi_fused_add_gelu_0", "gemm", "flash_forward"])
def test_no_code_is_left_between_the_tracks_clocks_and_the_first_and_last_line(name: str) -> None:
    """In SASS: the track's first and last clock read, all 64 bits of it, are those of the first and the last region."""
    job = JOBS[name]
    made = assemble(compiled(job, auto=Auto.of("all"), least_occupancy=0.0).asm["ptx"], CAPABILITY, disassemble=True)
    lines = [line for line in made.sass.splitlines() if re.match(r"\s*/\*[0-9a-f]{4,}\*/\s", line)]
    clocks = [number for number, line in enumerate(lines) if "SR_CLOCKLO" in line]
    assert clocks[1] > clocks[0] + 2, "behind the first are the global timer and the kernel's own code"
    assert clocks[-1] > clocks[-2] + 1, "between the last two is the kernel's own code"
    assert ".32" not in lines[clocks[-1]]


def test_warps_of_a_specialised_kernel_are_in_a_region_wherever_they_wait() -> None:
    """What hands them their partitions is in no operation of the TTGIR."""
    job = JOBS["gluon_gemm"]
    ptx = compiled(job, auto=Auto.of("all"), least_occupancy=0.0).asm["ptx"]
    waits = assert_nested_on_every_path(ptx, r"barrier\.sync|bar\.sync|mbarrier\.try_wait")
    assert len(waits) > 4
    assert [line for line, stack in waits if not stack] == []
    few = compiled(job, auto=Auto.of("mma"), least_occupancy=0.0).asm["ptx"]
    assert not all(stack for _, stack in assert_nested_on_every_path(few, r"barrier\.sync"))


def test_a_kernel_that_marks_in_loops_would_harm_has_its_loops_marked_as_a_whole() -> None:
    """Here 12 blocks fit an SM, and marks with their clocks need more registers than that leaves."""
    job = JOBS["layer_norm"]
    plain, marked = assemble(job.compile(CAPABILITY).asm["ptx"], CAPABILITY), compiled(job, auto=Auto.of("loads"))
    (note,) = marked.metadata.warplens_remarks["notes"]
    said = r"with marks it needs \d+ registers instead of \d+, and an SM holds \d+ of its blocks instead of"
    assert re.match(f"only its body and its outermost loops are marked: {said}", note)
    regions = [name.rpartition(" ")[0] for name in marked.metadata.warplens["regions"].values()]
    assert regions == ["body", "whole loop", "whole loop", "whole loop"]
    assert marked.metadata.warplens["resources"]["registers"] <= -(-plain.registers // 8) * 8
    assert_nested_on_every_path(marked.asm["ptx"])
    share = re.search(r"least_occupancy=([\d.]+) allows it", note)
    assert share is not None
    allowed = compiled(job, auto=Auto.of("loads"), least_occupancy=float(share[1]))
    assert not any("body" in name for name in allowed.metadata.warplens["regions"].values())


def test_a_kernel_that_fills_an_sm_keeps_its_marks_where_they_fit_without_registers_between_them() -> None:
    """With 32 registers, which this kernel takes itself, the marks of its load fit only so."""
    job = JOBS["triton_poi_fused_add_gelu_0"]
    kernel = compiled(job, auto=Auto.of(True))
    assert kernel.metadata.warplens_remarks["notes"] == []
    assert kernel.metadata.warplens["auto"] == 2
    assert kernel.metadata.warplens["resources"] == {"registers": 32, "spills": 0, "serialized": 0}


def _unmarked(text: str) -> str:
    return "\n".join(line for line in text.split("\n") if not line.startswith("%warplens"))


def assert_nested(text: str) -> None:
    stack: list[str] = []
    for letter, name in MARK.findall(text.replace('"', " ")):
        if letter == "B":
            stack.append(name)
        else:
            assert stack
            assert stack.pop() == name
    assert not stack


def assert_nested_on_every_path(ptx: str, wanted: str = "(?!)") -> list[tuple[str, tuple[str, ...]]]:
    """Follow every branch of the kernel: each end closes the innermost region, wherever it was opened. Gives the lines
    that match `wanted`, with the regions around them."""
    found: list[tuple[str, tuple[str, ...]]] = []
    lines = [line.strip() for line in ptx[ptx.index(".entry") :].splitlines()]
    labels = {line[:-1]: at for at, line in enumerate(lines) if line.startswith("$") and line.endswith(":")}
    tables = [re.findall(r"\$\w+", line) for line in lines if "branchtargets" in line]
    todo: list[tuple[int, tuple[str, ...]]] = [(0, ())]
    seen: dict[int, tuple[str, ...]] = {}
    while todo:
        at, stack = todo.pop()
        while at not in seen:
            seen[at] = stack
            mark, line = MARK.search(lines[at]), lines[at]
            if mark is not None and mark[1] == "B":
                stack += (mark[2],)
            elif mark is not None:
                assert stack, line
                assert stack[-1] == mark[2]
                stack = stack[:-1]
            if re.search(wanted, line):
                found.append((line, stack))
            jump = re.match(r"(@!?%\w+ )?(?:(bra)(?:\.uni)?\s+(\$\w+)|(brx)|(ret|exit|trap)\b)", line)
            if jump is not None:
                targets = [jump[3]] if jump[2] else [label for table in tables for label in table] if jump[4] else []
                todo += [(labels[label], stack) for label in targets if label in labels]
                if jump[5] and not jump[1]:
                    assert not stack, (line, stack)
                if not jump[1]:
                    break
            at += 1
        else:
            assert seen[at] == stack, (lines[at], seen[at], stack)
    return found


_PTX = {"m": r"wgmma\.mma_async", "c": r"cp\.async\.c[ga]\.shared", "t": r"cp\.async\.bulk\.tensor",
        "l": r"ld\.global", ".": r"@warplens [BEVS] "}  # fmt: skip
_SASS = {
    "m": r"HGMMA",
    "c": r"LDGSTS",
    "t": r"UTMA(?:LD|ST)G",
    "l": r"LDG\.E",
    ".": r"C?S2U?R(?:\.32)? U?R\d+, SR_CLOCKLO",
}


def assert_same_order(ptx: str) -> None:
    """Loads, copies and matrix products stand between the same marks in SASS as in PTX."""
    made = assemble(ptx, CAPABILITY, disassemble=True)
    wanted, got = _steps(ptx, _PTX), _steps(made.sass, _SASS)
    # A clock is read at each end of the track too; where a mark stands there, one read is both.
    shared = re.findall(r"cvt\.u32\.u64 %wl_\w+, %wl_(b|ec);", ptx)
    got = got.replace(".", "..", 1) if "b" in shared else got
    got = got[: got.rindex(".")] + "." + got[got.rindex(".") :] if "ec" in shared else got
    assert got.count(".") == wanted.count(".") + 2
    parts = _runs(got[got.index(".") + 1 : got.rindex(".")]), _runs(wanted)
    # Blocks that do not follow each other (partitions of a specialised kernel, a branch) may change places.
    moved = "setmaxnreg" in ptx or "gemm_persistent" in ptx
    assert sorted(parts[0]) == sorted(parts[1]) if moved else parts[0] == parts[1]


def _steps(text: str, words: dict[str, str]) -> str:
    pattern = re.compile("|".join(f"({word})" for word in words.values()))
    return "".join(list(words)[match.lastindex - 1] for match in pattern.finditer(text) if match.lastindex)


def _runs(steps: str) -> list[str]:
    """What stands between two marks, without how often."""
    return ["".join(sorted(set(part))) for part in steps.split(".")]


@pytest.mark.parametrize(("auto", "left"), [(True, "loads"), ("all", "lines and loads")])
def test_a_kernel_that_cannot_have_all_of_its_marks_has_some(auto: str | bool, left: str) -> None:
    """Regions of its loads hold more values at once than fit beside 12 blocks on an SM; the others do no harm, but for
    the counters of its loops as Triton 3.6 compiles them."""
    job = JOBS["layer_norm"]
    kernel = compiled(job, auto=Auto.of(auto))
    (note,) = kernel.metadata.warplens_remarks["notes"]
    said = re.match(rf"its {left}( and loops)? are not marked: with marks it needs", note)
    assert said is not None, note
    loops = {"loop"} if auto == "all" and not said[1] else set()
    found = {name.split()[0] for name in kernel.metadata.warplens["regions"].values()}
    assert found == {"reduce", "store"} | loops
