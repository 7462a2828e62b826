"""Imports point one way: a room imports itself and the rooms above it in LAYERS, and no two modules import each other.

Imports inside functions, imports for type checkers and modules named in a registry count as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.support.source_tree import imports, modules, room_of
from warplens.formats import FORMATS

LAYERS = (
    # What every room may use.
    "version",
    "text",
    "errors",
    "threads",
    "forks",
    "files",
    "wording",
    "installed",
    "formats",
    # The record, and what makes and runs kernels that write it.
    "record",
    "native",
    "driver",
    "ptx",
    "weave",
    "sass",
    "auto",
    "simulate",
    "options",
    "launch",
    "session",
    "frontends",
    # From raw records to results. These rooms run on any machine, without a GPU, torch or triton. `calibrate` stands
    # here because it decodes what its own kernels record.
    "trace",
    "decode",
    "calibrate",
    "analyse",
    "engines",
    "export",
    "view",
    # What users import. `profiling` is right of the views because notebooks show a profile.
    "profiling",
    "triton",
    "cuda",
    "cute",
    "tilelang",
    "cutile",
    # What is built on profiles.
    "bench",
    "samples",
    "runner",
    "compat",
    "agents",
    "commands",
    "pytest_plugin",
    # The public names come last: they are loaded from the rooms when they are first used.
    "__init__",
    "__main__",
)

_TRACE = "Trace.stats, select, save, export, report, plot, ...: methods that users expect on a trace"
_FORMAT = "the list of formats names the function that writes each; it is imported when it is used"
AGAINST_LAYERS = {
    ("warplens.trace.model", "warplens.analyse.findings"): _TRACE,
    ("warplens.trace.model", "warplens.analyse.known_facts"): _TRACE,
    ("warplens.trace.model", "warplens.analyse.region_counters"): _TRACE,
    ("warplens.trace.model", "warplens.analyse.sampled_stalls"): _TRACE,
    ("warplens.trace.model", "warplens.analyse.statistics"): _TRACE,
    ("warplens.trace.model", "warplens.analyse.time_shift"): _TRACE,
    ("warplens.trace.model", "warplens.export"): _TRACE,
    ("warplens.trace.model", "warplens.view.figures"): _TRACE,
    ("warplens.trace.model", "warplens.view.html"): _TRACE,
    ("warplens.trace.model", "warplens.view.notebook"): _TRACE,
    **{("warplens.formats", one.writer.partition(":")[0]): _FORMAT for one in FORMATS.values()},
}

_RESULTS = "Results.save, to_csv, to_markdown and plot: methods that users expect on benchmark results"
INSIDE_A_ROOM = {
    ("warplens.trace.model", "warplens.trace.io"): _TRACE,
    ("warplens.trace.model", "warplens.trace.select"): _TRACE,
    ("warplens.bench.results", "warplens.bench.result_files"): _RESULTS,
    ("warplens.bench.results", "warplens.bench.result_tables"): _RESULTS,
    ("warplens.bench.results", "warplens.bench.result_plots"): _RESULTS,
    ("warplens.bench.benchmark_decorator", "warplens.bench.benchmark_job"): "Benchmark.run, a method that users expect",
}
"""Cycles between modules of one room. Imports for type checkers are allowed there: they say that two classes know each
other."""


def against_layers(sources: Mapping[str, str]) -> set[tuple[str, str]]:
    known = frozenset(sources)
    place = {room: at for at, room in enumerate(LAYERS)}
    return {
        (module, other)
        for module, source in sources.items()
        for other in imports(source, known)
        if place[room_of(other)] > place[room_of(module)]
    }


def cycle(sources: Mapping[str, str], excepted: Iterable[tuple[str, str]] = ()) -> list[str]:
    """Modules that import each other, each imported by the one after it; empty if there are none."""
    known, leave_out = frozenset(sources), set(excepted)
    graph = {
        module: {
            other
            for other in [
                *imports(source, known, types=False),
                *(name for name in imports(source, known) if room_of(name) != room_of(module)),
            ]
            if other != module and (module, other) not in leave_out
        }
        for module, source in sources.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_every_room_has_a_layer() -> None:
    assert {room_of(module) for module in modules()} == set(LAYERS)


def test_imports_follow_the_layers() -> None:
    found = against_layers(modules())
    wrong = [f"{module} imports {other}, which is to its right" for module, other in found - set(AGAINST_LAYERS)]
    assert sorted(wrong) == []
    assert set(AGAINST_LAYERS) - found == set(), "these exceptions are not needed any more"


def test_no_two_modules_import_each_other() -> None:
    excepted = {**AGAINST_LAYERS, **INSIDE_A_ROOM}
    assert cycle(modules(), excepted) == []
    for edge in INSIDE_A_ROOM:
        assert cycle(modules(), set(excepted) - {edge}), f"the exception {edge} is not needed any more"


@pytest.mark.parametrize(
    "source",
    [
        "from warplens.analyse.waits import WAITS",
        "from warplens.analyse import waits",
        "import warplens.analyse.waits",
        "def f():\n    from warplens.analyse import waits",
        "if TYPE_CHECKING:\n    from warplens.analyse.waits import Waits",
        'WRITER = "warplens.analyse.waits:write"',
    ],
)
def test_an_import_against_the_layers_is_found(source: str) -> None:
    sources = {"warplens.decode": source, "warplens.analyse": "", "warplens.analyse.waits": ""}
    assert against_layers(sources) == {("warplens.decode", "warplens.analyse.waits")}
    turned = {"warplens.view": source, "warplens.analyse": "", "warplens.analyse.waits": "from warplens import errors"}
    assert against_layers(turned) == set()


def test_a_cycle_inside_a_room_is_found() -> None:
    lazy = {"warplens.ptx.a": "from warplens.ptx import b", "warplens.ptx.b": "def f():\n    import warplens.ptx.a"}
    assert set(cycle(lazy)) == set(lazy)
    assert cycle(lazy, [("warplens.ptx.b", "warplens.ptx.a")]) == []
    typed = {**lazy, "warplens.ptx.b": "if TYPE_CHECKING:\n    import warplens.ptx.a"}
    assert cycle(typed) == []
