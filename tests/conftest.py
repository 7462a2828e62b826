"""Configure pytest and hypothesis for every test."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from types import FunctionType

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("tests.support")

# Disassembling each kernel that a test profiles would take minutes; tests of that switch it on.
os.environ.setdefault("WARPLENS_VERIFY", "0")

# A shell that starts the suite in the background has it ignore Ctrl-C, which the programs of tests would inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine makes any example slow, which says nothing about it: only what an example finds may fail a test.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
# The same examples at every run, so that a change fails by what it changes; `explore` looks for new ones.
settings.register_profile("suite", UNHURRIED, derandomize=True, database=None)
settings.register_profile("explore", UNHURRIED, derandomize=False, max_examples=2000)
settings.load_profile("suite")


@pytest.fixture(scope="module", autouse=True)
def _import_path() -> Iterator[None]:
    """A benchmark file puts its folder in front of the import path, as a script does: not for the tests that follow."""
    before = list(sys.path)
    yield
    sys.path[:] = before


@pytest.fixture(scope="module", autouse=True)
def _code_of_warplens() -> Iterator[None]:
    """Whoever replaces a function of warplens puts it back: any test may come next in the same process."""
    before = {
        (module, name): value
        for module, loaded in list(sys.modules.items())
        if module.startswith("warplens")
        for name, value in list(vars(loaded).items())
        if isinstance(value, FunctionType | type)
    }
    yield
    replaced = [
        f"{module}.{name}"
        for (module, name), value in before.items()
        if module in sys.modules and vars(sys.modules[module]).get(name, value) is not value
    ]
    assert replaced == []
