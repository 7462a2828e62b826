"""The first words and payloads of a function's records, and the registers that hold them."""

from __future__ import annotations

from collections.abc import Mapping

from warplens.record.layout import WIDE_KINDS, Kind, ValueType, word0
from warplens.weave.mark_comments import Mark

_TO_64 = {"s32": "cvt.s64.s32", "u32": "cvt.u64.u32", "s64": "mov.b64", "u64": "mov.b64", "f64": "mov.b64"}
_VALUE_TAG = {
    "s32": ValueType.I64, "s64": ValueType.I64, "u32": ValueType.U64, "u64": ValueType.U64,
    "f32": ValueType.F64, "f64": ValueType.F64, "barrier": ValueType.BARRIER,
}  # fmt: skip
LONG = "%wl_v6"
"""The prefix of the names of 64-bit registers."""


class RecordWords:
    """The record words and registers of one function; `ids` are its region ids."""

    def __init__(self, ids: Mapping[str, int]) -> None:
        self._ids = ids
        self.registers: list[str] = []
        self.in_registers: dict[int, str] = {}
        """Record words that stay in a register, and that register."""

    def new(self, stem: str) -> str:
        name = f"{stem}{len(self.registers)}"
        self.registers.append(name)
        return name

    def declarations(self) -> list[str]:
        short = [f"\t.reg .b32 {name};" for name in self.registers if not name.startswith(LONG)]
        return short + [f"\t.reg .b64 {name};" for name in self.registers if name.startswith(LONG)]

    def word(self, mark: Mark) -> int:
        """The first word of a mark's record, without a tag that is only known at run time."""
        if mark.wide and mark.kind in WIDE_KINDS:
            return word0(Kind.ANCHOR, self._ids[mark.name], mark.kind)
        if mark.kind is Kind.ANCHOR:
            return word0(Kind.ANCHOR)
        tag = int(_VALUE_TAG[mark.type]) if mark.kind is Kind.VALUE else 0
        if mark.operand.isdigit() and mark.kind in (Kind.ASYNC_BEGIN, Kind.ASYNC_END):
            tag = int(mark.operand)
        return word0(mark.kind, self._ids[mark.name], tag)

    def operand(self, mark: Mark) -> tuple[str, list[str]]:
        """The operand that holds the record's first word, and the PTX that computes it at the mark."""
        word = self.word(mark)
        if mark.kind in (Kind.ASYNC_BEGIN, Kind.ASYNC_END) and mark.operand.startswith("%"):
            register = self.new("%wl_g")
            return register, [f"\tshl.b32 {register}, {mark.operand}, 27; or.b32 {register}, {register}, {word};"]
        return self.in_registers.get(word, str(word)), []

    def payload(self, mark: Mark) -> tuple[str, list[str]]:
        """The register that holds the record's payload, and the PTX that computes it."""
        register = self.new(LONG)
        if mark.kind is Kind.ANCHOR:
            return register, [f"\tmov.u64 {register}, %globaltimer;"]
        if mark.barrier is not None:
            return register, mark.barrier.payload(register)
        if mark.type == "f32":
            return register, [f"\t{{ .reg .f64 %wl_f; cvt.f64.f32 %wl_f, {mark.operand}; mov.b64 {register}, %wl_f; }}"]
        return register, [f"\t{_TO_64[mark.type]} {register}, {mark.operand};"]
