"""Tracks in a launch's buffer as record/launch_buffer.py describes it: what a kernel's `wl::Buffer` points at.

Programs that nvcc compiled get such buffers from warplens_host.h or `warplens.cuda.buffer`, whose tracks have any size.
So the prologue does what the constructor of wl::Kernel does (warplens_device.h): it loads the sizes, finds the track,
and refuses where it does not fit. The exit finds the track's header again from the position, so that no register keeps
it, and the first track sends the region names.

Behind its capacity a track has SPARE slots. A block of marks is cut so that it takes LANES slots at most, so a full
track writes at most LANES slots past its capacity, and a spread store's position stays below a 4 GiB line: it stops
LANES behind the capacity, is never further than one claim beyond that before it is cut, and differs by less than LANES
slots between lanes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from warplens.ptx.operands import written_by
from warplens.ptx.syntax import WeaveError
from warplens.ptx.tree import Comment, Function, Module
from warplens.record.launch_buffer import BUFFER, BUFFER_BYTES, FULL_MODES, REFUSALS, SPARE, STORES
from warplens.record.layout import HEADER_BYTES, SLOT_BYTES
from warplens.weave.stores.spread import COUNT, LANE, LANES, POSITION, SpreadTrack
from warplens.weave.track_ptx import ZERO, RingTrack, Track, text_of
from warplens.weave.weaving import LaunchBuffer

KERNEL = "@warplens-kernel"
"""How the comment begins that wl::Kernel leaves: the register of its buffer's address and what a full track does."""
_AT = {name: int(BUFFER.fields[name][1]) for name in BUFFER.names}  # type: ignore[index, union-attr]
_ROOM = HEADER_BYTES + SPARE * SLOT_BYTES
"""Bytes of a track beside its capacity."""
WHY = "%wl_mask"
"""Why a track cannot be used, while the prologue runs."""
assert 3 * LANES <= SPARE


@dataclass(frozen=True)
class TrackParameters:
    """What the text of one kernel's track needs to know: the operand of a load that gives the buffer's address, where
    its stores are, which sizes of the block must be multiples of 32 for them, and the symbol behind the names."""

    address: str
    store: str
    full: str
    full_warps: str = ""
    names: str = ""


def kernel_comments(function: Function) -> list[str]:
    """What stands behind KERNEL in each comment of a wl::Kernel."""
    comments = [node.content for node in function.walk() if isinstance(node, Comment)]
    return [text[len(KERNEL) :].strip() for text in comments if text.startswith(KERNEL)]


def buffer_address(function: Function) -> str:
    """Where in the kernel's parameters the address of its buffer is."""
    found = {_parameter(function, text.split()[0] if text else "") for text in kernel_comments(function)}
    if len(found) == 1 and "" not in found:
        return found.pop()
    problem = "the buffer of its wl::Kernel is not read from its parameters" if found else "no wl::Kernel opens it"
    raise WeaveError(function.line, function.header, problem, "", function.name)


def end_of_names(module: Module) -> str:
    """The constant that lies behind all names; see warplens.cuh."""
    found = re.search(r"^\s*\.const [^;=]*?\b([\w$]*names_end_[\w$]*)\[", module.text(), re.M)
    return found[1] if found else ""


def _parameter(function: Function, register: str) -> str:
    writers = [i for i in function.instructions() if register in written_by(i)]
    if len(writers) != 1 or writers[0].predicate:
        return ""
    (one,) = writers
    if one.opcode == "mov":
        return _parameter(function, one.operands[1])
    loads = one.opcode == "ld" and "param" in one.modifiers and set(one.modifiers) & {"u64", "b64", "s64"}
    return one.operands[1].strip("[] ") if loads and one.operands[0] == register else ""


