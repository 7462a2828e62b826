"""A driver whose kernels run in the interpreter, and whose events tell the time that they take there."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.support.simulated_driver import SimulatedDriver
from warplens import simulate
from warplens.launch.launch_timer import METER_NS
from warplens.launch.timing import BUSY_NS
from warplens.ptx.tree import parse

_SHORT_METER_NS = 320
"""The interpreter needs seconds for what the kernels that keep a GPU busy take there."""


class TimedDriver(SimulatedDriver):
    """`noise` gives each launch some ns more."""

    def __init__(self, noise: Callable[[], float] = lambda: 0.0) -> None:
        super().__init__()
        self.noise = noise
        self.now_ns = 0.0
        self.times: dict[int, float] = {}
        self.handles = itertools.count(1)
        self.ran: list[tuple[str, int]] = []
        """The kernel and the last argument of each launch."""
        self._sizes: dict[int, list[int]] = {}

    def load(self, image: bytes) -> int:
        for long in (METER_NS, BUSY_NS):
            image = image.replace(str(long).encode(), str(_SHORT_METER_NS).encode())
        return super().load(image)

    def function(self, module: int, name: str) -> int:
        handle = super().function(module, name)
        entry = next(one for one in parse(self.images[module]).entries if one.name == name)
        self._sizes[handle] = [param.size for param in entry.params]
        return handle

    def parameter_sizes(self, function: int) -> list[int]:
        return self._sizes[function]

    def launch(
        self, function: int, grid: Any, block: Any, arguments: Sequence[bytes], shared: int, stream: int
    ) -> None:
        values = [int.from_bytes(one, "little") for one in arguments]
        text, name = self.functions[function]
        self.launched.append(text)
        self.ran.append((name, values[-1] if values else 0))
        result = simulate.run(text, name, grid, block, values, memory=self.space, shared=shared)
        self.now_ns += result.end_ns - result.start_ns + self.noise()

    def event(self, stream: int) -> int:
        handle = next(self.handles)
        self.times[handle] = self.now_ns
        return handle

    def reached(self, event: int) -> bool:
        return False

    def elapsed_ns(self, first: int, second: int) -> float:
        return self.times[second] - self.times[first]

    def download(self, address: int, size: int) -> bytes:
        return bytes(self.space.read(address, np.uint8, size).tobytes())

    def synchronize_stream(self, stream: int) -> None: ...
