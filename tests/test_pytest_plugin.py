"""The pytest plugin, run on small test files of its own."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest

# Loaded here once: pytester forgets what an inner run imports, and numpy cannot be loaded twice.
import warplens.analyse.statistics
import warplens.decode
import warplens.pytest_plugin  # noqa: F401
from tests.support.builders import Span, make_trace

pytest_plugins = "pytester"


@pytest.fixture(autouse=True, scope="module")
def _everything_loaded() -> None:
    """The same for what the first statistics load, which takes a second each time."""
    make_trace([Span("x", 0, 10)]).stats()


HELPER = """
    from warplens.record.capture import Launch
    from warplens.record.layout import Kind
    from warplens.record.track_writer import TrackWriter
    from warplens.session import active


    class Finished:
        def __init__(self, load):
            track = TrackWriter(64, block=0, warp=0, sm=0)
            track.start(1000, 1_000_000)
            clock = 1000
            for _ in range(10):
                track.record(Kind.BEGIN, 1, clock)
                track.record(Kind.END, 1, clock + load)
                clock += load + 10
            track.exit(clock, 1_000_000 + clock - 1000)
            self.launch = Launch("kernel", (1, 1, 1), (32, 1, 1), {1: "load"}, 64, track.to_bytes())

        def collect(self):
            return self.launch


    def launch(load):
        active().add(Finished(load))
"""


def run(pytester: pytest.Pytester, source: str, *, gpu: str = "optional") -> pytest.RunResult:
    pytester.makepyfile(helper=HELPER)
    pytester.makepyfile(test_it=f"import pytest\nfrom helper import launch\n{source}")
    pytester.makeini(f"[pytest]\nwarplens_gpu = {gpu}\n")
    # Installed, the plugin loads itself; from a source tree it has to be named.
    installed = any(entry.value == "warplens.pytest_plugin" for entry in entry_points(group="pytest11"))
    return pytester.runpytest(*([] if installed else ["-p", "warplens.pytest_plugin"]), "--strict-markers")


def test_a_marked_test_is_profiled_and_held_to_its_budget(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
@pytest.mark.warplens(max={"load.p95_cycles": 900, "kernel.time_ns": 20_000}, min={"load.count": 10})
def test_fast():
    launch(800)

@pytest.mark.warplens(max={"load.p95_cycles": 900})
def test_slow():
    launch(1000)
""",
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*warplens: load.p95_cycles is 1,000 (allowed: at most 900)",
            "*warplens budgets*",
            "pass test_it.py::test_fast: load.p95_cycles is 800 (allowed: at most 900)",
            "pass test_it.py::test_fast: load.count is 10 (allowed: at least 10)",
            "FAIL test_it.py::test_slow: load.p95_cycles is 1,000 (allowed: at most 900)",
        ]
    )


def test_the_fixture_profiles_parts_of_a_test(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
def test_parts(warplens):
    with warplens.profile() as p:
        launch(500)
    assert p.trace.stats()["load"].p50 == 500
    warplens.check(p.trace, max={"load.p50": 600})

@pytest.mark.warplens(max={"load.p50": 600})
def test_marker_and_fixture(warplens):
    with warplens.profile():
        launch(700)

@pytest.mark.warplens(max={"load.p50": 600})
def test_forgot(warplens):
    pass
""",
    )
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["*load.p50 is 700 (allowed: at most 600)", "*the test profiled nothing"])


@pytest.mark.parametrize(
    ("budget", "words"),
    [("laod.p50", "*did you mean 'load'*"), ("load.p51", "*no metric 'p51'*"), ("load", "*REGION.METRIC*")],
)
def test_a_budget_for_nothing_is_an_error(pytester: pytest.Pytester, budget: str, words: str) -> None:
    result = run(pytester, f"@pytest.mark.warplens(max={{{budget!r}: 1}})\ndef test_x():\n    launch(5)\n")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([words])


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ('{"load.p50": "x"}', "warplens: budget 'load.p50': the limit 'x' is not a number"),
        ('{"load.p50": "900"}', "warplens: budget 'load.p50': the limit '900' is not a number"),
        ('{"load.p50": float("nan")}', "warplens: budget 'load.p50': the limit nan is not a number"),
        ('{"load.p50": [1]}', "warplens: budget 'load.p50': the limit [[]1] is not a number"),
        ("900", "warplens: max=900: expected limits by REGION.METRIC, such as {'load.p95_cycles': 900}"),
        ("{5: 1}", "warplens: budget 5: expected REGION.METRIC, for example load.p95_cycles"),
        ('{"load.p51": 1}', "warplens: *no metric 'p51'*"),
    ],
)
def test_a_wrong_budget_is_one_line_without_a_traceback(pytester: pytest.Pytester, limits: str, words: str) -> None:
    result = run(
        pytester,
        f"""
@pytest.mark.warplens(max={limits})
def test_marker():
    launch(5)

def test_fixture(warplens):
    with warplens.profile() as p:
        launch(5)
    warplens.check(p.trace, max={limits})
""",
    )
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*test_marker*", words, "*test_fixture*", words])
    result.stdout.no_fnmatch_line("*pytest_plugin.py*")
    result.stdout.no_fnmatch_line("*Error*")


def test_a_failing_test_fails_with_its_own_error(pytester: pytest.Pytester) -> None:
    result = run(
        pytester, '@pytest.mark.warplens(max={"load.p50": 1})\ndef test_x():\n    launch(5)\n    assert 1 == 2\n'
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*assert 1 == 2*"])
    result.stdout.no_fnmatch_line("*allowed: at most 1)*")


def test_without_a_gpu_tests_are_skipped_with_the_reason(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warplens.pytest_plugin.gpu_missing", lambda: "no NVIDIA driver here")
    result = run(
        pytester,
        """
def test_a(warplens):
    pass

@pytest.mark.warplens(max={})
def test_b():
    pass

def test_c():
    pass
""",
        gpu="required",
    )
    result.assert_outcomes(passed=1, skipped=2)


def test_findings_can_fail_a_test_and_hint_at_the_cause(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
@pytest.mark.warplens(no_findings=True)
def test_any():
    launch(800)

@pytest.mark.warplens(no_findings=["bank conflicts"])
def test_other_kinds_are_allowed():
    launch(800)

@pytest.mark.warplens(max={"load.p50": 600})
def test_hint():
    launch(800)
""",
    )
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["warplens: launch ramp: saves *", "first finding: launch ramp: saves *"])