class LaunchTrack(Track):
    """A track that keeps its first records; `lim` is where its capacity ends, at an even slot."""

    parameters: TrackParameters

    def _pointer(self) -> str:
        load = f"ld.param.b64 %wl_b, [{self.parameters.address}];"
        if not self.function.is_entry:
            load = "ld.local.b64 %wl_b, [%wl_f+24];"
        return load + " mov.b64 {%wl_s, %wl_z}, %wl_b; shr.u32 %wl_z, %wl_z, 31;"

    def framed(self) -> str:
        return "\tst.local.b64 [%wl_f+24], %wl_b;"

    def prologue(self) -> str:
        """Find the track, decide whether this thread records, and say so in the launch header where it cannot."""
        head = STORES.index(self.parameters.store) << 16 | FULL_MODES.index(self.parameters.full)
        # The launch header's fields are stored at a distance from the track's: its own address takes no register then.
        mode, refused = (_AT[name] - BUFFER_BYTES for name in ("mode", "refused"))
        return text_of([
            self._pointer(),
            "setp.ne.u64 %wl_p, %wl_b, 0;",
            *self._block(),
            *self._thread(),
            self._lane(),
            "mov.b32 %wl_s, 0; mov.b32 %wl_v, 0; mov.b32 %wl_u, 0; mov.b32 %wl_w, 0;",
            f"@%wl_p ld.global.nc.v4.b32 {{%wl_s, %wl_v, %wl_u, %wl_w}}, [%wl_b+{_AT['capacity']}];",
            *self._refusal(),
            f"setp.eq.u32 %wl_q, {WHY}, 0; selp.b32 %wl_w, %wl_w, 0, %wl_q;",
            f"mul.wide.u32 %wl_a, %wl_w, %wl_v; add.s64 %wl_a, %wl_a, %wl_b; add.s64 %wl_a, %wl_a, {BUFFER_BYTES};",
            f"setp.ne.and.u32 %wl_q, {WHY}, 0, %wl_p; setp.eq.and.u32 %wl_p, {WHY}, 0, %wl_p;",
            *self._lead("%wl_q"),
            f"@%wl_q st.global.b32 [%wl_a+{refused}], {WHY};",
            *self._header(),
            "setp.eq.and.u32 %wl_q, %wl_w, 0, %wl_p;",
            *self._lead("%wl_q"),
            f"mov.b32 %wl_u, {head}; @%wl_q st.global.b32 [%wl_a+{mode}], %wl_u; mov.b64 {{%wl_lo, %wl_hi}}, %wl_a;",
            *self._start(),
        ])  # fmt: skip

    def _refusal(self) -> list[str]:
        """WHY: why the track cannot be used, 0 if it can; %wl_w: its number. From the capacity in %wl_s, the stride
        in %wl_v, tracks in %wl_u and those of a block in %wl_w, the block in %wl_x, the warp in %wl_t."""
        tracks, room = REFUSALS.index("tracks"), REFUSALS.index("room")
        return [
            "setp.lt.u32 %wl_q, %wl_t, %wl_w; mad.lo.u32 %wl_w, %wl_x, %wl_w, %wl_t;",
            "setp.lt.and.u32 %wl_q, %wl_w, %wl_u, %wl_q;",
            "add.u32 %wl_u, %wl_w, 1; mul.hi.u32 %wl_u, %wl_u, %wl_v; setp.eq.and.u32 %wl_q, %wl_u, 0, %wl_q;",
            f"selp.b32 {WHY}, 0, {tracks}, %wl_q;",
            # As large as it must be, and below the 4 GiB line that its positions would not count beyond.
            f"mad.lo.u32 %wl_u, %wl_s, {SLOT_BYTES}, {_ROOM}; setp.le.u32 %wl_q, %wl_u, %wl_v;",
            "cvt.u32.u64 %wl_lo, %wl_b; mad.lo.u32 %wl_lo, %wl_w, %wl_v, %wl_lo;",
            f"add.u32 %wl_lo, %wl_lo, {BUFFER_BYTES}; sub.u32 %wl_u, %wl_u, 1; add.u32 %wl_u, %wl_u, %wl_lo;",
            f"setp.ge.and.u32 %wl_q, %wl_u, %wl_lo, %wl_q; selp.b32 {WHY}, {WHY}, {room}, %wl_q;",
            *self._shape(),
        ]

    def _shape(self) -> list[str]:
        if not self.parameters.full_warps:
            return []
        lines = ["mov.u32 %wl_u, %ntid.x;"]
        if self.parameters.full_warps == "threads":
            lines += [f"mov.u32 %wl_lo, %ntid.{axis}; mul.lo.u32 %wl_u, %wl_u, %wl_lo;" for axis in "yz"]
        wrong = REFUSALS.index("block")
        lines.append("and.b32 %wl_u, %wl_u, 31; setp.eq.u32 %wl_q, %wl_u, 0;")
        return [*lines, f"selp.b32 {WHY}, {WHY}, {wrong}, %wl_q;"]

    def _start(self) -> list[str]:
        return [
            *self._end(),
            f"add.u32 %wl_lim, %wl_lo, %wl_s; add.u32 %wl_lim, %wl_lim, {HEADER_BYTES}; {self.keep_recording}",
            f"add.u32 %wl_lo, %wl_lo, {HEADER_BYTES};",
            *self._pinned(),
            *["mov.b64 %wl_a, {%wl_lo, %wl_hi};"] * self.joined,
        ]

    def _end(self) -> list[str]:
        """%wl_s: bytes to `lim`, from the capacity. At an even slot: of two records that wait for one store, one may be
        inside the capacity, and then both are stored."""
        return ["add.u32 %wl_s, %wl_s, 1; and.b32 %wl_s, %wl_s, -2; shl.b32 %wl_s, %wl_s, 3;"]

    def _capacity(self) -> str:
        """%wl_s, where this thread records."""
        return f"mov.b32 %wl_s, 0; @%wl_q ld.global.nc.b32 %wl_s, [%wl_b+{_AT['capacity']}];"

    def _exit_header(self) -> list[str]:
        return [
            self._pointer(),
            self.was_recording,
            self._capacity(),
            *self._end(),
            "sub.u32 %wl_t, %wl_lim, %wl_s; sub.u32 %wl_s, %wl_lo, %wl_t; shr.u32 %wl_s, %wl_s, 3;",
            f"sub.u32 %wl_t, %wl_t, {HEADER_BYTES}; mov.b64 %wl_a, {{%wl_t, %wl_hi}};",
        ]

    def epilogue(self, pending: str) -> str:
        return "\n".join([super().epilogue(pending), text_of(self._send_names())])

    def _send_names(self) -> list[str]:
        """Copy the module's constants up to the end of the names, if the host asked for them; see warplens_ptx.h."""
        if not self.parameters.names:
            return []
        self.exits += 1
        done, more = (f"$wl_{self.function.name}_{what}{self.exits}" for what in ("named", "name"))
        return [
            f"add.s64 %wl_d, %wl_b, {BUFFER_BYTES}; setp.eq.and.u64 %wl_q, %wl_a, %wl_d, %wl_q; @!%wl_q bra {done};",
            f"ld.global.b64 %wl_d, [%wl_b+{_AT['names']}]; setp.eq.u64 %wl_q, %wl_d, 0; @%wl_q bra {done};",
            f"mov.u64 %wl_h, {self.parameters.names}; cvt.u32.u64 %wl_t, %wl_h;",
            f"st.global.b32 [%wl_b+{_AT['names_size']}], %wl_t; mov.b64 %wl_a, 0;",
            f"{more}:",
            '.pragma "nounroll";',
            f"setp.ge.u64 %wl_q, %wl_a, %wl_h; @%wl_q bra {done};",
            "ld.const.b64 %wl_ec, [%wl_a]; st.global.b64 [%wl_d], %wl_ec;",
            f"add.s64 %wl_a, %wl_a, 8; add.s64 %wl_d, %wl_d, 8; bra {more};",
            f"{done}:",
        ]

    exits = 0


