"""A CUDA driver whose kernels are PTX, run by the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import pytest

import warplens.cuda
from tests.support.contexts import Contexts
from warplens import simulate
from warplens.driver import libcuda
from warplens.frontends.cuda import module
from warplens.record.capture import Device

Driver = TypeVar("Driver")


def in_place(monkeypatch: pytest.MonkeyPatch, driver: Driver) -> Driver:
    """Let profiles and the modules of `warplens.cuda` find this driver."""
    for place in (module, warplens.cuda, libcuda):
        monkeypatch.setattr(place, "driver", lambda: driver)
    return driver


class SimulatedDriver(Contexts):
    """A driver whose kernels are PTX, run by the interpreter."""

    def __init__(self) -> None:
        self.space = simulate.GlobalMemory(64 << 20)
        self.images: list[str] = []
        self.homes: list[int] = []
        """The context that each image was loaded into."""
        self.unloaded: list[int] = []
        self.waited: list[int] = []
        self.functions: list[tuple[str, str]] = []
        self.launched: list[str] = []

    def device(self) -> Device:
        return Device(name="interpreter", index=self.device_index(), sm_count=4, capability="9.0")

    def download_rows(self, address: int, pitch: int, width: int, rows: int, out_pitch: int) -> np.ndarray:
        assert width == out_pitch
        return np.concatenate([self.space.read(address + row * pitch, np.uint8, width) for row in range(rows)])

    def synchronize(self) -> None:
        """Every launch has ended when it returns."""
        self.waited.append(self.context())

    def wait(self, event: int) -> None:
        self.waited.append(self.context())

    def load(self, image: bytes) -> int:
        self.images.append(image.rstrip(b"\0").decode())
        self.homes.append(self.current)
        return len(self.images) - 1

    def unload(self, module: int) -> None:
        self.unloaded.append(module)

    def function(self, module: int, name: str) -> int:
        assert self.homes[module] == self.current, "a module belongs to the context it was loaded into"
        self.functions.append((self.images[module], name))
        return len(self.functions) - 1

    def resources(self, function: int) -> dict[str, int]:
        return {"registers": 32, "shared_bytes": 0, "local_bytes": 0}

    def parameter_sizes(self, function: int) -> list[int]:
        return [8, 4, 8]

    def launch(
        self, function: int, grid: Any, block: Any, arguments: Sequence[bytes], shared: int, stream: int
    ) -> None:
        values = [int.from_bytes(a, "little") for a in arguments]

        def run(function: int) -> None:
            text, name = self.functions[function]
            self.launched.append(text)
            simulate.run(text, name, grid, block, values, memory=self.space)

        self.graphs.run(stream, function, run)
