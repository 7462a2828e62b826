"""Marks in compiled kernels: free when off, and when woven accepted by ptxas without spills or new warnings."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

triton = pytest.importorskip("triton", reason="triton is not installed")

import triton.language as tl  # noqa: E402
from triton.backends.nvidia.compiler import CUDABackend  # noqa: E402

import warplens.triton as wlt  # noqa: E402
from tests.support.triton_examples import Job, assemble, compile_woven, jobs  # noqa: E402
from warplens.auto.rules import Auto  # noqa: E402
from warplens.frontends.triton.assemble import Assembled  # noqa: E402
from warplens.frontends.triton.assemble import assemble as assembled  # noqa: E402
from warplens.frontends.triton.metadata_keys import RECIPE  # noqa: E402
from warplens.frontends.triton.requirement import triton_version  # noqa: E402
from warplens.frontends.triton.weaving_compiler import Recipe, WeavingCompiler  # noqa: E402
from warplens.weave.fit.ptxas_output import read_cubin  # noqa: E402
from warplens.weave.weaver import weave  # noqa: E402
from warplens.weave.weaving import Selection, Weaving  # noqa: E402

CAPABILITIES = (80, 90, 100)
PIPELINE = ("async_copy_global_to_local", "async_wait", "warp_group_dot", "tc_gen5_mma", "tt.dot", "local_load")


def every_job() -> list[Any]:
    return [
        pytest.param(capability, job, id=f"sm_{capability}-{job.name}")
        for capability in CAPABILITIES
        for job in jobs(capability)
        # Triton 3.6 cannot predicate inline asm, so it refuses marks in loops it pipelines for Blackwell's MMA.
        if not (capability == 100 and triton_version() == (3, 6) and job.name not in ("vector_add", "softmax"))
    ]


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


def woven_twin(plain: Any, recipe: Recipe) -> Any:
    """What a profile compiles beside a kernel that Triton has compiled."""
    compiler = WeavingCompiler(recipe)
    undo = compiler.install()
    try:
        return compiler.twin(plain)
    finally:
        undo()


@pytest.mark.parametrize("name", ["softmax", "specialised_matmul"])
@pytest.mark.parametrize("auto", [Auto(), Auto(classes=("loads", "stores", "mma"))])
def test_the_twin_is_made_from_the_ttgir_of_the_plain_kernel(
    name: str, auto: Auto, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Triton's passes up to there, which take up to half of its time, do not run again, and nothing differs by that."""
    monkeypatch.setenv("TRITON_ALWAYS_COMPILE", "1")
    job = next(job for job in jobs(90) if job.name == name)
    plain, recipe = job.compile(90), Recipe(Weaving(), auto=auto)
    from_source = compile_woven(job, 90, recipe, plain.asm["cubin"])

    def refuse(*_: Any) -> None:
        raise AssertionError("compiled once more")

    for stage in ("make_ttir", "make_ttgir", "gluon_to_ttgir"):
        monkeypatch.setattr(CUDABackend, stage, refuse)
    twin = woven_twin(plain, recipe)
    assert "%clock" in twin.asm["ptx"]
    assert twin.asm["ptx"] == from_source.asm["ptx"]
    ours = {"hash", RECIPE}
    made, known = ({k: v for k, v in one.metadata._asdict().items() if k not in ours} for one in (twin, from_source))
    assert made == known


@pytest.mark.parametrize(("capability", "job"), every_job())
def test_ptxas_takes_the_woven_kernel_in_4_more_registers_without_spills_or_new_warnings(
    capability: int, job: Job
) -> None:
    for how in (Weaving(), Weaving(full="ring", select=Selection(warps=(0, 3), blocks=(0, 64, 2), sms=(0, 1)))):
        plain, made = job.woven(capability, how)
        taken = made.resources
        assert taken.spills <= plain.spills
        assert taken.warnings == plain.warnings
        assert taken.serialized == plain.serialized
        assert taken.registers <= plain.registers + 4


