"""Tracks that buffer their records in shared memory, where a store is cheaper.

Each track has `slots` slots of the block's shared memory. A ring keeps its latest records there and copies them to the
track when the thread exits. A track that stops when full spills instead: before a block of marks that might not fit,
the buffered records are appended to the track in global memory, so that no record is lost that the track can hold.
"""

from __future__ import annotations

from dataclasses import dataclass

from warplens.ptx.tree import Function
from warplens.record.layout import HEADER_AT, SLOT_BYTES, Kind, TrackState
from warplens.weave.track_ptx import RingTrack, Track, text_of, vector_of
from warplens.weave.weaving import AnyBuffer, SharedBuffer, Weaving

_CHUNK = 4
"""Slots copied per iteration; all their loads are issued before the first store."""
_DECLARATIONS = """
	.reg .b32 %wl_sh, %wl_sp, %wl_n, %wl_r;
	.reg .b64 %wl_y<4>;
	.reg .pred %wl_o, %wl_e;"""


@dataclass
class _Labels:
    """Generates labels that are unique in the function."""

    function: str
    count: int = 0

    def new(self) -> str:
        self.count += 1
        return f"$wl_{self.function}_flush{self.count}"


def _base(shared: SharedBuffer) -> list[str]:
    """Set %wl_sh to the address of this track's slots, from the index of the track in %wl_w."""
    return [
        f"mov.u32 %wl_sh, {shared.symbol}; mad.lo.u32 %wl_sh, %wl_w, {shared.slots * SLOT_BYTES}, %wl_sh;",
        f"add.u32 %wl_sh, %wl_sh, {shared.offset};",
    ]


def _copy(labels: _Labels, target: str, count: str = "%wl_r") -> list[str]:
    """Copy `count` bytes from %wl_sh to the address in `target`; changes both, %wl_t, %wl_e and the %wl_y."""
    loop, done = labels.new(), labels.new()
    lines = [f"mov.b32 %wl_t, %wl_sh; setp.eq.u32 %wl_e, {count}, 0; @%wl_e bra {done};", f"{loop}:"]
    lines += [f"ld.shared.b64 %wl_y{i}, [%wl_t+{i * SLOT_BYTES}];" for i in range(_CHUNK)]
    for i in range(_CHUNK):
        guard = f"setp.gt.u32 %wl_e, {count}, {i * SLOT_BYTES}; @%wl_e "
        lines.append(f"{guard if i else ''}st.global.b64 [{target}+{i * SLOT_BYTES}], %wl_y{i};")
    size = _CHUNK * SLOT_BYTES
    return [
        *lines,
        f"setp.gt.u32 %wl_e, {count}, {size}; sub.u32 {count}, {count}, {size}; add.u32 %wl_t, %wl_t, {size};",
        f"add.s64 {target}, {target}, {size};",
        f"@%wl_e bra {loop};",
        f"{done}:",
    ]


class _InSharedMemory(Track):
    """A track whose records wait in shared memory."""

    def __init__(self, function: Function, buffer: AnyBuffer, how: Weaving, slack: int) -> None:
        super().__init__(function, buffer, how, slack)
        assert how.shared is not None
        self.shared, self.labels = how.shared, _Labels(function.name)


class SharedRing(_InSharedMemory, RingTrack):
    """A ring in shared memory; `lo` counts bytes, `lim` is the address of slot 0 of the track."""

    declarations = RingTrack.declarations + _DECLARATIONS

    def _start(self) -> list[str]:
        return [*_base(self.shared), *super()._start()]

    def store(self, back: int, value: str) -> str:
        mask = (self.shared.slots - 1) * SLOT_BYTES
        return text_of([
            f"add.u32 %wl_t, %wl_lo, {-back * SLOT_BYTES}; and.b32 %wl_t, %wl_t, {mask};",
            "add.u32 %wl_t, %wl_t, %wl_sh;",
            f"@%wl_p st.shared.{vector_of(value)} [%wl_t], {value};",
        ])  # fmt: skip

    def epilogue(self, pending: str) -> str:
        skip = self.labels.new()
        flush = [
            f"@!%wl_q bra {skip};",
            f"min.u32 %wl_r, %wl_lo, {self.shared.slots * SLOT_BYTES}; mov.b64 %wl_d, {{%wl_lim, %wl_hi}};",
            *_copy(self.labels, "%wl_d"),
            *_flush_time("%wl_ec"),
            f"{skip}:",
        ]
        return super().epilogue(pending) + "\n" + text_of(flush)


