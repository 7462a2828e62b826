"""Barriers of warp-specialised Gluon kernels: marks by hand and by rules, compiled to cubin."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote

import pytest

triton = pytest.importorskip("triton", reason="triton is not installed")

import triton.language as tl  # noqa: E402

import warplens.triton as wlt  # noqa: E402
from tests.support.plain_jobs import CAPABILITY, plain_jobs  # noqa: E402
from tests.support.triton_examples import Job, compile_woven, jobs  # noqa: E402
from warplens.auto.rules import Auto  # noqa: E402
from warplens.frontends.triton.weaving_compiler import Recipe  # noqa: E402
from warplens.weave.weaving import Weaving  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("TRITON_ALWAYS_COMPILE", "1")
        yield


def barriers(job: Job, auto: str | bool | None) -> tuple[list[tuple[str, str]], list[str]]:
    """The regions and operations of a kernel's barrier marks, and the notes on it."""
    kernel = compile_woven(job, CAPABILITY, Recipe(Weaving(), auto=Auto.of(auto)))
    found = re.findall(r"// @warplens S (\S+) (\w+) (\S+) (\S+)", kernel.asm["ptx"])
    assert all(barrier.startswith("u32:%r") for _, _, barrier, _ in found)
    assert all((parity != "-") == (operation == "wait") for _, operation, _, parity in found)
    remarks = getattr(kernel.metadata, "warplens_remarks", None) or {"notes": []}
    return sorted((unquote(name), operation) for name, operation, _, _ in found), remarks["notes"]


def test_rules_record_the_barriers_of_a_specialised_matmul() -> None:
    job = next(job for job in plain_jobs() if job.name == "gluon_gemm")
    found, notes = barriers(job, True)
    assert [(name.rsplit(" ", 1)[0], operation) for name, operation in found] == [
        ("copy issue", "copy"), ("mbarrier arrive", "arrive"), ("mbarrier wait", "wait"), ("mbarrier wait", "wait")
    ]  # fmt: skip
    assert notes == [], "they cost no register and no block"
    assert barriers(job, "waits,copies")[0] == []


def test_hand_marks_find_the_barriers_that_they_are_about() -> None:
    job = next(job for job in jobs(CAPABILITY) if job.name == "specialised_matmul")
    found, _ = barriers(job, None)
    assert found == [
        ("issue copies", "copy"), ("tile is free", "arrive"), ("wait for room", "wait"), ("wait for tile", "wait")
    ]  # fmt: skip
    both, _ = barriers(job, True)
    waits = [name for name, operation in both if operation == "wait"]
    assert len(waits) == 2
    assert all(name.startswith("mbarrier wait") for name in waits), "recorded once, by the innermost region"


@triton.jit
def flagged(out, flags, n, BLOCK: tl.constexpr):
    """Barriers of the program's own: numbers and phases that the kernel computes, or constants."""
    program = tl.program_id(0)
    for step in range(n):
        with wlt.wait("turn", program, step):
            tl.atomic_add(flags, 1)
        with wlt.wait("fixed", 7, 1):
            tl.atomic_add(flags, 1)
        wlt.start_event("tile", step)
        wlt.arrive("done", program + 1)
        wlt.arrive("sent", 8, copy=True)
        wlt.end_event("tile", step)
    tl.store(out + program * BLOCK + tl.arange(0, BLOCK), program)


def test_barriers_may_be_numbers_of_the_program() -> None:
    signature = {"out": "*i32", "flags": "*i32", "n": "i32"}
    job = Job(flagged, signature, {"BLOCK": 128}, {"num_warps": 4})
    ptx = compile_woven(job, CAPABILITY, Recipe(Weaving())).asm["ptx"]
    found = re.findall(r"// @warplens S (\S+) (\w+) (u32:%r|number:)\d+ (%r|\d|-)", ptx)
    assert set(found) == {
        ("turn", "wait", "u32:%r", "%r"), ("fixed", "wait", "number:", "1"), ("tile", "event_start", "u32:%r", "-"),
        ("done", "arrive", "u32:%r", "-"), ("sent", "copy", "number:", "-"), ("tile", "event_end", "u32:%r", "-"),
    }  # fmt: skip


def test_a_barrier_that_does_not_fit_is_refused() -> None:
    @triton.jit
    def wrong(out):
        wlt.arrive("done", 4294967296)

    with pytest.raises(Exception, match="barrier 4294967296 of 'done'"):
        Job(wrong, {"out": "*i32"}, {}, {}).compile(CAPABILITY)
