"""Weave a kernel so that it holds nothing in registers between two marks.

Every mark has a slot of its own, so no write pointer advances, and each mark computes the address of the track again
from the buffer's parameter and the block and thread indices. This costs about twenty instructions per mark, but no
register across the kernel's own code. It only works for marks that a warp passes at most once: marks in loops are
refused. A kernel without any mark records the lives of its warps: start, exit and SM.

Slots are numbered in an order in which every path passes the marks. A slot whose mark was not passed stays empty.
"""

from __future__ import annotations

from collections.abc import Collection

from warplens.ptx.control_flow import ControlFlow
from warplens.ptx.edits import NodePosition
from warplens.ptx.syntax import PtxError
from warplens.ptx.tree import Comment, Function, Instruction, PtxModule, Raw, parse
from warplens.record.layout import HEADER_AT, HEADER_BYTES, SLOT_BYTES, TRACK_MAGIC, Kind, word0
from warplens.weave.code_between import code_between, number_regions
from warplens.weave.function_weaver import insert_before_exit, insert_opening
from warplens.weave.mark_sites import MarkSite, Outline, kernels_with_marks, number_marks
from warplens.weave.plain_body import PlainCopies
from warplens.weave.region_code import region_code
from warplens.weave.track_ptx import AWAITED, Track, exit_fields, text_of
from warplens.weave.weaving import (
    MIN_SHIFT,
    SHIFT_MASK,
    AnyBuffer,
    LaunchBuffer,
    ParamBuffer,
    SymbolBuffer,
    Weaving,
    capacity_of,
)
from warplens.weave.woven_ptx import Woven

SLACK = 1
MAX_FIXED_SLOTS = capacity_of(MIN_SHIFT, "stop", SLACK)
"""The smallest track has this many slots, so a fixed slot is never outside its track."""
STORE = "fixed"
"""The name of this store policy in a launch."""
_KINDS = (Kind.BEGIN, Kind.END, Kind.INSTANT)
_ARRIVED = "%wl_y"
"""The register that takes the place of AWAITED: it is zero, and depends on the values that a mark waits for."""


def weave_fixed(
    module: PtxModule, buffer: AnyBuffer, how: Weaving, lives: Collection[str], plain: PtxModule | None = None
) -> Woven:
    """Rewrite the kernels of `module` that have marks, and those named in `lives`, in place."""
    if isinstance(buffer, LaunchBuffer):
        raise PtxError(0, "", "fixed slots need a buffer of woven tracks")
    files, numbers = module.files, dict[str, int]()
    locations: dict[int, str] = {}
    entries: dict[str, int] = {}
    code: dict[str, dict[str, dict[str, float]]] = {}
    between: dict[str, list[list[int]]] = {}
    copies = PlainCopies(module, how, plain)
    for function, sketch in kernels_with_marks(module, "a called function has marks", others=lives):
        number_marks(sketch.sites, numbers, locations)
        entries[function.name] = len(sketch.sites)
        unmarked = code_between(function, sketch.sites, files) if how.between and sketch.sites else ()
        if unmarked:
            between[function.name] = number_regions(unmarked, numbers, locations)
        code[function.name] = region_code(function, numbers, sketch.sites, unmarked)
        _KernelWeaver(function, sketch, buffer, how, numbers).weave()
        copies.add(function)
    if isinstance(buffer, SymbolBuffer) and entries:
        module.declare(buffer.declaration)
    regions = {number: name for name, number in numbers.items()}
    stores, threads = dict.fromkeys(entries, STORE), module.fixed_threads(entries)
    woven = Woven("", regions, locations, entries, threads, SLACK, "stop", stores, code, between)
    return woven.with_text(module.text())


def fits_fixed(text: str) -> bool:
    """Whether the kernels of a marked module can have fixed slots."""
    try:
        weave_fixed(parse(text), ParamBuffer(), Weaving(), ())
    except PtxError:
        return False
    return True


