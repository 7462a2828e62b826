"""The search for a weaving that does no harm, with an assembler that is a table."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warplens.ptx.tree import parse
from warplens.weave.fit.candidates import (
    Candidate,
    automatic_candidates,
    intercepted_candidates,
    limited_candidates,
    module_candidates,
    name_of,
    named_weaving,
)
from warplens.weave.fit.harm import Guard
from warplens.weave.fit.ptxas_output import read_log, without_verbose
from warplens.weave.fit.resources import UNUSABLE, Resources
from warplens.weave.fit.search import Attempt, search
from warplens.weave.weaver import marked_kernels, weave
from warplens.weave.weaving import Weaving

PLAIN = Resources(registers=64, spills=8, blocks=8)
GOLDEN = Path(__file__).parents[1] / "golden" / "ptx"


class FakeAssembler:
    """Makes of the n-th candidate what the n-th entry of a list says."""

    def __init__(self, *results: Resources) -> None:
        self.results = results
        self.asked: list[Candidate] = []
        self.discarded: list[int] = []

    def assemble(self, candidate: Candidate) -> tuple[int, Resources]:
        self.asked.append(candidate)
        return len(self.asked) - 1, self.results[len(self.asked) - 1]

    def search(self, guard: Guard) -> Attempt[int]:
        candidates = (Candidate(Weaving(), registers) for registers in range(len(self.results)))
        return search(candidates, self.assemble, guard, self.discarded.append)


def plain_guard(**options: float) -> Guard:
    return Guard(lambda: PLAIN, **options)  # type: ignore[arg-type]


def test_the_first_candidate_without_harm_is_taken_and_no_other_is_made() -> None:
    spills, fine = replace(PLAIN, spills=16), PLAIN
    assembler = FakeAssembler(spills, fine, fine)
    found = assembler.search(plain_guard())
    assert (found.build, found.harm, found.candidate.registers) == (1, None, 1)
    assert len(assembler.asked) == 2
    assert assembler.discarded == [0]


def test_the_least_harmful_candidate_is_returned_with_what_it_costs() -> None:
    worse, least, tied = (replace(PLAIN, spills=spills) for spills in (40, 16, 16))
    assembler = FakeAssembler(worse, least, tied, UNUSABLE)
    found = assembler.search(plain_guard())
    assert found.build == 1
    assert found.harm is not None
    assert found.harm.refused
    assert found.harm.words == "with marks it spills 8 more bytes of registers"
    assert assembler.discarded == [0, 2, 3]


@pytest.mark.parametrize(
    ("woven", "words"),
    [
        (replace(PLAIN, spills=2000), "with marks it spills 1,992 more bytes of registers"),
        (replace(PLAIN, serialized=True), "with marks its wgmma instructions no longer overlap"),
        (
            replace(PLAIN, registers=80, blocks=6),
            "with marks it needs 80 registers instead of 64, and an SM holds 6 of its blocks instead of 8 "
            "(least_occupancy=0.75 allows it)",
        ),
        (replace(PLAIN, registers=70, spills=0), ""),
    ],
)
def test_harm_in_words(woven: Resources, words: str) -> None:
    harm = plain_guard().harm(woven)
    assert (harm.words if harm else "") == words


def test_fewer_blocks_that_are_allowed_are_the_last_resort() -> None:
    fewer, fewest = replace(PLAIN, blocks=6), replace(PLAIN, blocks=4)
    found = FakeAssembler(fewest, fewer, fewer, PLAIN).search(plain_guard(required=0.75))
    assert (found.build, found.harm) == (3, None)
    found = FakeAssembler(fewest, fewer, fewer).search(plain_guard(required=0.75))
    assert found.build == 1, "the first that is allowed"
    assert found.harm is not None
    assert not found.harm.refused
    assert "allows it" not in found.harm.words
    found = FakeAssembler(fewest, fewer).search(plain_guard(wanted=0.75, required=0.75))
    assert (found.build, found.harm) == (1, None), "a front end may be content with that at once"


def test_the_plain_kernel_is_measured_only_where_it_matters() -> None:
    guard = Guard(lambda: pytest.fail("not needed"), most_blocks=8)
    assert guard.harm(Resources(registers=200, blocks=8)) is None
    measured = []
    guard = Guard(lambda: measured.append(1) or PLAIN, most_blocks=16)  # type: ignore[func-returns-value]
    assert guard.harm(Resources(registers=64, blocks=8)) is None
    assert guard.harm(Resources(registers=64, blocks=7)) is not None
    assert measured == [1]


RESOURCES = st.builds(
    Resources, st.integers(16, 255), st.sampled_from([0, 8, 16]), st.booleans(), blocks=st.integers(0, 10)
)


@given(plain=RESOURCES, results=st.lists(RESOURCES, min_size=1, max_size=6), required=st.sampled_from([0.0, 0.5, 1.0]))
def test_what_is_chosen_is_no_more_harmful_than_anything_tried(
    plain: Resources, results: list[Resources], required: float
) -> None:
    guard = Guard(lambda: plain, required=required)
    assembler = FakeAssembler(*results)
    found = assembler.search(guard)
    tried = results[: len(assembler.asked)]
    harms = [guard.harm(one) for one in tried]
    assert found.rank == min(harm.rank if harm else () for harm in harms)
    assert all(harm is not None for harm in harms[:-1]), "nothing is tried after a candidate without harm"
    assert found.harm is not None or len(tried) == found.build + 1
    assert found.harm is None or len(tried) == len(results)
    if any(harm is None or not harm.refused for harm in harms):
        assert found.harm is None or not found.harm.refused
    assert sorted([found.build, *assembler.discarded]) == list(range(len(tried)))


def candidates_for(how: Weaving, limit: int, latest: Resources, **options: Any) -> list[Candidate]:
    return list(automatic_candidates(how, lambda: limit, lambda: latest, **options))


def test_the_order_of_candidates_for_automatic_marks() -> None:
    how = Weaving()
    light = Weaving(keep=0, early=False, constants=False, store="late")
    lean, fixed = replace(light, lean=True), replace(how, fixed=True)
    taken = Resources(registers=100)
    made = automatic_candidates(how, lambda: pytest.fail("the first candidate needs no limit"), lambda: taken)
    assert next(made) == Candidate(how)
    assert candidates_for(how, 96, taken) == [Candidate(how), Candidate(light, 96), Candidate(lean, 96)]
    assert candidates_for(how, 0, taken) == [Candidate(how), Candidate(light), Candidate(lean)]
    assert candidates_for(light, 0, taken) == [Candidate(light), Candidate(lean)]
    straight = candidates_for(how, 96, taken, fits_fixed=lambda: True)
    assert straight == [Candidate(how), Candidate(fixed, 96), Candidate(lean, 96)]
    assert candidates_for(how, 96, taken, marked_less=True) == [Candidate(light, 96), Candidate(lean, 96)]


def test_candidates_that_are_sure_to_lose_are_not_tried() -> None:
    how, far, spilled = Weaving(), Resources(registers=97), Resources(registers=64, spills=400)
    assert candidates_for(how, 64, far) == [Candidate(how)], "97 registers do not fit into 64"
    assert len(candidates_for(how, 64, far, marked_less=True)) == 2
    light = Candidate(Weaving(keep=0, early=False, constants=False, store="late"), 64)
    assert candidates_for(how, 64, spilled) == [Candidate(how), light], "no weaving saves 400 bytes"
    assert candidates_for(how, 64, replace(spilled, spills=24)) == [Candidate(how), light], "nor 24"
    assert len(candidates_for(how, 64, replace(spilled, spills=16))) == 3
    near = Resources(registers=84)
    assert len(candidates_for(how, 64, near)) == 3
    assert candidates_for(how, 64, near, fits_fixed=lambda: True) == [Candidate(how)], "no loop has anything to give up"


def test_a_weaving_is_found_again_by_its_name() -> None:
    how = Weaving(full="ring")
    for name in ("asked", "light", "lean", "fixed"):
        assert name_of(how, named_weaving(how, name)) == name


def test_a_parallel_search_finds_the_same_candidate() -> None:
    spills, fine = replace(PLAIN, spills=16), PLAIN
    for results in ([spills, spills, fine, fine], [fine, spills], [spills, replace(PLAIN, spills=12), spills]):
        candidates = [Candidate(Weaving(), registers) for registers in range(len(results))]

        def assemble(candidate: Candidate, results: list[Resources] = results) -> tuple[int, Resources]:
            return candidate.registers, results[candidate.registers]

        alone, together = (search(candidates, assemble, plain_guard(), parallel=n) for n in (1, 3))
        assert (alone.build, alone.harm) == (together.build, together.harm)


def test_a_parallel_search_assembles_the_others_at_once_after_the_first() -> None:
    together = threading.Barrier(2, timeout=20)

    def assemble(candidate: Candidate) -> tuple[int, Resources]:
        if candidate.registers:
            together.wait()  # breaks if the two are made one after the other
        return candidate.registers, replace(PLAIN, spills=16)

    found = search([Candidate(Weaving(), number) for number in range(3)], assemble, plain_guard(), parallel=2)
    assert found.harm is not None


def test_a_few_spills_may_be_free() -> None:
    spills = replace(PLAIN, spills=PLAIN.spills + 32)
    assert plain_guard().harm(spills) is not None
    assert plain_guard(free_spills=32).harm(spills) is None
    assert plain_guard(free_spills=31).harm(spills) is not None


def test_a_plain_copy_may_spill_what_the_plain_kernel_does() -> None:
    guard = plain_guard(bodies=2)
    assert guard.harm(replace(PLAIN, spills=2 * PLAIN.spills)) is None
    harm = guard.harm(replace(PLAIN, spills=2 * PLAIN.spills + 4))
    assert harm is not None
    assert "spills 4 more bytes" in harm.words
    assert plain_guard().harm(replace(PLAIN, spills=2 * PLAIN.spills)) is not None


def test_the_order_of_candidates_of_the_other_front_ends() -> None:
    how = Weaving()
    light = Weaving(keep=0, early=False, store="late")
    spread = replace(light, store="spread", aligned=True)
    assert list(intercepted_candidates(how, 64, aligned=True)) == [
        Candidate(how), Candidate(light), Candidate(light, 64), Candidate(spread), Candidate(spread, 64)
    ]  # fmt: skip
    now = Weaving(store="now")
    fewer = replace(now, keep=0, early=False)
    assert list(intercepted_candidates(now, 64, aligned=True)) == [
        Candidate(now), Candidate(fewer), Candidate(fewer, 64)
    ]  # fmt: skip
    sums = Weaving(mode="aggregate")
    assert all(candidate.how.aligned for candidate in intercepted_candidates(sums, 64, aligned=True))
    assert list(module_candidates(how)) == [
        Candidate(how), Candidate(Weaving(keep=0, early=False)), Candidate(Weaving(keep=0, early=False, join=False))
    ]  # fmt: skip
    assert list(limited_candidates(how, 40)) == [Candidate(how, 40), Candidate(Weaving(early=False, lean=True), 40)]


LOG = """ptxas info    : Function properties for k
    8 bytes stack frame, 24 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers
ptxas warning : Local memory used
ptxas info    : (C7511) Potential Performance Loss: wgmma.mma_async instructions are serialized
"""


def test_what_ptxas_prints_of_one_kernel() -> None:
    taken = read_log(LOG)
    assert taken == Resources(40, 24, serialized=True, warnings=1)
    assert taken.complaints == 2
    assert [line[:16] for line in without_verbose(LOG).splitlines()] == ["ptxas warning : ", "ptxas info    : "]


MARKED = [path for path in sorted(GOLDEN.glob("*.ptx")) if "// @warplens " in path.read_text()]


@pytest.mark.parametrize("path", MARKED, ids=lambda path: path.stem)
def test_a_parsed_module_is_woven_again_and_again_and_stays_as_it_is(path: Path) -> None:
    text = path.read_text()
    module = parse(text)
    marked_kernels(module)
    for how in (Weaving(), Weaving(lean=True, keep=0), Weaving(store="spread")):
        assert weave(module, how=how) == weave(text, how=how)
    assert module == parse(text)
    assert module.text() == text
