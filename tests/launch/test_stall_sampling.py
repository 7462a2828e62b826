"""Sampling while a profile runs: one sampler per context, failures that stay ours, and whose code each sample is of."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import pytest

from tests.support.contexts import Contexts
from tests.support.fake_cupti import FakeLibrary, use_fake_cupti
from tests.support.sass_kernels import HOISTED, UNROLLED, code_of, needs_tools
from warplens.driver import libcuda, libcupti
from warplens.errors import WarplensError
from warplens.launch import stall_sampling
from warplens.launch.sample_matching import Codes
from warplens.launch.stall_sampling import StallSampling
from warplens.sass.machine_code import MachineCode

CONTEXT, OTHER = 1, 2


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Contexts:
    fake = Contexts()
    monkeypatch.setattr(libcuda, "driver", lambda: fake)
    return fake


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch, driver: Contexts) -> Iterator[FakeLibrary]:
    fake = use_fake_cupti(monkeypatch)
    yield fake
    assert fake.enabled == set(), "a sampler was left running"


class Notes(list[tuple[str, str]]):
    def __call__(self, about: str, text: str) -> None:
        self.append((about, text))


def wait_for(library: FakeLibrary, call: str) -> None:
    deadline = time.monotonic() + 5
    while call not in library.calls and time.monotonic() < deadline:
        time.sleep(0.005)
    assert call in library.calls


def test_each_context_is_sampled_once(library: FakeLibrary) -> None:
    notes = Notes()
    sampling = StallSampling(notes)
    for context in (CONTEXT, OTHER, CONTEXT, CONTEXT):
        sampling.enter(context)
    assert library.enabled == {CONTEXT, OTHER}
    sampling.pause(wait=False)
    assert library.calls.count("Enable") == library.calls.count("Disable") == 2
    assert notes == []
    assert [one.name for one in threading.enumerate() if one.name == "warplens-stalls"] == []


def test_samples_are_fetched_while_the_program_runs(monkeypatch: pytest.MonkeyPatch, library: FakeLibrary) -> None:
    monkeypatch.setattr(stall_sampling, "READ_EVERY_S", 0.005)
    sampling = StallSampling(Notes())
    sampling.enter(CONTEXT)
    wait_for(library, "GetData")
    sampling.pause()


def test_another_profile_gets_the_sampling_unit_meanwhile(library: FakeLibrary) -> None:
    sampling, inner = StallSampling(Notes()), StallSampling(Notes())
    sampling.enter(CONTEXT)
    library.sample(b"x", "k", 16, wait=1)
    sampling.pause()
    inner.enter(CONTEXT)
    inner.pause()
    sampling.resume()
    library.sample(b"x", "k", 16, wait=2)
    sampling.pause()
    assert (sampling.result({}).taken, inner.result({}).taken) == (3, 0)


@pytest.mark.parametrize(("call", "status"), [("Enable", 35), ("Enable", 7), ("Start", 27)])
def test_what_is_refused_is_said_once_and_the_program_goes_on(library: FakeLibrary, call: str, status: int) -> None:
    library.failing[call] = status
    notes = Notes()
    sampling = StallSampling(notes)
    for _ in range(3):
        sampling.enter(CONTEXT)
    sampling.pause()
    ((about, text),) = notes
    assert about == "stalls"
    assert text.startswith(f"not sampled: cuptiPCSampling{call} failed")
    assert sampling.result({}).problems == (text,)
    assert library.calls.count("Enable") == 1


def test_without_libcupti_the_program_goes_on(monkeypatch: pytest.MonkeyPatch, driver: Contexts) -> None:
    def missing() -> None:
        raise WarplensError("libcupti was not found: install it")

    monkeypatch.setattr(libcupti, "cupti", missing)
    notes = Notes()
    sampling = StallSampling(notes)
    sampling.enter(CONTEXT)
    sampling.pause()
    assert sampling.result({}).to_json()["problems"] == ("not sampled: libcupti was not found: install it",)
    assert len(notes) == 1


def test_a_profile_without_launches_on_a_gpu_says_so(library: FakeLibrary) -> None:
    notes = Notes()
    assert StallSampling(notes).result({}).problems == ("not sampled: no recorded launch ran on a GPU",)
    assert (notes, library.calls) == ([], [])


def test_samples_that_cannot_be_fetched_end_the_sampling(monkeypatch: pytest.MonkeyPatch, library: FakeLibrary) -> None:
    monkeypatch.setattr(stall_sampling, "READ_EVERY_S", 0.005)
    notes = Notes()
    sampling = StallSampling(notes)
    library.failing["GetData"] = 3
    sampling.enter(CONTEXT)
    wait_for(library, "GetData")
    sampling.pause()
    assert {text.partition(" failed")[0] for _, text in notes} == {"not sampled: cuptiPCSamplingGetData"}
    assert len(sampling.result({}).problems) == 1


def test_a_process_that_ends_early_ends_the_sampling_and_its_children_do_not(library: FakeLibrary) -> None:
    sampling = StallSampling(Notes())
    sampling.enter(CONTEXT)
    child = os.fork()
    if not child:
        sampling._end()
        os._exit(len(library.enabled))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    sampling._end()
    assert library.enabled == set()


def test_a_context_that_is_gone_is_no_error_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(Contexts):
        def synchronize(self) -> None:
            raise WarplensError("cuCtxSynchronize failed: context is destroyed")

    monkeypatch.setattr(libcuda, "driver", Gone)
    library = use_fake_cupti(monkeypatch)
    notes = Notes()
    sampling = StallSampling(notes)
    sampling.enter(CONTEXT)
    sampling.pause()
    assert "context is destroyed" in notes[0][1]
    assert library.enabled == set()


def result(library: FakeLibrary, codes: Codes) -> tuple[dict[tuple[str, bool, str], dict[int, dict[str, int]]], int]:
    sampling = StallSampling(Notes())
    sampling.enter(CONTEXT)
    sampling.pause()
    found = sampling.result(codes)
    return {(one.code, one.plain, one.file): dict(one.counts()) for one in found.codes}, found.other


@needs_tools
def test_samples_are_told_apart_by_cubin_and_function(library: FakeLibrary) -> None:
    marked, plain = code_of(UNROLLED), code_of(HOISTED).cubin
    assert marked.cubin
    assert plain
    code = MachineCode(marked.symbol, marked.ptx, marked.cubin, plain=plain)
    library.sample(marked.cubin, "k", 32, wait=2, selected=1)
    library.sample(marked.cubin, "another", 32, wait=50)
    library.sample(b"unknown", "k", 32, wait=70)
    library.sample(plain, "k", 48, wait=3)
    library.sample(plain, "k", 64, wait=4)
    library.sample(plain, "k", 80, wait=5)
    library.sample(plain, "k", 96, wait=6)
    library.lines |= {("k", 48): ("/src", "a.py", 7), ("k", 64): ("/src", "a.py", 7), ("k", 80): ("/lib", "b.py", 9)}
    found, other = result(library, {"digest": ("k", code)})
    assert found == {
        ("digest", False, ""): {32: {"wait": 2, "selected": 1}},
        ("digest", True, "/src/a.py"): {7: {"wait": 7}},
        ("digest", True, "/lib/b.py"): {9: {"wait": 5}},
        ("digest", True, ""): {0: {"wait": 6}},
    }
    assert other == 120


def test_code_that_was_not_kept_is_named(library: FakeLibrary) -> None:
    sampling = StallSampling(Notes())
    sampling.enter(CONTEXT)
    sampling.pause()
    found = sampling.result({"a": ("k", MachineCode("k", ".version 8.0"))})
    assert found.problems == ("k: its machine code was not kept, so it has no samples",)


@needs_tools
def test_variants_that_cupti_cannot_tell_apart_have_no_samples(
    monkeypatch: pytest.MonkeyPatch, library: FakeLibrary
) -> None:
    monkeypatch.setattr(FakeLibrary, "_GetCubinCrc", lambda self, params: setattr(params, "crc", 5))
    one, other = code_of(UNROLLED), code_of(HOISTED)
    library.records.append((5, "k", 16, {"wait": 9}))
    sampling = StallSampling(Notes())
    sampling.enter(CONTEXT)
    sampling.pause()
    found = sampling.result({"a": ("k", one), "b": ("k", other)})
    assert (found.codes, found.other) == ((), 9)
    assert found.problems == ("k: CUPTI cannot tell two of its variants apart, so they have no samples",)
    # The same code under two names is no contradiction.
    same = sampling.result({"a": ("k", one), "b": ("k", one)})
    assert [code.code for code in same.codes] == ["a"]