class _FixedTrack(Track):
    """The PTX that finds the track and stores into its fixed slots."""

    def find(self, clock: str = "") -> list[str]:
        """Set %wl_a to the address of the track, and %wl_p in the thread that records.

        ptxas would keep what it computed for an earlier mark in registers. It cannot if the result depends on a `clock`
        that was read since: bit 63 of a clock, which ptxas does not know to be zero, is added to the pointer.
        """
        load, _, rest = self._pointer().partition("; ")
        fresh = [f"shr.u64 %wl_d, {clock}, 63; add.s64 %wl_b, %wl_b, %wl_d;"] if clock else []
        return [
            f"{load};",
            *fresh,
            rest,
            f"setp.ge.u32 %wl_p, %wl_s, {MIN_SHIFT}; and.b64 %wl_b, %wl_b, {~SHIFT_MASK};",
            *self._block(),
            *self._warp(),
            "mad.lo.u32 %wl_u, %wl_u, %wl_v, %wl_w; cvt.u64.u32 %wl_a, %wl_u;",
            "shl.b64 %wl_a, %wl_a, %wl_s; add.s64 %wl_a, %wl_b, %wl_a;",
            *self._sm(),
        ]

    def opening(self) -> str:
        """Write the first part of the header, then read the start clock and write it."""
        return text_of([
            *self.find(),
            f"mov.b32 %wl_v, {TRACK_MAGIC};",
            "@%wl_p st.global.v4.b32 [%wl_a], {%wl_v, %wl_x, %wl_t, %wl_u};",
            self.start_clock(),
            f"@%wl_p st.global.v2.b64 [%wl_a+{HEADER_AT['start_clock']}], {{%wl_b, %wl_d}};",
        ])  # fmt: skip

    def mark(self, words: list[tuple[int, int]], waited: bool) -> str:
        """Read the clock, and store the record of each (slot, first word)."""
        return text_of([
            "mov.u64 %wl_ec, %clock64; cvt.u32.u64 %wl_c, %wl_ec;",
            *self.find("%wl_ec"),
            *[f"cvt.u64.u32 %wl_d, {_ARRIVED}; add.s64 %wl_a, %wl_a, %wl_d;"] * waited,
            *(
                f"@%wl_p st.global.v2.b32 [%wl_a+{HEADER_BYTES + slot * SLOT_BYTES}], {{{word}, %wl_c}};"
                for slot, word in words
            ),
        ])  # fmt: skip

    def await_values(self) -> str:
        """Set ZERO, which ptxas does not know, and the register to which the values that a mark waits for are added."""
        return text_of([self._pointer(), f"mov.b32 {_ARRIVED}, 0;"])

    def closing(self, slots: int) -> str:
        return text_of([
            self.exit_clock(),
            *self.find("%wl_ec"),
            f"mov.b32 %wl_s, {slots};",
            *exit_fields("%wl_p"),
        ])  # fmt: skip


class _KernelWeaver:
    """Rewrites one kernel."""

    def __init__(
        self, function: Function, sketch: Outline, buffer: AnyBuffer, how: Weaving, numbers: dict[str, int]
    ) -> None:
        self.function, self.sketch, self.numbers, self.fuse = function, sketch, numbers, how.fuse
        self.track = _FixedTrack(function, buffer, how, SLACK)
        self.slots = self._slots()

    def _slots(self) -> dict[int, int]:
        """Return the slot of each mark, by the identity of its site."""
        sites, flow = self.sketch.sites, ControlFlow(self.function)
        order = _execution_order(flow)
        if len(sites) > MAX_FIXED_SLOTS:
            raise PtxError(
                sites[-1].mark.line, sites[-1].mark.name, f"a kernel has at most {MAX_FIXED_SLOTS} fixed slots"
            )
        for site in sites:
            block = flow.block_of(site.position.node)
            if site.mark.kind not in _KINDS or block in flow.reachable(flow.blocks[block or 0].successors):
                raise PtxError(site.mark.line, site.mark.name, "only marks outside loops can have fixed slots")
        by_place = sorted(sites, key=lambda site: order.get(flow.block_of(site.position.node) or 0, 0))
        return {id(site): slot for slot, site in enumerate(by_place)}

    def weave(self) -> None:
        waits = self._awaits()
        for block in self.sketch.blocks:
            for group in block.groups(self.fuse):
                self._mark(group, waits)
        for number, position in enumerate(self.sketch.exits):
            self._exit(number, position)
        self.sketch.edits.apply()
        declared = f"{self.track.declarations}\n\t.reg .b32 %wl_c, {_ARRIVED};"
        insert_opening(self.function, f"{declared}\n{self.track.opening()}")

    def _mark(self, group: list[MarkSite], waits: set[int]) -> None:
        words = [(self.slots[id(s)], word0(s.mark.kind, self.numbers[s.mark.name])) for s in group]
        waited = any(id(site.position.node) in waits for site in group)
        group[0].position.after(Raw.of(self.track.mark(words, waited)))

    def _awaits(self) -> set[int]:
        """Prepare the instructions that wait for values; return the marks (by identity) that follow one of them."""
        marks = {id(site.position.node) for site in self.sketch.sites}
        found: set[int] = set()
        waiting = False
        for node in list(self.function.walk()):
            if isinstance(node, Instruction) and AWAITED in node.raw:
                if not waiting:
                    node.lead = f"{node.lead}\n{self.track.await_values()}\n"
                node.raw, waiting = node.raw.replace(AWAITED, _ARRIVED), True
            elif isinstance(node, Comment) and id(node) in marks and waiting:
                found.add(id(node))
                waiting = False
        return found

    def _exit(self, number: int, position: NodePosition) -> None:
        text = self.track.closing(len(self.sketch.sites))
        insert_before_exit(position, text, f"{self.function.name}_{number}")


def _execution_order(flow: ControlFlow) -> dict[int, int]:
    """Number the blocks so that of two blocks outside loops, the one that is executed first has the lower number."""
    done: list[int] = []
    seen = {0}
    stack = [(0, iter(flow.blocks[0].successors))]
    while stack:
        rest = stack[-1][1]
        following = next((after for after in rest if after not in seen), None)
        if following is None:
            done.append(stack.pop()[0])
        else:
            seen.add(following)
            stack.append((following, iter(flow.blocks[following].successors)))
    return {number: place for place, number in enumerate(reversed(done))}
