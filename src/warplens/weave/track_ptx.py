"""The PTX that finds a warp's track, writes its header, and stores records into it.

The buffer pointer carries log2(stride) in its low six bits, and every track is aligned to its stride. The capacity can
therefore change from launch to launch without recompiling, and a track never crosses a 4 GiB boundary, so advancing the
pointer is one 32-bit add to its low word. A recording thread keeps that low word, the high word, and `lim`, the last
low word at which a block of marks may still store; `lim` is 0 in threads that do not record. The bounds predicate is
sticky, so a low word that wraps after the track is full cannot get back into range.
"""

from __future__ import annotations

import math

from warplens.ptx.syntax import PtxError
from warplens.ptx.tree import Function
from warplens.record.layout import HEADER_AT, HEADER_BYTES, SLOT_BYTES, TRACK_MAGIC, TrackState
from warplens.weave.block_index import linear_index, selected_index
from warplens.weave.weaving import GRANULARITY, MIN_SHIFT, SHIFT_MASK, AnyBuffer, ParamBuffer, SymbolBuffer, Weaving

DECLARATIONS = """\
	.reg .b64 %wl_a, %wl_b, %wl_d, %wl_h, %wl_ec, %wl_en;
	.reg .b32 %wl_lo, %wl_hi, %wl_lim, %wl_mask, %wl_s, %wl_t, %wl_u, %wl_v, %wl_w, %wl_x, %wl_z;
	.reg .pred %wl_p, %wl_q;"""

ZERO = "%wl_z"
"""A register that is always zero (bit 63 of a pointer). ptxas does not know that, so it cannot fold or move values
that are computed from it."""

AWAITED = "%wl_hi"
"""The register to which a mark that waits for a value adds zero times that value; later stores depend on it."""


