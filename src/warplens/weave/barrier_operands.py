"""The operands of a barrier mark, and the PTX that packs them into a barrier word (record/barrier_words.py).

// @warplens S name operation barrier parity extra guard

operation   a name of `Operation` in lower case
barrier     `u32:` a register, `u64:` a register with a shared address, `generic:` one with a generic address, each
            with an optional `+offset`; `symbol:` a shared variable; `number:` a number; `cluster:` this cluster;
                `next:` the one that the next barrier instruction uses (see auto/ptx/barrier_marks.py)
parity      a register or a number; `-` for none
extra       a register (with `u16:` before it if that has 16 bits) or a number; `-` for none
guard       a predicate, perhaps with `!`, without which nothing happened; `-` for none
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from warplens.record.barrier_words import MAX_BARRIER, MAX_EXTRA, OFFSET_BITS, Operation

NO_OPERAND = "-"
_BARRIER = re.compile(r"(u32|u64|generic|symbol|number|cluster|next):([%\w$.]*)([+-]\d+)?")
_SHORT = "u16:"
_NAME = re.compile(r"[%\w$.]+")
_OPERATION_SHIFT, _PARITY_SHIFT, _EXTRA_SHIFT = 0, 4, 5
"""Places in the upper half of the word."""


@dataclass(frozen=True)
class BarrierOperands:
    """What the warp does, with which barrier, and how PTX names it."""

    operation: Operation
    space: str
    name: str
    offset: int = 0
    parity: str = NO_OPERAND
    extra: str = NO_OPERAND
    guard: str = NO_OPERAND

    @classmethod
    def parse(cls, words: Sequence[str]) -> BarrierOperands:
        """Parse the words after the mark's name. Raises ValueError if one of them is wrong."""
        operation, barrier, parity, extra, guard = words
        if operation.upper() not in Operation.__members__:
            known = ", ".join(one.name.lower() for one in Operation)
            raise ValueError(f"unknown barrier operation {operation!r}; allowed: {known}")
        for word in (parity, extra.removeprefix(_SHORT), guard.removeprefix("!")):
            if word != NO_OPERAND and not _NAME.fullmatch(word):
                raise ValueError(f"{word!r} is not a register or a number")
        found = _BARRIER.fullmatch(barrier)
        if found is None:
            raise ValueError(f"{barrier!r} is no barrier")
        space, name, offset = found[1], found[2], int(found[3] or 0)
        if space == "number" and not (name.isdigit() and int(name) <= MAX_BARRIER):
            raise ValueError(f"barrier {name!r} is outside 0..{MAX_BARRIER}")
        if extra.isdigit() and int(extra) > MAX_EXTRA:
            raise ValueError(f"extra {extra} is outside 0..{MAX_EXTRA}")
        return cls(Operation[operation.upper()], space, name, offset, parity, extra, guard)

    def words(self) -> tuple[str, ...]:
        """The inverse of `parse`."""
        offset = f"{self.offset:+d}" if self.offset else ""
        return self.operation.name.lower(), f"{self.space}:{self.name}{offset}", self.parity, self.extra, self.guard

    @property
    def registers(self) -> tuple[str, ...]:
        """The registers that it reads."""
        named = [self.name] if self.space in ("u32", "u64", "generic") else []
        others = (self.parity, self.extra.removeprefix(_SHORT), self.guard.removeprefix("!"))
        return tuple(named + [word for word in others if word != NO_OPERAND and not word.isdigit()])

    def payload(self, target: str) -> list[str]:
        """PTX that packs the word into the 64-bit register `target`."""
        lines = ["\t{ .reg .b32 %wl_bl, %wl_bh, %wl_bt; .reg .b64 %wl_bq;"]
        lines += [f"\t{line}" for line in self._low()]
        lines += [f"\t{line}" for line in self._high()]
        return [*lines, f"\tmov.b64 {target}, {{%wl_bl, %wl_bh}}; }}"]

    def _low(self) -> list[str]:
        add = [f"add.u32 %wl_bl, %wl_bl, {self.offset};"] if self.offset else []
        if self.space == "number":
            return [f"mov.u32 %wl_bl, {self.name};"]
        if self.space == "cluster":
            return [
                "mov.u32 %wl_bl, %clusterid.z; mov.u32 %wl_bt, %nclusterid.y; mov.u32 %wl_bh, %clusterid.y;",
                "mad.lo.u32 %wl_bl, %wl_bl, %wl_bt, %wl_bh;",
                "mov.u32 %wl_bt, %nclusterid.x; mov.u32 %wl_bh, %clusterid.x;",
                "mad.lo.u32 %wl_bl, %wl_bl, %wl_bt, %wl_bh;",
            ]
        if self.space == "generic":
            low = [f"cvta.to.shared.u64 %wl_bq, {self.name}; cvt.u32.u64 %wl_bl, %wl_bq;"]
        elif self.space == "u64":
            low = [f"cvt.u32.u64 %wl_bl, {self.name};"]
        else:
            low = [f"mov.u32 %wl_bl, {self.name};"]
        low += add
        if self.operation is Operation.REMOTE_ARRIVE:
            low += [
                "getctarank.shared::cluster.u32 %wl_bt, %wl_bl;",
                f"and.b32 %wl_bl, %wl_bl, {(1 << OFFSET_BITS) - 1};",
                f"shl.b32 %wl_bt, %wl_bt, {OFFSET_BITS}; or.b32 %wl_bl, %wl_bl, %wl_bt;",
            ]
        if self.operation is Operation.MULTICAST:
            low += [
                f"and.b32 %wl_bl, %wl_bl, {(1 << OFFSET_BITS) - 1};",
                f"mov.u32 %wl_bt, %cluster_ctarank; shl.b32 %wl_bt, %wl_bt, {OFFSET_BITS};",
                "or.b32 %wl_bl, %wl_bl, %wl_bt;",
                "mov.u32 %wl_bt, %cluster_nctaid.x; sub.u32 %wl_bt, %wl_bt, 1;",
                f"shl.b32 %wl_bt, %wl_bt, {OFFSET_BITS + 4}; or.b32 %wl_bl, %wl_bl, %wl_bt;",
            ]
        return low

    def _high(self) -> list[str]:
        fixed = int(self.operation) << _OPERATION_SHIFT
        lines: list[str] = []
        if self.parity.isdigit():
            fixed |= (int(self.parity) & 1) << _PARITY_SHIFT
        if self.extra.isdigit():
            fixed |= int(self.extra) << _EXTRA_SHIFT
        lines.append(f"mov.u32 %wl_bh, {fixed};")
        if self.operation is Operation.REMOTE_ARRIVE:
            for register, shift in (("%cluster_nctaid.x", 4), ("%cluster_nctaid.y", 8)):
                lines.append(f"mov.u32 %wl_bt, {register}; sub.u32 %wl_bt, %wl_bt, 1;")
                lines.append(f"shl.b32 %wl_bt, %wl_bt, {_EXTRA_SHIFT + shift}; or.b32 %wl_bh, %wl_bh, %wl_bt;")
            lines.append(f"mov.u32 %wl_bt, %cluster_ctarank; shl.b32 %wl_bt, %wl_bt, {_EXTRA_SHIFT};")
            lines.append("or.b32 %wl_bh, %wl_bh, %wl_bt;")
        for word, mask, shift in ((self.parity, 1, _PARITY_SHIFT), (self.extra, MAX_EXTRA, _EXTRA_SHIFT)):
            if word.startswith(_SHORT):
                lines.append(f"cvt.u32.u16 %wl_bt, {word.removeprefix(_SHORT)};")
                lines.append(f"mad.lo.u32 %wl_bh, %wl_bt, {1 << shift}, %wl_bh;")
            elif word != NO_OPERAND and not word.isdigit():
                lines.append(f"and.b32 %wl_bt, {word}, {mask}; mad.lo.u32 %wl_bh, %wl_bt, {1 << shift}, %wl_bh;")
        if self.guard != NO_OPERAND:
            kept, dropped = ("0", "%wl_bh") if self.guard.startswith("!") else ("%wl_bh", "0")
            lines.append(f"selp.b32 %wl_bh, {kept}, {dropped}, {self.guard.removeprefix('!')};")
        return lines
