"""The tree of regions and its filters."""

from __future__ import annotations

import pytest

from tests.support.builders import Span, make_trace
from warplens.analyse.region_tree import RegionNode, prune_tree, region_tree
from warplens.commands.shared.console import print_json
from warplens.errors import UsageError


@pytest.fixture
def roots() -> tuple[RegionNode, ...]:
    spans = []
    for warp in (0, 1):
        spans += [
            Span("loop", 0, 800, warp=warp),
            Span("load", 0, 300, warp=warp),
            Span("load", 300, 100, warp=warp),
            Span("mma", 400, 300, warp=warp),
            Span("load", 450, 50, warp=warp),
            Span("store", 800, 200, warp=warp),
        ]
    return region_tree(make_trace(spans))


def names(roots: tuple[RegionNode, ...]) -> list[tuple[int, str]]:
    return [(depth, node.name) for root in roots for depth, node in root.walk()]


def test_each_path_is_one_node(roots: tuple[RegionNode, ...]) -> None:
    assert names(roots) == [(0, "kernel"), (1, "loop"), (2, "load"), (2, "mma"), (3, "load"), (1, "store")]
    kernel = roots[0]
    loop, store = kernel.children
    load, mma = loop.children
    assert (load.count, load.cycles, load.normalized) == (4, 1600, 800.0)  # 2 cycles per ns, 2 warps
    assert (loop.cycles, loop.exclusive) == (3200, 400)
    assert (mma.cycles, mma.exclusive, mma.children[0].cycles) == (1200, 1000, 200)
    assert (kernel.cycles, kernel.exclusive, store.share) == (4000, 0, pytest.approx(0.2))


def test_exclusive_time_of_the_whole_tree_is_the_warps_time(roots: tuple[RegionNode, ...]) -> None:
    assert sum(node.exclusive for root in roots for _, node in root.walk()) == roots[0].cycles
    for root in roots:
        for _, node in root.walk():
            assert node.exclusive <= node.cycles
            assert sum(child.cycles for child in node.children) <= node.cycles


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"depth": 1}, ["kernel", "loop", "store"]),
        ({"depth": 0}, ["kernel"]),
        ({"include": "^mma$"}, ["kernel", "loop", "mma", "load"]),
        ({"exclude": "load|store"}, ["kernel", "loop", "mma"]),
        ({"threshold": 0.35}, ["kernel", "loop", "load"]),
        ({"include": "nothing"}, ["kernel"]),
    ],
)
def test_filters(roots: tuple[RegionNode, ...], options: dict[str, object], kept: list[str]) -> None:
    assert [name for _, name in names(prune_tree(roots, **options))] == kept  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"include": "("}, {"depth": -1}, {"threshold": 2.0}])
def test_impossible_filters_are_refused(roots: tuple[RegionNode, ...], options: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        prune_tree(roots, **options)  # type: ignore[arg-type]


def test_two_kernels_have_two_roots() -> None:
    spans = [Span("work", 0, 100, kernel="small"), Span("work", 500, 900, launch=1, kernel="large")]
    assert names(region_tree(make_trace(spans))) == [(0, "large"), (1, "work"), (0, "small"), (1, "work")]
    assert region_tree(make_trace([])) == ()


def nested(levels: int) -> list[Span]:
    return [Span(f"level_{level % 3}", level, 10 * levels - 2 * level, depth=level) for level in range(levels)]


def test_deep_nesting_is_no_recursion() -> None:
    levels = 3000
    (root,) = region_tree(make_trace(nested(levels)))
    assert [depth for depth, _ in root.walk()] == list(range(levels + 1))
    (cut,) = prune_tree((root,), include="level_2", depth=levels)
    assert sum(1 for _ in cut.walk()) == levels + 1
    (short,) = prune_tree((root,), depth=5)
    assert [node.name for _, node in short.walk()][1:] == ["level_0", "level_1", "level_2", "level_0", "level_1"]
    document = root.to_json()
    for _ in range(levels):
        (document,) = document["children"]
    assert document["children"] == []


def test_a_deep_tree_is_printed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    (root,) = region_tree(make_trace(nested(900)))
    print_json(root.to_json())
    assert capsys.readouterr().out.count('"name"') == 901
