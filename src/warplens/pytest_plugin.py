"""pytest plugin: profile the kernels that a test launches and check their regions against budgets.

@pytest.mark.warplens(max={"load.p95_cycles": 900, "kernel.time_ns": 2e6})
def test_gemm():                    # profiles the whole test
    gemm[grid](...)

def test_parts(warplens):           # or profile parts of it
    with warplens.profile() as p:
        gemm[grid](...)
    warplens.check(p.trace, max={"mma.p50": 400})
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from warplens.analyse.finding import Finding
    from warplens.profiling.profile import Profile
    from warplens.trace.model import Trace

_MARKER = (
    "warplens(max={'region.metric': limit}, min={...}, no_findings=True or [kinds], **options): profile the test and "
    "check budgets and findings"
)
_PROPERTY = "warplens"
_CHECKED = ("max", "min", "no_findings")


@dataclass(frozen=True)
class BudgetCheck:
    """One budget and the measured value; `upper` says whether the limit is a maximum."""

    budget: str
    limit: float
    value: float
    upper: bool

    @property
    def passed(self) -> bool:
        return self.value <= self.limit if self.upper else self.value >= self.limit

    @property
    def text(self) -> str:
        bound = "at most" if self.upper else "at least"
        return f"{self.budget} is {self.value:,.6g} (allowed: {bound} {self.limit:,.6g})"


class ProfilerFixture:
    """The value of the `warplens` fixture: profiles parts of a test and checks their traces."""

    def __init__(self, item: pytest.Item) -> None:
        self._item = item
        self.traces: list[Trace] = []

    @contextmanager
    def profile(self, *args: Any, **options: Any) -> Iterator[Profile]:
        """Profile like `wl.profile(...)`; the marker's budgets are checked on this trace as well."""
        from warplens.profiling.profile import Profile

        profile = Profile(*args, **options)
        with profile:
            yield profile
        self.traces.append(profile.trace)

    def check(
        self,
        trace: Trace,
        *,
        max: Mapping[str, float] | None = None,
        min: Mapping[str, float] | None = None,
        no_findings: bool | Sequence[str] = False,
    ) -> tuple[BudgetCheck, ...]:
        """Check a trace against budgets; fail the test with all that are exceeded, and with the first finding.

        `no_findings` also fails it if `warplens findings` has something to fix: anything, or only these kinds.
        """
        with _usage_errors():
            checks = check_budgets(trace, max or {}, min or {})
        self._item.user_properties.append((_PROPERTY, [(one.text, one.passed) for one in checks]))
        failed = [one.text for one in checks if not one.passed]
        hint = ""
        if failed or no_findings:
            found = trace.findings().problems
            wanted = found if isinstance(no_findings, bool) else [one for one in found if one.kind in no_findings]
            failed += [finding_line(one) for one in wanted] if no_findings else []
            hint = f"\nfirst finding: {finding_line(found[0])}" if found and not no_findings else ""
        if failed:
            pytest.fail("warplens: " + "; ".join(failed) + hint, pytrace=False)
        return checks


def finding_line(one: Finding) -> str:
    """A finding in one line, as the terminal shows it."""
    from warplens.analyse.finding_text import gain_text

    return f"{one.kind}: {gain_text(one)}: {one.what}"


def check_budgets(trace: Trace, upper: Mapping[str, float], lower: Mapping[str, float]) -> tuple[BudgetCheck, ...]:
    """Measure each budget: a metric of a region, or `kernel.time_ns`, the time of the longest launch."""
    return tuple(
        BudgetCheck(name, limit, _value(trace, name), is_upper)
        for limits, is_upper in ((_numbers("max", upper), True), (_numbers("min", lower), False))
        for name, limit in limits.items()
    )


def _numbers(which: str, limits: Mapping[str, float]) -> dict[str, float]:
    """The limits as numbers; anything else is refused, also a text such as "900"."""
    from warplens.errors import UsageError

    if not isinstance(limits, Mapping):
        raise UsageError(f"{which}={limits!r}: expected limits by REGION.METRIC, such as {{'load.p95_cycles': 900}}")
    found = {}
    for budget, limit in limits.items():
        try:
            found[budget] = math.nan if isinstance(limit, str) else float(limit)
        except (TypeError, ValueError, OverflowError):
            found[budget] = math.nan
        if math.isnan(found[budget]):
            raise UsageError(f"budget {budget!r}: the limit {limit!r} is not a number")
    return found


@contextmanager
def _usage_errors() -> Iterator[None]:
    """Fail the test with the one line of a wrong budget; the frames of the plugin say nothing more."""
    from warplens.errors import UsageError

    try:
        yield
    except UsageError as error:
        pytest.fail(f"warplens: {error}", pytrace=False)


def _value(trace: Trace, budget: str) -> float:
    from warplens.errors import UsageError

    region, dot, metric = budget.rpartition(".") if isinstance(budget, str) else ("", "", "")
    if not dot:
        raise UsageError(f"budget {budget!r}: expected REGION.METRIC, for example load.p95_cycles")
    if region == "kernel" and metric == "time_ns" and "kernel" not in trace.regions:
        return float(max((info.end_ns - info.begin_ns for info in trace.meta.launches), default=0))
    return float(trace.stats(merge_variants=True)[region][metric])


def gpu_missing() -> str:
    """Return why no GPU is available, or an empty string."""
    from warplens.driver.gpu_names import gpu_names

    names = gpu_names()
    if names is None:
        return "no NVIDIA driver (libcuda.so.1) was found"
    return "" if names else "the NVIDIA driver found no GPU"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        "warplens_gpu", "`required` skips profiled tests if there is no GPU, `optional` runs them", default="required"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)


@pytest.fixture
def warplens(request: pytest.FixtureRequest) -> ProfilerFixture:
    """Profile parts of this test: `with warplens.profile() as p:`. Skips the test if there is no GPU."""
    _skip_without_gpu(request.config)
    return ProfilerFixture(request.node)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("warplens"):
        _skip_without_gpu(item.config)


def _skip_without_gpu(config: pytest.Config) -> None:
    reason = gpu_missing() if config.getini("warplens_gpu") != "optional" else ""
    if reason:
        pytest.skip(f"warplens needs a GPU: {reason}")


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    marker = pyfuncitem.get_closest_marker("warplens")
    recorder = pyfuncitem.funcargs.get("warplens")
    if marker is None:
        return (yield)
    with _usage_errors():  # before the test runs, as its kernels may take long
        for which in ("max", "min"):
            _numbers(which, marker.kwargs.get(which) or {})
    options = {name: value for name, value in marker.kwargs.items() if name not in _CHECKED}
    if isinstance(recorder, ProfilerFixture):
        result = yield
    else:
        recorder = ProfilerFixture(pyfuncitem)
        with recorder.profile(*marker.args, **options):
            result = yield
    if not recorder.traces:
        pytest.fail("warplens: the marker has budgets, but the test profiled nothing", pytrace=False)
    for trace in recorder.traces:
        recorder.check(trace, **{name: marker.kwargs[name] for name in _CHECKED if name in marker.kwargs})
    return result


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """List every budget with its value, including those from pytest-xdist workers."""
    lines = []
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") != "call":
                continue
            for name, checks in getattr(report, "user_properties", ()):
                if name == _PROPERTY:
                    lines += [(report.nodeid, text, passed) for text, passed in checks]
    if lines:
        terminalreporter.section("warplens budgets")
        for test, text, passed in lines:
            terminalreporter.line(f"{'pass' if passed else 'FAIL'} {test}: {text}", green=passed, red=not passed)