@pytest.mark.parametrize("before", [False, True])
def test_the_plain_kernel_is_assembled_for_its_registers_unless_it_was_before(
    before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    job = next(job for job in jobs(90) if job.name == "softmax")
    cubin = job.compile(90).asm["cubin"]
    plain = read_cubin(cubin)
    assert plain is not None
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "other"))
    texts: list[str] = []

    def watched(stage: Any, ptx: str, metadata: Any) -> Assembled:
        texts.append(ptx)
        return assembled(stage, ptx, metadata)

    monkeypatch.setattr("warplens.frontends.triton.assemble.assemble", watched)
    metadata = compile_woven(job, 90, Recipe(Weaving()), cubin if before else None).metadata
    assert metadata.warplens["resources"]["registers_plain"] == plain.registers
    assert sum("@woven" not in text for text in texts) == (0 if before else 1)


@pytest.mark.parametrize("name", ["matmul", "attention"])
def test_clock_reads_stand_in_sass_where_the_marks_stand(name: str) -> None:
    job = next(job for job in jobs(90) if job.name == name)
    text = job.marked_ptx(90)
    for store in ("late", "defer"):
        made = assemble(weave(text, how=Weaving(store=store, fuse=False)).text, 90, disassemble=True)
        steps = "".join(word[0] for word in re.findall(r"C?S2U?R(?:\.32)? U?R\d+, SR_CLOCKLO|HGMMA", made.sass))
        plain = assemble(text, 90, disassemble=True).sass
        assert steps.count("H") == plain.count("HGMMA")
        assert len(steps) - steps.count("H") == text.count("// @warplens ") + 1, "and one at the track's start"
        # In both kernels every run of tensor-core instructions stands between two marks, as in the source.
        assert not steps.startswith("H")
        assert not steps.endswith("H")
        assert len(re.findall("H+", steps)) == {"matmul": 1, "attention": 2}[name]


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("name", ["matmul", "attention"])
def test_marks_leave_the_pipeliner_alone(name: str, capability: int, tmp_path: Path) -> None:
    job = next(job for job in jobs(capability) if job.name == name)
    marked = job.compile(capability).asm
    bare = _without_marks(job, tmp_path).compile(capability).asm
    assert "elementwise_inline_asm" not in bare["ttgir"]
    assert "@warplens" not in bare["ptx"]
    count = {word: (marked["ttgir"].count(word), bare["ttgir"].count(word)) for word in PIPELINE}
    assert all(with_marks == without for with_marks, without in count.values()), count
    assert any(with_marks for with_marks, _ in count.values())
    assert _stages(marked["ttgir"]) == _stages(bare["ttgir"])
    registers = [assemble(asm["ptx"], capability) for asm in (marked, bare)]
    assert registers[0].spills == registers[1].spills == 0


@triton.jit
def fma_chain(x, y, n_iter, LENGTH: tl.constexpr):
    offsets = tl.program_id(0) * 128 + tl.arange(0, 128)
    acc = tl.load(x + offsets)
    for _ in range(n_iter):
        with wlt.region("work"):
            for _ in tl.static_range(LENGTH):
                acc = acc * 1.0001 + 0.5
    tl.store(y + offsets, acc)


@pytest.mark.parametrize(("length", "mode"), [(16, "trace"), (64, "trace"), (256, "trace"), (64, "aggregate")])
def test_dependent_fmas_stand_4_cycles_each_between_their_clock_reads(length: int, mode: str) -> None:
    """ptxas fixes when each instruction of such a region issues: the stall counts in SASS add up to what is read."""
    job = Job(fma_chain, {"x": "*fp32", "y": "*fp32", "n_iter": "i32"}, {"LENGTH": length}, {"num_warps": 4})
    text = job.marked_ptx(90)
    cycles = {}
    for constants in (True, False):
        made = assemble(weave(text, how=Weaving(constants=constants, mode=mode)).text, 90, disassemble=True)
        issued = _issued(made.sass)
        first = next(index for index, (text, _) in enumerate(issued) if "FFMA" in text)
        clocks = [index for index, (text, _) in enumerate(issued) if "SR_CLOCKLO" in text]
        begin, end = max(i for i in clocks if i < first), min(i for i in clocks if i > first)
        assert sum("FFMA" in text for text, _ in issued[begin:end]) == length
        cycles[constants] = sum(stall for _, stall in issued[begin:end])
        # Beside the fmas: a clock read, the loop's own step and test, the pointer's, a store and a copied clock; or
        # what adds up the execution before, while the fmas wait for each other.
        others = [text for text, _ in issued[begin:end] if "FFMA" not in text]
        assert len(others) <= (7 if mode == "trace" else 14) + (not constants), others
    assert 4 * length - 2 * (mode == "aggregate") <= cycles[True] <= 4 * length + 3
    assert cycles[False] > cycles[True], "left to ptxas, the constant is built inside the region"


