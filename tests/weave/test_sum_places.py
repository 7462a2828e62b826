"""Executions are added up where the options say, and all of them wherever that is."""

from __future__ import annotations

import pytest

from tests.support.aggregated_kernel import VARIED, same, varied
from tests.support.ptx_kernels import kernel
from tests.support.simulated_trace import count_only_work
from warplens.errors import UsageError
from warplens.ptx.tree import parse
from warplens.weave import sum_places
from warplens.weave.mark_sites import outline
from warplens.weave.sum_places import SumPlaces
from warplens.weave.weaver import weave
from warplens.weave.weaving import SUMS, Weaving

PRODUCT = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%r10, %r11}, %rd2, %rd3, %p2, 1, 1, 0, 0;"
PIPELINE = f"""$x:
// @warplens B load
cp.async.wait_group 2;
// @warplens E load
// @warplens B dot
{PRODUCT}
wgmma.wait_group.sync.aligned 1;
// @warplens E dot
add.s32 %r4, %r4, 1;
// @warplens B step
add.s32 %r4, %r4, 1;
// @warplens E step
cp.async.cg.shared.global [%r4], [%rd1], 16;
@%p2 bra $x;"""
"""A loop with a wait for copies, a product and a short region."""


def places(how: Weaving, performance: str = ".reqntid 128") -> tuple[SumPlaces, list[str]]:
    function = parse(kernel(PIPELINE, performance)).entries[0]
    sketch = outline(function, {})
    names = ["load", "dot", "step"]
    return SumPlaces(function, sketch, lambda site: names.index(site.mark.name), how), names


@pytest.mark.parametrize(("place", "late"), [
    ("auto", ["load", "dot"]), ("end", []), ("both", ["load", "dot"]),
])  # fmt: skip
def test_regions_that_wait_may_add_up_behind_their_begin(place: str, late: list[str]) -> None:
    found, names = places(Weaving(mode="aggregate", sums=place))
    assert [names[row] for row in sorted(found.late)] == late
    assert [names[row] for row in sorted(found.timed)] == ["load", "dot"]


@pytest.mark.parametrize(
    ("performance", "late"),
    [(".reqntid 128", ["load", "dot"]), (".maxntid 32, 4", ["load", "dot"]), (".reqntid 256", []), ("", [])],
)
def test_the_size_of_a_block_decides(performance: str, late: list[str]) -> None:
    found, names = places(Weaving(mode="aggregate"), performance)
    assert [names[row] for row in sorted(found.late)] == late


@pytest.mark.parametrize("place", SUMS)
def test_sums_are_gathered_behind_the_last_mark_of_a_block_with_products(place: str) -> None:
    text = weave(kernel(PIPELINE), how=Weaving(mode="aggregate", sums=place, early=False)).text
    loop = text[text.index("$x:") : text.index("cp.async.cg")]
    _, _, last = loop.rpartition("%clock")
    assert last.count("cvt.rz.f32") == {"auto": 1, "end": 3, "both": 1}[place]
    assert loop.count("cvt.rz.f32") == 3


@pytest.mark.parametrize("place", SUMS)
@pytest.mark.parametrize(("steps", "last"), [(40, 99), (1, 0), (0, 99)])
def test_every_execution_is_there_wherever_it_is_added_up(
    monkeypatch: pytest.MonkeyPatch, place: str, steps: int, last: int
) -> None:
    monkeypatch.setattr(sum_places, "_has_products", lambda block: True)
    count_only_work(monkeypatch)
    text = VARIED.replace("LANES", "")
    records = varied(monkeypatch, "trace", text, steps, last)
    same(records, varied(monkeypatch, "aggregate", text, steps, last, sums=place))


def test_other_places_are_refused() -> None:
    with pytest.raises(UsageError, match="sums='late'"):
        Weaving(mode="aggregate", sums="late")
