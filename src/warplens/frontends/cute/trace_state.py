"""What the kernel under trace has recorded so far: its names, its newest record, its end."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any

from warplens.errors import UsageError, did_you_mean
from warplens.frontends.cute import record_ptx
from warplens.frontends.cute.asm import call_site, emit, enclosing, last_operation
from warplens.record.name_table import KERNEL_MAGIC, name_object, region_id

_BARRIERS = ("nvvm.barrier", "nvvm.barrier0", "nvvm.cluster.wait", "nvvm.barrier.sync", "gpu.barrier")


@dataclass
class Recording:
    """What a kernel under trace has marked so far."""

    operation: Any
    name: str
    where: tuple[str, int]
    enabled: bool
    full: str = "stop"
    leader: record_ptx.Leader = record_ptx.LANE0
    operands: tuple[Any, Any] = (None, None)
    sized: bool = True
    names: dict[int, tuple[str, str, int]] = field(default_factory=dict)
    begun: dict[str, str] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    closed: bool = False
    newest: tuple[Any, list[int]] | None = None
    """The operation of the newest record, and the words of all that share its clock read."""

    def record(self, word: int) -> None:
        """Leave a record here. One right after another shares its clock read: nothing lies between them."""
        block = enclosing()[1]
        before, words = last_operation(block), [word]
        if self.newest is not None and before is not None and self.newest[0] == before:
            words = [*self.newest[1], word]
            self.newest[0].erase()
        emit(record_ptx.records(words, self.full))
        self.newest = last_operation(block), words

    def region(self, name: str, *, begins: bool = False, ends: bool = False, flies: bool = False) -> int:
        """The id of `name`, noting where it is marked."""
        frame = call_site()
        file, line = (frame.f_code.co_filename, frame.f_lineno) if frame else ("", 0)
        ident = region_id(name)
        known = self.names.setdefault(ident, (name, file, line))[0]
        if known != name:
            raise UsageError(f"regions {known!r} and {name!r} have the same id {ident}; rename one of them")
        shown = f"async {name!r}" if flies else repr(name)
        if begins:
            self.begun.setdefault(shown, f"{file}:{line}")
        if ends:
            self.ended.setdefault(shown, f"{file}:{line}")
        return ident

    def close(self) -> None:
        """Write the warp's exit here; the end of the kernel does it unless it is done before."""
        if self.closed or not self.enabled:
            return
        self.closed = True
        for name, where in self.begun.items():
            if name not in self.ended:
                raise UsageError(f"{where}: {name} begins but never ends in kernel {self.name!r}; add its end")
        for name, where in self.ended.items():
            if name not in self.begun:
                raise UsageError(
                    f"{where}: {name} ends but never begins in kernel {self.name!r}"
                    + did_you_mean(name.strip("'"), [other.strip("'") for other in self.begun])
                )
        table = name_object(self.name, *self.where, magic=KERNEL_MAGIC)
        table += b"".join(name_object(*entry) for entry in self.names.values())
        symbol = f"wl_names_{zlib.crc32(str(self.operation.operation.attributes['sym_name']).encode()):08x}"
        settle(enclosing()[1])
        emit(record_ptx.epilogue(self.leader, self.full, table, symbol, sized=self.sized), self.operands, "l,l")

    def __enter__(self) -> None:
        """`with wlc.kernel(prof):` ends the recording with its block."""

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()


def settle(block: Any) -> None:
    """Hold the clock read that follows at a block barrier right before it."""
    before = last_operation(block)
    if before is not None and before.name in _BARRIERS:
        emit(record_ptx.SETTLE)
