"""pytest plugin: profile what a test launches and hold its regions to budgets.

@pytest.mark.warplens(max={"load.p95_cycles": 900, "kernel.time_ns": 2e6})
def test_gemm():                    # profiled as a whole
    gemm[grid](...)

def test_parts(warplens):           # or profile some of it
    with warplens.profile() as p:
        gemm[grid](...)
    warplens.check(p.trace, max={"mma.p50": 400})
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from warplens.profiling.profile import Profile
    from warplens.trace.model import Trace

_MARKER = "warplens(max={'region.metric': limit}, min={...}, **options): profile the test and hold regions to budgets"
_PROPERTY = "warplens"


@dataclass(frozen=True)
class Held:
    """One budget and what was measured."""

    budget: str
    limit: float
    value: float
    most: bool

    @property
    def good(self) -> bool:
        return self.value <= self.limit if self.most else self.value >= self.limit

    @property
    def text(self) -> str:
        bound = "at most" if self.most else "at least"
        return f"{self.budget} is {self.value:,.6g}, {bound} {self.limit:,.6g} allowed"


class Recorder:
    """What the `warplens` fixture gives: profiles of this test, and checks on their traces."""

    def __init__(self, item: pytest.Item) -> None:
        self._item = item
        self.traces: list[Trace] = []

    @contextmanager
    def profile(self, *args: Any, **options: Any) -> Iterator[Profile]:
        """`wl.profile(...)`, whose trace the marker's budgets are held to as well."""
        from warplens.profiling.profile import Profile

        profile = Profile(*args, **options)
        with profile:
            yield profile
        self.traces.append(profile.trace)

    def check(
        self, trace: Trace, *, max: Mapping[str, float] | None = None, min: Mapping[str, float] | None = None
    ) -> tuple[Held, ...]:
        """Hold a trace to budgets; fails the test with every budget that does not hold."""
        held = measure(trace, max or {}, min or {})
        self._item.user_properties.append((_PROPERTY, [(one.text, one.good) for one in held]))
        bad = [one.text for one in held if not one.good]
        if bad:
            pytest.fail("warplens: " + "; ".join(bad), pytrace=False)
        return held


def measure(trace: Trace, most: Mapping[str, float], least: Mapping[str, float]) -> tuple[Held, ...]:
    """Each budget with its value: a metric of a region, or the kernel's time (`kernel.time_ns`, the longest launch)."""
    return tuple(
        Held(name, float(limit), _value(trace, name), upper)
        for limits, upper in ((most, True), (least, False))
        for name, limit in limits.items()
    )


def _value(trace: Trace, budget: str) -> float:
    from warplens.errors import UsageError

    region, dot, metric = budget.rpartition(".")
    if not dot:
        raise UsageError(f"budget {budget!r}: expected REGION.METRIC, for example load.p95_cycles")
    if region == "kernel" and metric == "time_ns" and "kernel" not in trace.regions:
        return float(max((info.end_ns - info.begin_ns for info in trace.meta.launches), default=0))
    return float(trace.stats()[region][metric])


def gpu_missing() -> str:
    """Why there is no GPU to profile on, or nothing."""
    from warplens.driver.libcuda import gpu_names

    names = gpu_names()
    if names is None:
        return "no NVIDIA driver here (libcuda.so.1)"
    return "" if names else "an NVIDIA driver but no GPU here"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("warplens_gpu", "`required` skips such tests without a GPU, `optional` runs them", default="required")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)


@pytest.fixture
def warplens(request: pytest.FixtureRequest) -> Recorder:
    """Profiles inside this test: `with warplens.profile() as p:`. Skipped without a GPU."""
    _skip_without_gpu(request.config)
    return Recorder(request.node)


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
    options = {name: value for name, value in marker.kwargs.items() if name not in ("max", "min")}
    if isinstance(recorder, Recorder):
        result = yield
    else:
        recorder = Recorder(pyfuncitem)
        with recorder.profile(*marker.args, **options):
            result = yield
    if not recorder.traces:
        pytest.fail("warplens: the marker has budgets, but the test profiled nothing", pytrace=False)
    for trace in recorder.traces:
        recorder.check(trace, max=marker.kwargs.get("max"), min=marker.kwargs.get("min"))
    return result


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Every budget with its value, also from the workers of pytest-xdist."""
    lines = []
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") != "call":
                continue
            for name, held in getattr(report, "user_properties", ()):
                if name == _PROPERTY:
                    lines += [(report.nodeid, text, good) for text, good in held]
    if lines:
        terminalreporter.section("warplens budgets")
        for test, text, good in lines:
            terminalreporter.line(f"{'ok  ' if good else 'OVER'} {test}: {text}", green=good, red=not good)
