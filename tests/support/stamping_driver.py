"""A driver whose stamp kernels write a clock of the host, and whose launches of a kernel end at once."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from typing import Any

from tests.support.hanging_kernel import HangingDriver


class StampingDriver(HangingDriver):
    """The device's clock is `time.monotonic_ns()` and an offset; a device that is `stuck` runs nothing."""

    def __init__(self, offset_ns: int = 0, *, stuck: bool = False) -> None:
        super().__init__()
        self.offset_ns, self.stuck = offset_ns, stuck
        self.released.set()
        self.stamped: list[int] = []
        """The stream of each stamp."""

    def load(self, image: bytes) -> int:
        return 1

    def function(self, module: int, name: str) -> int:
        return 2

    def launch(
        self, function: int, grid: Any, block: Any, arguments: Sequence[bytes], shared: int, stream: int
    ) -> None:
        if not self.stuck:
            self.stamped.append(stream)
            address = int.from_bytes(arguments[0], "little")
            ctypes.c_uint64.from_address(address).value = time.monotonic_ns() + self.offset_ns