def _issued(sass: str) -> list[tuple[str, int]]:
    """Each instruction and its stall count: bits 41 to 44 of the second word, which has a line of its own."""
    pairs = re.findall(r"\*/ +(.*?);? +/\* 0x[0-9a-f]{16} \*/\n\s*/\* (0x[0-9a-f]{16}) \*/", sass)
    return [(text, int(word, 16) >> 41 & 15) for text, word in pairs]


@pytest.mark.parametrize("name", ["vector_add", "matmul"])
def test_clusters_are_woven_like_blocks(name: str) -> None:
    job = next(job for job in jobs(90) if job.name == name)
    text = replace(job, options={**job.options, "num_ctas": 2}).compile(90).asm["ptx"]
    assert ".reqnctapercluster" in text
    plain, made = assemble(text, 90), assemble(weave(text).text, 90)
    assert made.spills == plain.spills
    assert made.warnings == plain.warnings


def _without_marks(job: Job, folder: Path) -> Job:
    """The same kernel from the same source with its `with wlt.region(...)` turned into `if True`."""
    import importlib.util

    source = Path(job.function.fn.__code__.co_filename).read_text()
    bare = re.sub(r"with wlt\.region\([^)]*\):", "if True:", re.sub(r"\n *wlt\.\w+\([^\n]*", "", source))
    path = folder / f"bare_{job.name}.py"
    path.write_text(bare)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return Job(getattr(module, job.name), job.signature, job.constants, job.options)


def _stages(ttgir: str) -> list[str]:
    """The shared buffers of the pipelined loop: their first dimension is the number of stages."""
    return sorted(re.findall(r"local_alloc[^\n]*-> (!ttg\.memdesc<\d+x\d+x\d+xf16)", ttgir))


@triton.jit
def specialised(a, b, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in tl.range(0, K, BK, warp_specialize=True):
        with wlt.region("both loads"):
            x, y = a.load([row, k]), b.load([k, column])
        with wlt.region("dot"):
            acc = tl.dot(x, y, acc)
    with wlt.region("store"):
        offsets = (row + tl.arange(0, BM))[:, None] * N + (column + tl.arange(0, BN))[None, :]
        tl.store(c + offsets, acc.to(tl.float16))


def test_marks_in_a_loop_that_triton_specialises_are_woven_or_the_profile_says_they_are_gone() -> None:
    """3.6 drops them for Hopper and refuses them for Blackwell; from 3.7 on every partition of Blackwell's has them."""
    old = triton_version() == (3, 6)
    signature = {"a": "tensordesc<fp16[128, 64]>", "b": "tensordesc<fp16[64, 128]>", "c": "*fp16"}
    sizes = {"BM": 128, "BN": 128, "BK": 64}
    job = Job(specialised, signature | {"N": "i32", "K": "i32"}, sizes, {"num_warps": 4, "num_stages": 3})
    kernel = woven_twin(job.compile(90 if old else 100), Recipe(Weaving()))
    assert kernel.metadata.num_warps > 4, "it is specialised"
    assert "@woven" in kernel.asm["ptx"]
    recorded = set(kernel.metadata.warplens["regions"].values())
    if old:
        assert recorded == {"store"}
        (note,) = kernel.metadata.warplens_remarks["notes"]
        assert note.startswith("'both loads', 'dot' left no mark: this Triton drops marks from a loop with")
    else:
        assert recorded == {"both loads", "dot", "store"}
        assert not hasattr(kernel.metadata, "warplens_remarks")