class LaunchRing(LaunchTrack, RingTrack):
    """A track that keeps the latest, in the largest power of two of slots that its capacity has."""

    join_offset = "add.u32"

    def _start(self) -> list[str]:
        return [
            "max.u32 %wl_s, %wl_s, 1; clz.b32 %wl_s, %wl_s; sub.u32 %wl_s, 31, %wl_s;",
            f"mov.b32 %wl_mask, {SLOT_BYTES}; shl.b32 %wl_mask, %wl_mask, %wl_s;",
            f"sub.u32 %wl_mask, %wl_mask, {SLOT_BYTES};",
            f"add.u32 %wl_lim, %wl_lo, {HEADER_BYTES}; selp.b32 %wl_lim, %wl_lim, 0, %wl_p; mov.b32 %wl_lo, 0;",
            *self._pinned(),
        ]

    def _exit_header(self) -> list[str]:
        return [
            self._pointer(),
            f"setp.ne.u32 %wl_q, %wl_lim, 0; sub.u32 %wl_t, %wl_lim, {HEADER_BYTES};",
            "mov.b64 %wl_a, {%wl_t, %wl_hi}; shr.u32 %wl_s, %wl_lo, 3;",
        ]


class LaunchSpread(LaunchTrack, SpreadTrack):
    """A track whose records come from all lanes; see spread.py."""

    def _start(self) -> list[str]:
        return [
            f"add.u32 %wl_lo, %wl_lo, {LANE}; add.u32 %wl_lo, %wl_lo, {HEADER_BYTES};",
            # By way of %wl_t, which marks read the clock into in some lanes: what it held before must be of no use, or
            # ptxas copies it to and fro in every turn of a loop.
            f"add.u32 %wl_s, %wl_s, {LANES}; shl.b32 %wl_t, %wl_s, 3; add.u32 %wl_lim, %wl_lo, %wl_t;",
            f"mov.b32 {COUNT}, 0; selp.b32 {LANE}, {LANE}, -1, %wl_p; mov.b64 {POSITION}, {{%wl_lo, %wl_hi}};",
        ]

    def _exit_header(self) -> list[str]:
        return [
            self._pointer(),
            f"setp.eq.u32 {self.leader}, {LANE}, 0; add.u32 %wl_t, {COUNT}, {ZERO};",  # see SpreadTrack
            self._capacity(),
            f"add.u32 %wl_s, %wl_s, {LANES}; min.u32 %wl_s, %wl_s, %wl_t; shl.b32 %wl_s, %wl_s, 3;",
            f"mov.b64 {{%wl_lo, %wl_hi}}, {POSITION}; sub.u32 %wl_lo, %wl_lo, %wl_s;",
            f"sub.u32 %wl_lo, %wl_lo, {HEADER_BYTES}; mov.b64 %wl_a, {{%wl_lo, %wl_hi}};",
            "mov.b32 %wl_s, %wl_t;",
        ]


__all__ = [
    "KERNEL",
    "TrackParameters",
    "LaunchBuffer",
    "LaunchRing",
    "LaunchSpread",
    "LaunchTrack",
    "buffer_address",
    "kernel_comments",
]
