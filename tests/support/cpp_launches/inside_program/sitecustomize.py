"""Imported by the Python inside a compiled program: connects the program's driver with the interpreter."""

import os
import sys

if os.path.basename(os.readlink("/proc/self/exe")) == "program":
    import pytest

    from tests.support.cpp_launches.scenarios import Machine
    from tests.support.fake_driver import fake_driver

    sys.warplens_test_machine = Machine(fake_driver(pytest.MonkeyPatch()), None)  # kept for as long as the program runs
