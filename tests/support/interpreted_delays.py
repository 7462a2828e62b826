"""The kernels of benchmarks/kernels/known_delays.cu on a driver whose kernels run in the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import warplens.cuda as wlcu
from tests.support.known_delays import KNOWN, SOURCE
from tests.support.simulated_driver import in_place
from tests.support.timed_driver import TimedDriver
from warplens.frontends.cuda import module as module_file
from warplens.ptx.tree import parse

STEPS = 4
SLOTS = 256
"""Records per warp: the interpreter has little memory."""


def timed_driver(monkeypatch: pytest.MonkeyPatch, noise: Callable[[], float] = lambda: 0.0) -> TimedDriver:
    """The driver in place of the real one; plain kernels are PTX too."""
    gpu = in_place(monkeypatch, TimedDriver(noise))

    def compile_plain(*arguments: Any) -> bytes:
        return module_file.compile_ptx(*arguments).encode()

    monkeypatch.setattr(module_file, "compile_cubin", compile_plain)
    monkeypatch.setattr(module_file, "kernel_names", lambda code: [one.name for one in parse(code.decode()).entries])
    return gpu


def runner(gpu: TimedDriver, name: str, blocks: int = 2, source: Any = SOURCE) -> Callable[[], np.ndarray]:
    """A function that launches a known case and returns what it computed."""
    case = KNOWN[name]
    module = wlcu.compile(source, arch="sm_90a", name="known_delays.cu") if source is not SOURCE else _module()
    count = blocks * case["block"]
    out = gpu.allocate(4 * count)
    arguments = [np.int32(STEPS), *(np.int32(value) for value in case["arguments"][1:])]

    def run() -> np.ndarray:
        gpu.space.write(out, np.full(count, 0.5, np.float32))
        module[case["kernel"]].launch(blocks, case["block"], np.uint64(out), *arguments)
        return gpu.space.read(out, np.float32, count)

    return run


def _module() -> Any:
    return wlcu.compile(SOURCE, arch="sm_90a")
