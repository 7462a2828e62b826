"""What is tried where marks would harm a kernel, and what is said of it."""

from __future__ import annotations

import pytest

from warplens.auto.rules import Auto
from warplens.auto.rungs import rungs


def test_marks_are_given_up_one_class_after_the_other() -> None:
    found = list(rungs(Auto.of("all")))
    assert [rung.left_out for rung in found[:6]] == [
        (), ("lines",), ("lines", "loads"), ("lines", "loads", "loops"), ("lines", "loads", "loops", "stores"),
        ("lines", "loads", "loops", "stores", "reduce"),
    ]  # fmt: skip
    assert [rung.auto.classes for rung in found[5:]] == [
        ("copies", "waits", "mma", "barriers", "work", "edges"),
        (),
        (),
        (),
    ]
    assert [rung.auto.coarse for rung in found[6:]] == ["loops", "body", ""]
    assert [rung.lives_only for rung in found] == [False] * 8 + [True]
    assert [rung.fixed for rung in found] == [False] * 6 + [True] * 3


def test_barrier_records_are_given_up_where_a_kernel_has_barriers() -> None:
    found = list(rungs(Auto.of(True), barriers=True))
    assert [rung.left_out for rung in found[:4]] == [(), ("edges",), ("edges", "loads"), ("edges", "loads", "stores")]
    assert found[2].note("it spills") == "its barrier edges and loads are not marked: it spills"
    assert all("edges" not in rung.left_out for rung in rungs(Auto.of(True)))


def test_the_only_class_is_not_left_out() -> None:
    assert [rung.auto.classes for rung in rungs(Auto.of("loads"))] == [("loads",), (), (), ()]
    with_range = Auto.of("loads", {"softmax": "attn.py:1-2"})
    assert [rung.auto.classes for rung in rungs(with_range)] == [("loads",), (), (), (), ()]


def test_marks_that_their_author_wrote_are_never_dropped() -> None:
    assert all(not rung.fixed for rung in rungs(Auto.of("all"), keep_marks=True))


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (0, ""),
        (1, "its loads are not marked: it spills"),
        (2, "its loads and stores are not marked: it spills"),
        (4, "only its body and its outermost loops are marked: it spills"),
        (5, "only its body is marked: it spills"),
        (6, "only the lifetime of each warp is recorded: it spills"),
    ],
)
def test_a_rung_says_what_is_not_marked(number: int, said: str) -> None:
    assert list(rungs(Auto.of(True)))[number].note("it spills") == said