class SharedTrack(_InSharedMemory):
    """A track whose records are buffered from %wl_sh to %wl_sp; `lo` is the address of the next spill."""

    declarations = Track.declarations + _DECLARATIONS

    def _start(self) -> list[str]:
        empty = "mov.b32 %wl_sp, %wl_sh; setp.ne.u32 %wl_o, %wl_sh, %wl_sh;"
        return [*_base(self.shared), empty, *super()._start()]

    def step(self, slots: int) -> str:
        skip = self.labels.new()
        most = (self.shared.slots - slots) * SLOT_BYTES
        return text_of([
            f"sub.u32 %wl_n, %wl_sp, %wl_sh; setp.gt.and.u32 %wl_q, %wl_n, {most}, %wl_p;",
            f"@!%wl_q bra {skip};",
            *self._spill(),
            f"{skip}:",
            f"add.u32 %wl_sp, %wl_sp, {slots * SLOT_BYTES};",
        ])  # fmt: skip

    def store(self, back: int, value: str) -> str:
        return text_of([f"@%wl_p st.shared.{vector_of(value)} [%wl_sp+{-back * SLOT_BYTES}], {value};"])

    def _spill(self) -> list[str]:
        """Append the %wl_n buffered bytes as far as they fit in the track, and empty the buffer."""
        cut, copy = self.labels.new(), self.labels.new()
        return [
            # %wl_o stays set once the track is full, so that a low word that wraps cannot write again.
            "sub.u32 %wl_r, %wl_lim, %wl_lo; setp.gt.or.u32 %wl_o, %wl_lo, %wl_lim, %wl_o;",
            "selp.b32 %wl_r, 0, %wl_r, %wl_o; min.u32 %wl_r, %wl_r, %wl_n; setp.lt.or.u32 %wl_o, %wl_r, %wl_n, %wl_o;",
            "mov.b64 %wl_a, {%wl_lo, %wl_hi}; add.u32 %wl_lo, %wl_lo, %wl_n; sub.u32 %wl_n, %wl_n, %wl_r;",
            # A payload whose record is cut off would be decoded as a record, so its slot is left empty.
            f"setp.eq.u32 %wl_e, %wl_n, 0; @%wl_e bra {copy};",
            f"setp.eq.u32 %wl_e, %wl_r, 0; @%wl_e bra {copy};",
            "add.u32 %wl_t, %wl_sh, %wl_r; ld.shared.b32 %wl_n, [%wl_t]; and.b32 %wl_n, %wl_n, 7;",
            f"setp.eq.u32 %wl_e, %wl_n, {int(Kind.VALUE)}; @%wl_e bra {cut};",
            f"setp.ne.u32 %wl_e, %wl_n, {int(Kind.ANCHOR)}; @%wl_e bra {copy};",
            f"{cut}:",
            f"sub.u32 %wl_r, %wl_r, {SLOT_BYTES};",
            f"{copy}:",
            *_copy(self.labels, "%wl_a"),
            "mov.b32 %wl_sp, %wl_sh;",
        ]

    def epilogue(self, pending: str) -> str:
        """Copy out the buffered records, then store the exit fields of the header."""
        skip = self.labels.new()
        lines = [
            "sub.u32 %wl_n, %wl_sp, %wl_sh; setp.ne.u32 %wl_q, %wl_lim, 0;",
            f"@!%wl_q bra {skip};",
            *self._spill(),
            *self._exit_header(),
            f"mov.b32 %wl_t, {int(TrackState.EXITED)}; "
            f"st.global.v2.b32 [%wl_a+{HEADER_AT['written']}], {{%wl_s, %wl_t}};",
            f"st.global.v2.b64 [%wl_a+{HEADER_AT['exit_clock']}], {{%wl_ec, %wl_en}};",
            *_flush_time("%wl_ec"),
            f"{skip}:",
        ]
        return text_of(lines)


def _flush_time(since: str) -> list[str]:
    """Store the cycles since the 64-bit clock `since` into the header at %wl_a."""
    return [
        f"cvt.u32.u64 %wl_t, {since}; mov.u32 %wl_n, %clock; sub.u32 %wl_n, %wl_n, %wl_t;",
        f"st.global.b32 [%wl_a+{HEADER_AT['flush']}], %wl_n;",
    ]


def smallest(slack: int) -> int:
    """The minimum number of slots in shared memory: those of one block of marks, and at least 32."""
    return max(32, 1 << (slack - 1).bit_length())