class Track:
    """Generates the PTX for one function's track; a block may write up to `slack` slots past the capacity."""

    declarations = DECLARATIONS
    leader = "%wl_p"
    """The predicate that is true in the lane that writes for its warp, once `_lead` has set it."""
    awaited = AWAITED
    keep_recording, was_recording = "selp.b32 %wl_lim, %wl_lim, 0, %wl_p;", "setp.ne.u32 %wl_q, %wl_lim, 0;"
    """PTX that remembers whether this thread records, and PTX that restores that into %wl_q."""

    def __init__(self, function: Function, buffer: AnyBuffer, how: Weaving, slack: int) -> None:
        self.function, self.buffer, self.select, self.slack = function, buffer, how.select, slack
        self.pin = how.pin
        self.joined = False

    def join(self) -> None:
        """Keep the pointer in one 64-bit register, %wl_a.

        This saves a copy per iteration in a small loop. Where registers are scarce, ptxas does better with two halves.
        """
        self.joined, self.awaited = True, "%wl_lim"  # each step reloads the high word from %wl_a

    def prologue(self) -> str:
        """Find the track, decide whether this thread records, and write the first part of the header."""
        # A null pointer, or one from another allocator, carries no log2(stride); nothing is recorded then.
        lines = [
            self._pointer(),
            f"setp.ge.u32 %wl_p, %wl_s, {MIN_SHIFT}; and.b64 %wl_b, %wl_b, {~SHIFT_MASK};",
            *self._block(),
            *self._warp(),
        ]
        lines += [
            "mad.lo.u32 %wl_u, %wl_u, %wl_v, %wl_w;",  # track: block * tracks per block + track in the block
            "cvt.u64.u32 %wl_a, %wl_u;",
            "shl.b64 %wl_a, %wl_a, %wl_s;",
            "add.s64 %wl_a, %wl_b, %wl_a;",
            "mov.b64 {%wl_lo, %wl_hi}, %wl_a;",
        ]
        lines += self._header()
        return text_of(lines + self._start())

    def _pointer(self) -> str:
        if isinstance(self.buffer, SymbolBuffer):
            load = f"ld.{self.buffer.space}.b64 %wl_b, [{self.buffer.name}];"
        else:
            assert isinstance(self.buffer, ParamBuffer)
            params = self.function.params
            try:
                param = params[self.buffer.index]
            except IndexError:
                raise PtxError(
                    self.function.line, self.function.header, f"the kernel has no parameter {self.buffer.index}"
                ) from None
            load = f"ld.param.b64 %wl_b, [{param.name}];"
            if self.buffer.indirect:
                load += " setp.ne.b64 %wl_q, %wl_b, 0; @%wl_q ld.global.b64 %wl_b, [%wl_b];"
        return load + f" mov.b64 {{%wl_s, %wl_z}}, %wl_b; and.b32 %wl_s, %wl_s, {SHIFT_MASK}; shr.u32 %wl_z, %wl_z, 31;"

    def _block(self) -> list[str]:
        """%wl_x: the linear block index; %wl_u: its index among the selected blocks."""
        return [
            *linear_index(self.select, "%wl_x", "%wl_t", "%wl_v"),
            *selected_index(self.select, "%wl_u", "%wl_x", "%wl_p"),
        ]

    def _warp(self) -> list[str]:
        """%wl_t: the warp; %wl_w: the index of its track in the block; %wl_v: tracks per block."""
        sizes = self.function.performance.get("reqntid")
        lines = [*self._thread(), self._lane()]
        chosen = self.select.warps
        if chosen is not None:
            mask = sum(1 << warp for warp in chosen)
            return [
                *lines,
                f"mov.b64 %wl_a, {mask}; shr.b64 %wl_d, %wl_a, %wl_t; and.b64 %wl_d, %wl_d, 1;",
                "setp.ne.and.u64 %wl_p, %wl_d, 0, %wl_p;",
                "mov.b64 %wl_d, 1; shl.b64 %wl_d, %wl_d, %wl_t; sub.s64 %wl_d, %wl_d, 1;",
                "and.b64 %wl_d, %wl_d, %wl_a; popc.b64 %wl_w, %wl_d;",
                f"mov.b32 %wl_v, {len(chosen)};",
            ]
        shift = GRANULARITY[self.select.granularity].bit_length() - 1
        if shift:
            lines += [
                f"and.b32 %wl_w, %wl_t, {(1 << shift) - 1}; setp.eq.and.u32 %wl_p, %wl_w, 0, %wl_p;",
                f"shr.u32 %wl_w, %wl_t, {shift};",
            ]
        else:
            lines.append("mov.b32 %wl_w, %wl_t;")
        if sizes is not None:
            warps = -(-math.prod(sizes) // 32)
            return [*lines, f"mov.b32 %wl_v, {self.select.tracks_per_block(warps)};"]
        return [
            *lines,
            "mov.u32 %wl_lo, %ntid.x; mov.u32 %wl_hi, %ntid.y; mul.lo.u32 %wl_lo, %wl_lo, %wl_hi;",
            "mov.u32 %wl_hi, %ntid.z; mul.lo.u32 %wl_lo, %wl_lo, %wl_hi;",
            f"add.u32 %wl_lo, %wl_lo, {(32 << shift) - 1}; shr.u32 %wl_v, %wl_lo, {5 + shift};",
        ]

    def _thread(self) -> list[str]:
        """%wl_t: the linear thread index in the block."""
        sizes = self.function.performance.get("reqntid")
        if sizes is not None and all(size == 1 for size in sizes[1:]):
            return ["mov.u32 %wl_t, %tid.x;"]
        return [
            "mov.u32 %wl_t, %tid.z; mov.u32 %wl_v, %ntid.y; mov.u32 %wl_w, %tid.y;",
            "mad.lo.u32 %wl_w, %wl_t, %wl_v, %wl_w;",
            "mov.u32 %wl_t, %ntid.x; mov.u32 %wl_v, %tid.x;",
            "mad.lo.u32 %wl_t, %wl_w, %wl_t, %wl_v;",
        ]

    def _lane(self) -> str:
        """Replace the thread in %wl_t by its warp, and select lane 0."""
        return "and.b32 %wl_w, %wl_t, 31; setp.eq.and.u32 %wl_p, %wl_w, 0, %wl_p; shr.u32 %wl_t, %wl_t, 5;"

    def _lead(self, predicate: str = "%wl_p") -> list[str]:
        """Set `leader` among the threads for which `predicate` is true."""
        return []

    def _sm(self) -> list[str]:
        """%wl_u: the SM."""
        lines = ["mov.u32 %wl_u, %smid;"]
        if self.select.sms is not None:
            lines.append("setp.ne.u32 %wl_q, %wl_u, %wl_u;")
            lines += [f"setp.eq.or.u32 %wl_q, %wl_u, {sm}, %wl_q;" for sm in self.select.sms]
            lines.append("and.pred %wl_p, %wl_p, %wl_q;")
        return lines

    def _header(self) -> list[str]:
        return [
            *self._sm(),
            *self._lead(),
            f"mov.b32 %wl_v, {TRACK_MAGIC};",
            f"@{self.leader} st.global.v4.b32 [%wl_a], {{%wl_v, %wl_x, %wl_t, %wl_u}};",
            "mov.b64 %wl_h, %wl_a;",
        ]

    def framed(self) -> str:
        """PTX that stores what the frame of a kernel with calls holds in addition to the state."""
        return ""

    def start_clock(self) -> str:
        """Read the start clock. This comes last before the kernel's own code, so that the prologue is not measured."""
        return text_of(["mov.u64 %wl_b, %clock64; mov.u64 %wl_d, %globaltimer;"])

    def started(self) -> str:
        """Store the start clock. This comes after the first mark's clock read, because a store may stall."""
        return text_of([
            *self._lead(), f"@{self.leader} st.global.v2.b64 [%wl_h+{HEADER_AT['start_clock']}], {{%wl_b, %wl_d}};"
        ])  # fmt: skip

    def _start(self) -> list[str]:
        """Set up the marks' state from the track's address in %wl_lo and log2(stride) in %wl_s."""
        return [
            "mov.b32 %wl_t, 1; shl.b32 %wl_t, %wl_t, %wl_s; add.u32 %wl_lim, %wl_lo, %wl_t;",
            f"sub.u32 %wl_lim, %wl_lim, {self.slack * SLOT_BYTES}; {self.keep_recording}",
            f"add.u32 %wl_lo, %wl_lo, {HEADER_BYTES};",
            *self._pinned(),
            *["mov.b64 %wl_a, {%wl_lo, %wl_hi};"] * self.joined,
        ]

    def _pinned(self) -> list[str]:
        """Separate the record pointer from the header pointer; ptxas would otherwise merge them and copy per block."""
        return [f"add.u32 %wl_hi, %wl_hi, {ZERO};"] if self.pin else []

    def step(self, slots: int) -> str:
        """Claim `slots` slots; `store` counts back from the new end."""
        return text_of([
            *["mov.b64 {%wl_lo, %wl_hi}, %wl_a;"] * self.joined,
            "setp.le.and.u32 %wl_p, %wl_lo, %wl_lim, %wl_p;",
            f"add.u32 %wl_lo, %wl_lo, {slots * SLOT_BYTES};",
            "mov.b64 %wl_a, {%wl_lo, %wl_hi};",
            *self._lead(),
        ])  # fmt: skip

    def store(self, back: int, value: str) -> str:
        """Store `value` (`{word0, clock}` or a .b64 register) into the slot `back` slots before the end."""
        return text_of([f"@{self.leader} st.global.{vector_of(value)} [%wl_a+{-back * SLOT_BYTES}], {value};"])

    def exit_clock(self) -> str:
        """Read the exit clock. This comes first after the kernel's own code."""
        return text_of(["mov.u64 %wl_ec, %clock64; mov.u64 %wl_en, %globaltimer;"])

    def epilogue(self, pending: str) -> str:
        """Store the deferred records, if any, and then the exit fields of the header."""
        lines = [self.step(0), self.store(slots_of(pending), pending)] if pending else []
        return "\n".join([*lines, text_of([*self._exit_header(), *exit_fields("%wl_q")])])

    def _exit_header(self) -> list[str]:
        """%wl_a: the header's address; %wl_s: the number of slots written."""
        return [
            self._pointer() if self.function.is_entry else "ld.local.b32 %wl_s, [%wl_f+16];",
            self.was_recording,
            *self._lead("%wl_q"),
            "mov.b32 %wl_t, -1; shl.b32 %wl_t, %wl_t, %wl_s; and.b32 %wl_t, %wl_lim, %wl_t;",
            "mov.b64 %wl_a, {%wl_t, %wl_hi};",
            f"sub.u32 %wl_s, %wl_lo, %wl_t; sub.u32 %wl_s, %wl_s, {HEADER_BYTES}; shr.u32 %wl_s, %wl_s, 3;",
        ]


class LeanTrack(Track):
    """A track whose `lim` is uniform across the warp, so that ptxas can keep it in a uniform register.

    A separate predicate says whether the thread records.
    """

    declarations = DECLARATIONS + "\n\t.reg .pred %wl_r;"
    keep_recording, was_recording = "mov.pred %wl_r, %wl_p;", "mov.pred %wl_q, %wl_r;"


class RingTrack(Track):
    """A ring, which keeps the latest records.

    The slots are the upper half of the track, `lo` counts the bytes written, and `lim` is the address of slot 0.
    """

    join_offset = "or.b32"
    """The instruction that adds a slot's offset to the address of slot 0."""

    def _start(self) -> list[str]:
        return [
            "sub.u32 %wl_s, %wl_s, 1; mov.b32 %wl_t, 1; shl.b32 %wl_t, %wl_t, %wl_s;",
            f"sub.u32 %wl_mask, %wl_t, {SLOT_BYTES}; or.b32 %wl_lim, %wl_lo, %wl_t;",
            "selp.b32 %wl_lim, %wl_lim, 0, %wl_p; mov.b32 %wl_lo, 0;",
            *self._pinned(),
        ]

    def step(self, slots: int) -> str:
        return text_of([f"add.u32 %wl_lo, %wl_lo, {slots * SLOT_BYTES};"])

    def store(self, back: int, value: str) -> str:
        return text_of([
            f"add.u32 %wl_t, %wl_lo, {-back * SLOT_BYTES}; and.b32 %wl_t, %wl_t, %wl_mask;",
            f"{self.join_offset} %wl_t, %wl_t, %wl_lim; mov.b64 %wl_a, {{%wl_t, %wl_hi}};",
            f"@%wl_p st.global.{vector_of(value)} [%wl_a], {value};",
        ])  # fmt: skip

    def _exit_header(self) -> list[str]:
        return [
            "setp.ne.u32 %wl_q, %wl_lim, 0; add.u32 %wl_t, %wl_mask, 8; sub.u32 %wl_t, %wl_lim, %wl_t;",
            "mov.b64 %wl_a, {%wl_t, %wl_hi}; shr.u32 %wl_s, %wl_lo, 3;",
        ]


def exit_fields(leader: str) -> list[str]:
    """Store the number of slots in %wl_s and the exit clock into the header at %wl_a."""
    return [
        f"mov.b32 %wl_t, {int(TrackState.EXITED)};",
        f"@{leader} st.global.v2.b32 [%wl_a+{HEADER_AT['written']}], {{%wl_s, %wl_t}};",
        f"@{leader} st.global.v2.b64 [%wl_a+{HEADER_AT['exit_clock']}], {{%wl_ec, %wl_en}};",
    ]


def vector_of(value: str) -> str:
    """The vector type of a store of `value`."""
    return f"v{value.count(',') + 1}.b32" if value.startswith("{") else "b64"


def slots_of(value: str) -> int:
    """The number of slots that `value` fills."""
    return (value.count(",") + 1) // 2 if value.startswith("{") else 1


def text_of(lines: list[str]) -> str:
    """Join PTX lines, indented as in a function's body."""
    return "\n".join([line if line[:1] == "\t" else "\t" + line for line in lines])
