"""Tracks in a launch buffer (record/launch_buffer.py), which is what a kernel's `wl::Buffer` points to.

Programs compiled by nvcc get such buffers from warplens_host.h or `warplens.cuda.buffer`, with tracks of any size. The
prologue therefore does the same as the constructor of wl::Kernel (warplens_device.h): it loads the sizes, finds the
track, and refuses to record if the track does not fit. The exit computes the address of the header from the write
position, so that no register holds it in between, and the first track sends the region names.

A track has SPARE slots past its capacity. Blocks of marks are split to at most LANES slots, so a full track writes at
most LANES slots past its capacity. The position of a spread store stays below a 4 GiB boundary: it stops LANES slots
past the capacity, exceeds that by at most one claim before it is clamped, and differs by less than LANES slots between
lanes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from warplens.ptx.operands import written_by
from warplens.ptx.syntax import PtxError
from warplens.ptx.tree import Comment, Function, PtxModule
from warplens.record.launch_buffer import BUFFER, BUFFER_BYTES, FULL_MODES, REFUSALS, SPARE, STORES
from warplens.record.layout import HEADER_BYTES, SLOT_BYTES
from warplens.weave.stores.spread import COUNT, LANE, LANES, POSITION, SpreadTrack
from warplens.weave.track_ptx import ZERO, RingTrack, Track, text_of

KERNEL = "@warplens-kernel"
"""The prefix of the comment that wl::Kernel leaves; the register of its buffer's address and the full mode follow."""
_AT = {name: int(BUFFER.fields[name][1]) for name in BUFFER.names}  # type: ignore[index, union-attr]
_ROOM = HEADER_BYTES + SPARE * SLOT_BYTES
"""Bytes of a track in addition to the slots of its capacity."""
WHY = "%wl_mask"
"""The register that holds, during the prologue, why a track cannot be used."""
assert 3 * LANES <= SPARE


@dataclass(frozen=True)
class TrackParameters:
    """The properties of one kernel's track.

    address:     the parameter that holds the buffer's address
    store:       where the stores are placed
    full:        what a full track keeps
    full_warps:  which block size must be a multiple of 32: `x`, `threads` (the product of all sizes), or empty
    names:       the symbol that follows the region names
    """

    address: str
    store: str
    full: str
    full_warps: str = ""
    names: str = ""


def kernel_comments(function: Function) -> list[str]:
    """The text after KERNEL in the comment of each wl::Kernel."""
    comments = [node.content for node in function.walk() if isinstance(node, Comment)]
    return [text[len(KERNEL) :].strip() for text in comments if text.startswith(KERNEL)]


def buffer_address(function: Function) -> str:
    """The kernel parameter that holds the address of its buffer."""
    found = {_parameter(function, text.split()[0] if text else "") for text in kernel_comments(function)}
    if len(found) == 1 and "" not in found:
        return found.pop()
    problem = "the buffer of its wl::Kernel is not a kernel parameter" if found else "the kernel has no wl::Kernel"
    raise PtxError(function.line, function.header, problem, "", function.name)


def end_of_names(module: PtxModule) -> str:
    """The constant that follows all names in memory; see warplens.cuh."""
    found = re.search(r"^\s*\.const [^;=]*?\b([\w$]*names_end_[\w$]*)\[", module.text(), re.M)
    return found[1] if found else ""


def _parameter(function: Function, register: str, copies: int = 8) -> str:
    """The parameter that a register holds, directly or through that many copies; empty if it is none."""
    writers = [i for i in function.instructions() if register in written_by(i)]
    if len(writers) != 1 or writers[0].predicate:
        return ""
    (one,) = writers
    if len(one.operands) < 2 or not copies:
        return ""
    if one.opcode == "mov":
        return _parameter(function, one.operands[1], copies - 1)
    loads = one.opcode == "ld" and "param" in one.modifiers and set(one.modifiers) & {"u64", "b64", "s64"}
    return one.operands[1].strip("[] ") if loads and one.operands[0] == register else ""


class LaunchTrack(Track):
    """A track that keeps its first records; `lim` is the end of its capacity, at an even slot."""

    parameters: TrackParameters

    def _pointer(self) -> str:
        load = f"ld.param.b64 %wl_b, [{self.parameters.address}];"
        if not self.function.is_entry:
            load = "ld.local.b64 %wl_b, [%wl_f+24];"
        return load + " mov.b64 {%wl_s, %wl_z}, %wl_b; shr.u32 %wl_z, %wl_z, 31;"

    def framed(self) -> str:
        return "\tst.local.b64 [%wl_f+24], %wl_b;"

    def prologue(self) -> str:
        """Find the track, decide whether this thread records, and report in the launch header if it cannot."""
        head = STORES.index(self.parameters.store) << 16 | FULL_MODES.index(self.parameters.full)
        # The launch header's fields are addressed relative to the first track, which saves a register.
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
        """Set WHY to the reason why the track cannot be used (0 if it can), and %wl_w to its index.

        Inputs: %wl_s capacity, %wl_v stride, %wl_u tracks, %wl_w tracks per block, %wl_x block, %wl_t warp.
        """
        tracks, room = REFUSALS.index("tracks"), REFUSALS.index("room")
        return [
            "setp.lt.u32 %wl_q, %wl_t, %wl_w; mad.lo.u32 %wl_w, %wl_x, %wl_w, %wl_t;",
            "setp.lt.and.u32 %wl_q, %wl_w, %wl_u, %wl_q;",
            "add.u32 %wl_u, %wl_w, 1; mul.hi.u32 %wl_u, %wl_u, %wl_v; setp.eq.and.u32 %wl_q, %wl_u, 0, %wl_q;",
            f"selp.b32 {WHY}, 0, {tracks}, %wl_q;",
            # The stride must be large enough, and the track must not cross a 4 GiB boundary.
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
        """Convert the capacity in %wl_s to the bytes up to `lim`.

        `lim` is at an even slot: if one of two records that share a store is within the capacity, both are stored.
        """
        return ["add.u32 %wl_s, %wl_s, 1; and.b32 %wl_s, %wl_s, -2; shl.b32 %wl_s, %wl_s, 3;"]

    def _capacity(self) -> str:
        """Load the capacity into %wl_s if this thread records."""
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
        """Copy the module's constants up to the end of the names, if the host requested them; see warplens_ptx.h."""
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
    """A ring whose size is the largest power of two of slots within its capacity."""

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
    """A track to which all lanes write records; see spread.py."""

    def _start(self) -> list[str]:
        return [
            f"add.u32 %wl_lo, %wl_lo, {LANE}; add.u32 %wl_lo, %wl_lo, {HEADER_BYTES};",
            # Overwrite %wl_t, into which some lanes read the clock at marks: if its old value were still needed, ptxas
            # would copy it back and forth in every iteration of a loop.
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
