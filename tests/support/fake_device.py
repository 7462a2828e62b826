"""Imported by the programs of commands/test_run.py: a Triton driver without a GPU, for as long as the process lives."""

from __future__ import annotations

import pytest

from tests.support.fake_gpu import fake_gpu

_context = fake_gpu(pytest.MonkeyPatch())
gpu = _context.__enter__()
