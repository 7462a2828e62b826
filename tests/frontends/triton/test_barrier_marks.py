"""Barriers of warp-specialised Gluon kernels: marks by hand and by rules, compiled to cubin."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote

import pytest

pytest.importorskip("triton", reason="triton is not installed")

from tests.support.plain_jobs import CAPABILITY, plain_jobs
from tests.support.triton_examples import Job, compile_woven, jobs
from warplens.auto.rules import Auto
from warplens.frontends.triton.weaving_compiler import Recipe
from warplens.weave.weaving import Weaving


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
