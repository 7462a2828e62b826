"""The kernel argument that carries the records: made on the host, filled anew for each launch of a profile."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakValueDictionary

from cutlass._mlir import ir

from warplens import session
from warplens.driver.kernel_arguments import dim3, stream_handle
from warplens.driver.libcuda import driver
from warplens.errors import UsageError
from warplens.frontends.cuda.module import wanted_by
from warplens.frontends.cute.launch_memory import CuteBuffer, check_tensor, plan_for
from warplens.record.capture import Dim3
from warplens.sass.machine_code import MachineCode

live: WeakValueDictionary[int, Buffer] = WeakValueDictionary()
"""Buffers by the address that the DSL reads their argument from."""


class Buffer:
    """An argument for `wlc.kernel`. It costs nothing by itself: each launch in a profile gets memory of its own."""

    def __init__(
        self,
        grid: int | Sequence[int] | None = None,
        block: int | Sequence[int] | None = None,
        *,
        records_per_warp: int | None = None,
        kernel: str = "",
        tensor: Any = None,
        stream: Any = None,
    ) -> None:
        if (grid is None) != (block is None):
            raise UsageError("wlc.buffer: give grid and block together, or neither")
        if records_per_warp is not None and records_per_warp < 0:
            raise UsageError(f"records_per_warp={records_per_warp}: must not be negative")
        self.shape: tuple[Dim3, Dim3] | None = None
        if grid is not None and block is not None:
            self.shape = dim3(grid, "grid"), dim3(block, "block")
        self.records_per_warp, self.kernel, self.tensor, self._stream = records_per_warp, kernel, tensor, stream
        self._cells = (ctypes.c_uint64 * 2)()
        self._last: CuteBuffer | None = None
        if tensor is not None:
            check_tensor(tensor, self.shape, records_per_warp)
        live[ctypes.addressof(self._cells)] = self

    def __str__(self) -> str:
        # The DSL names kernels after their arguments.
        return "wlbuffer"

    def open(self, code: Callable[[], MachineCode] | None = None) -> tuple[int, int]:
        """Memory for the launch that comes next, as the address and the sizes a kernel takes; 0 outside a profile."""
        running = wanted_by(self.kernel or "kernel", "CuTe kernels")
        if running is None:
            return 0, 0
        own = driver().stream() if self._stream is None else None
        handle = own if own is not None else stream_handle(self._stream)
        if self._last is not None:
            # One tensor for many launches: what the last one left is brought home before it is cleared.
            self._last.keep()
        running.run.other_device(driver().device_index(), driver().device)
        wish = self.records_per_warp if self.records_per_warp is not None else running.options.records_per_warp
        plan = plan_for(self.shape, wish, running.options.full, self.tensor)
        made = CuteBuffer(driver(), self.kernel or "kernel", self.shape, plan, running, handle, self.tensor)
        made.find_code = code
        running.add(made)
        if self.tensor is not None:
            self._last = made
        if own is not None:
            driver().synchronize_stream(own)
            driver().destroy_stream(own)
        return made.address, plan.capacity | plan.tracks << 32

    def address(self) -> int:
        """For one launch that the DSL does not make (an exported function, TVM-FFI): pass it as an Int64."""
        return self.open()[0]

    def fill(self, code: Callable[[], MachineCode] | None = None) -> None:
        """Called right before a launch that takes this argument; `code` finds the machine code that it runs."""
        self._cells[0], self._cells[1] = self.open(code) if session.active() is not None else (0, 0)

    # What the DSL asks of a host argument.

    def __c_pointers__(self) -> list[int]:
        at = ctypes.addressof(self._cells)
        return [at, at + 8]

    def __get_mlir_types__(self) -> list[Any]:
        return [ir.IntegerType.get_signless(64)] * 2

    def __new_from_mlir_values__(self, values: list[Any]) -> Argument:
        return Argument(self, values)


class Argument(Buffer):
    """A `Buffer` as the traced code sees it: the same to annotations, but two values instead of memory."""

    def __init__(self, host: Buffer, values: Sequence[Any]) -> None:
        self.host, self.values = host, list(values)

    def __extract_mlir_values__(self) -> list[Any]:
        return self.values

    def __new_from_mlir_values__(self, values: list[Any]) -> Argument:
        return Argument(self.host, values)
