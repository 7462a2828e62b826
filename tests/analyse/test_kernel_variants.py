"""Labels of kernel variants: made of what differs, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.builders import Span, make_trace
from warplens.analyse.kernel_variants import kernel_variants, variant_labels, variant_rows
from warplens.analyse.statistics import statistics
from warplens.launch.variant import Variants
from warplens.options import Options
from warplens.record.capture import VARIANT, VARIANT_LAUNCHES, VARIANT_NUMBER
from warplens.trace.model import Trace
from warplens.trace.schema import LaunchInfo, Meta


def infos(*described: Any, kernel: str = "matmul", **more: Any) -> list[LaunchInfo]:
    return [
        LaunchInfo(number, kernel, grid=tuple(one.get("grid", (1, 1, 1))), extra={VARIANT: one, **more})
        for number, one in enumerate(described)
    ]


def labels(*described: Any, **more: Any) -> list[str]:
    return [one.label for one in kernel_variants(infos(*described, **more))]


@pytest.mark.parametrize(
    ("described", "expected"),
    [
        ([{"grid": [64, 1, 1], "BLOCK": 128}], ["matmul"]),
        ([{"grid": [64, 32, 1]}, {"grid": [64, 32, 1]}], ["matmul"]),
        ([{"grid": [64, 32, 1]}, {"grid": [8, 1, 1]}], ["matmul[grid 64×32]", "matmul[grid 8]"]),
        (
            [{"grid": [4, 1, 1], "BLOCK": 128, "num_warps": 8}, {"grid": [8, 1, 1], "BLOCK": 64, "num_warps": 4}],
            ["matmul[BLOCK=128 num_warps=8]", "matmul[BLOCK=64 num_warps=4]"],
        ),
        ([{"stride": 1, "grid": [2, 1, 1]}, {"grid": [2, 1, 1]}], ["matmul[stride=1]", "matmul[default]"]),
        ([{"sizes": [64, 1], "XBLOCK": 8}, {"sizes": [32, 1], "XBLOCK": 8}], ["matmul[sizes 64]", "matmul[sizes 32]"]),
        ([{"grid": [2, 1, 1], "block": [32, 1, 1]}, {"grid": [2, 1, 1], "block": [8, 8, 1]}],
         ["matmul[block 32]", "matmul[block 8×8]"]),
    ],
)  # fmt: skip
def test_a_label_is_what_differs(described: list[dict[str, Any]], expected: list[str]) -> None:
    assert labels(*described) == expected


@given(
    st.lists(
        st.fixed_dictionaries(
            {"grid": st.lists(st.integers(1, 3), min_size=3, max_size=3)},
            optional={"BLOCK": st.sampled_from([32, 64]), "num_warps": st.sampled_from([4, 8]), "flag": st.booleans()},
        ),
        min_size=1,
        max_size=8,
    )
)
def test_every_variant_has_a_label_of_its_own(described: list[dict[str, Any]]) -> None:
    found = kernel_variants(infos(*described))
    distinct = {repr(sorted(one.items())) for one in described}
    assert len({one.label for one in found}) == len(found) == len(distinct)
    assert sum(len(one.launches) for one in found) == len(described)
    (merged,) = kernel_variants(infos(*described), merge=True)
    assert (merged.label, len(merged.launches)) == ("matmul", len(described))


def test_launches_without_a_description_are_one_variant() -> None:
    plain = [LaunchInfo(number, "k", grid=(number + 1, 1, 1)) for number in range(3)]
    assert [(one.label, len(one.launches)) for one in kernel_variants(plain)] == [("k", 3)]


def test_a_variant_that_stands_for_many_grids_does_not_name_one_of_them() -> None:
    first = LaunchInfo(0, "k", grid=(9, 1, 1), extra={VARIANT: {"grid": [9, 1, 1]}})
    other = LaunchInfo(1, "k", grid=(10, 1, 1), extra={VARIANT: {"grid": [9, 1, 1]}})
    known = LaunchInfo(2, "k", grid=(1, 1, 1), extra={VARIANT: {"grid": [1, 1, 1]}})
    assert [one.label for one in kernel_variants([first, other, known])] == ["k[grid mixed]", "k[grid 1]"]


def test_ranks_add_up_their_launches() -> None:
    made = [LaunchInfo(0, "k", rank, extra={VARIANT: {}, VARIANT_LAUNCHES: 5}) for rank in (0, 0, 1)]
    assert kernel_variants(made)[0].ran == 10


def test_variants_with_one_description_are_numbered() -> None:
    variants = Variants(Options(), 0)
    same = [variants.of("k", code, (1, 1, 1), lambda: {"grid": [1, 1, 1]}) for code in "ab"]
    for one in same:
        variants.choose(one)
    numbers = variants.numbers()
    assert [numbers[id(one)] for one in same] == [1, 2]
    extras = [{VARIANT: {"grid": [1, 1, 1]}}, {VARIANT: {"grid": [1, 1, 1]}, VARIANT_NUMBER: 2}]
    launches = [LaunchInfo(at, "k", extra=extra) for at, extra in enumerate(extras)]
    assert [one.label for one in kernel_variants(launches)] == ["k[default]", "k[#2]"]


def two_kernels() -> Trace:
    spans = [
        Span("load", 0, 10, launch=0, kernel="a"),
        Span("load", 20, 30, launch=1, kernel="a"),
        Span("load", 60, 5, launch=2, kernel="b"),
    ]
    launches = (
        LaunchInfo(0, "a", extra={VARIANT: {"BLOCK": 1}}),
        LaunchInfo(1, "a", extra={VARIANT: {"BLOCK": 2}}),
        LaunchInfo(2, "b", extra={VARIANT: {"BLOCK": 1}}),
    )
    return make_trace(spans, meta=Meta(launches=launches))


def test_rows_have_the_label_of_their_variant_unless_there_is_only_one() -> None:
    trace = two_kernels()
    codes, names = variant_rows(trace), variant_labels(trace.meta.launches)
    assert [names[code] for code in codes] == ["a[BLOCK=1]", "a[BLOCK=2]", "b"]
    trace = make_trace([Span("load", 0, 10)])
    codes, names = variant_rows(trace), variant_labels(trace.meta.launches)
    assert [names[code] for code in codes] == [""]


def test_statistics_split_kernels_and_their_variants() -> None:
    """Regions of two kernels that share a name have nothing else in common."""
    trace = two_kernels()
    rows = [(row.variant, row.region, row.count, row.mean) for row in statistics(trace)]
    assert rows == [("a[BLOCK=1]", "load", 1, 20), ("a[BLOCK=2]", "load", 1, 60), ("b", "load", 1, 10)]
    assert [(row.variant, row.count) for row in trace.stats(merge_variants=True)] == [("", 3)]
    assert [(row.group, row.count) for row in trace.stats(by="sm")] == [("0", 3)]
    by_kernel = [(row.group, row.variant) for row in trace.stats(by="kernel")]
    assert by_kernel == [("a", "a[BLOCK=1]"), ("a", "a[BLOCK=2]"), ("b", "b")]
    assert "a[BLOCK=1]" in repr(trace.stats())
    assert list(trace.stats().variants) == ["a[BLOCK=1]", "a[BLOCK=2]", "b"]
