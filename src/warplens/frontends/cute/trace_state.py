"""The kernel under trace: what it has marked so far, and records that it writes itself."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any

from cutlass import Int32, Int64

from warplens.errors import UsageError, did_you_mean
from warplens.frontends.cute import record_ptx
from warplens.frontends.cute.asm import call_site, emit, enclosing, last_operation
from warplens.frontends.cute.mark_arguments import check_barrier, scalar, whole_number
from warplens.record.barrier_words import MAX_BARRIER, OPERATION_SHIFT, PARITY_SHIFT, BarrierWord, Operation
from warplens.record.layout import MAX_TAG, TAG_SHIFT, Kind, ValueType, split_word0, word0
from warplens.record.name_table import KERNEL_MAGIC, name_object, region_id

_BARRIERS = ("nvvm.barrier", "nvvm.barrier0", "nvvm.cluster.wait", "nvvm.barrier.sync", "gpu.barrier")


_BEGINS, _ENDS = (Kind.BEGIN, Kind.ASYNC_BEGIN), (Kind.END, Kind.ASYNC_END)
_ASYNC = (Kind.ASYNC_BEGIN, Kind.ASYNC_END)


@dataclass
class MarkedKernel:
    """What a kernel under trace has marked so far."""

    operation: Any
    name: str
    where: tuple[str, int]
    enabled: bool
    begun: dict[str, str] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    closed: bool = False

    def note(self, kind: Kind, name: str) -> tuple[str, int]:
        """Note where a region begins or ends, and return that place."""
        frame = call_site()
        file, line = (frame.f_code.co_filename, frame.f_lineno) if frame else ("", 0)
        shown = f"async {name!r}" if kind in _ASYNC else repr(name)
        if kind in _BEGINS:
            self.begun.setdefault(shown, f"{file}:{line}")
        if kind in _ENDS:
            self.ended.setdefault(shown, f"{file}:{line}")
        return file, line

    def close(self) -> None:
        """The kernel ends here: each region must have its begin and its end."""
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


@dataclass
class Recording(MarkedKernel):
    """A kernel that writes its records itself, to the buffer that it takes as an argument."""

    full: str = "stop"
    leader: record_ptx.Leader = record_ptx.LANE0
    operands: tuple[Any, Any] = (None, None)
    sized: bool = True
    names: dict[int, tuple[str, str, int]] = field(default_factory=dict)
    newest: tuple[Any, list[int]] | None = None
    """The operation of the newest record, and the words of all that share its clock read."""

    def mark(self, kind: Kind, name: str) -> None:
        self._record(word0(kind, self._region(kind, name)))

    def tagged(self, kind: Kind, name: str, tag: Any) -> None:
        ident = self._region(kind, name)
        if isinstance(tag, int):
            self._record(word0(kind, ident, tag))
            return
        word = (tag & Int32(MAX_TAG)) << Int32(TAG_SHIFT) | Int32(word0(kind, ident))
        emit(record_ptx.records(["$0"], self.full), [word.ir_value()], "r")

    def value(self, name: str, v: Any) -> None:
        operand, constraint, kind = scalar(name, v)
        word = word0(Kind.VALUE, self._region(Kind.VALUE, name), kind)
        emit(record_ptx.value(word, kind, self.full, narrow=constraint == "r"), [operand], constraint)

    def barrier(self, operation: Operation, name: str, barrier: Any, parity: Any) -> None:
        which, phase = whole_number(name, barrier), whole_number(name, parity)
        if isinstance(which, int) and isinstance(phase, int):
            check_barrier(name, which)
            packed = Int64(BarrierWord(operation, which, phase & 1).pack())
        else:
            high = (Int64(phase) & Int64(1)) << Int64(PARITY_SHIFT) | Int64(int(operation) << OPERATION_SHIFT)
            packed = high | Int64(which) & Int64(MAX_BARRIER)
        word = word0(Kind.VALUE, self._region(Kind.VALUE, name), ValueType.BARRIER)
        emit(record_ptx.value(word, ValueType.BARRIER, self.full, narrow=False), [packed.ir_value()], "l")

    def anchor(self) -> None:
        emit(record_ptx.anchor(word0(Kind.ANCHOR), self.full))

    def _record(self, word: int) -> None:
        """Leave a record here. One right after another shares its clock read: nothing lies between them.

        A begin has its own: what the records before it wait for is not its region's.
        """
        if split_word0(word)[0] == Kind.BEGIN:
            emit(record_ptx.begin(word, self.full))
            return
        block = enclosing()[1]
        before, words = last_operation(block), [word]
        if self.newest is not None and before is not None and self.newest[0] == before:
            words = [*self.newest[1], word]
            self.newest[0].erase()
        emit(record_ptx.records(words, self.full))
        self.newest = last_operation(block), words

    def _region(self, kind: Kind, name: str) -> int:
        """The id of `name`, noting where it is marked."""
        ident = region_id(name)
        known = self.names.setdefault(ident, (name, *self.note(kind, name)))[0]
        if known != name:
            raise UsageError(f"regions {known!r} and {name!r} have the same id {ident}; rename one of them")
        return ident

    def close(self) -> None:
        """Write the warp's exit here; the end of the kernel does it unless it is done before."""
        if self.closed or not self.enabled:
            return
        super().close()
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
