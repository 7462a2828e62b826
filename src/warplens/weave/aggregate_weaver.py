"""Weave a kernel whose warps keep statistics of their regions instead of records (`mode="aggregate"`).

The clock of a begin waits in a register of its own: the path of enclosing regions is known at each mark
(region_paths.py), so begins and ends are matched when weaving. An end adds the duration to the row of its path in the
warp's own memory, which record/aggregate_rows.py describes, with plain loads and stores: nobody else writes there. The
loads follow the clock read, and what uses them comes before the next mark, so that the code between hides them. Rows of
regions in loops stay in registers instead (register_rows.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from warplens.ptx.control_flow import ControlFlow
from warplens.ptx.divergence import Divergence
from warplens.ptx.edits import NodePosition
from warplens.ptx.syntax import PtxError
from warplens.ptx.tree import Function, Node, PtxModule, Raw
from warplens.record.aggregate_rows import BUCKETS, MAX_ROWS, AggregateLayout, AggregateRow
from warplens.record.layout import HEADER_BYTES, Kind
from warplens.weave.code_between import code_between
from warplens.weave.early_addresses import PRODUCTS
from warplens.weave.early_conditions import make_early
from warplens.weave.early_constants import build_constants
from warplens.weave.function_weaver import insert_before_exit, insert_opening, insert_warp_barrier
from warplens.weave.mark_sites import MarkBlock, MarkSite, Outline, kernels_with_marks, number_marks
from warplens.weave.plain_body import PlainCopies
from warplens.weave.record_ring import CLOCK, RecordRing
from warplens.weave.region_paths import RegionPath, are_nested, open_at, region_paths
from warplens.weave.register_rows import (
    FIRST_BUCKET,
    LANE_BUCKETS,
    NEVER,
    RECORDS,
    RegisterRows,
    bucket_number,
    set_lane_buckets,
)
from warplens.weave.stores.spread import RECONVERGE
from warplens.weave.sum_places import SumPlaces
from warplens.weave.track_ptx import AWAITED, ZERO, Track, exit_fields, text_of
from warplens.weave.weaving import AnyBuffer, LaunchBuffer, SymbolBuffer, Weaving
from warplens.weave.work_names import WORK, free_name
from warplens.weave.woven_ptx import Woven

STORE = "aggregate"
"""The name of this store policy in a launch."""
_ARRIVED = "%wl_y"
"""The register that takes the place of AWAITED; the exit adds it to what it stores."""


def weave_aggregate(module: PtxModule, buffer: AnyBuffer, how: Weaving, plain: PtxModule | None = None) -> Woven:
    """Rewrite the kernels of `module` that have marks, in place."""
    if isinstance(buffer, LaunchBuffer):
        raise PtxError(0, "", "mode='aggregate' needs a buffer of woven tracks")
    numbers: dict[str, int] = {}
    locations: dict[int, str] = {}
    entries: dict[str, int] = {}
    layouts: dict[str, AggregateLayout] = {}
    between: dict[str, list[list[int]]] = {}
    copies = PlainCopies(module, how, plain)
    problem = "a function that is not inlined has marks, which mode='aggregate' cannot follow"
    for function, sketch in kernels_with_marks(module, problem, "use mode='trace'"):
        number_marks(sketch.sites, numbers, locations)
        entries[function.name] = len(sketch.sites)
        kernel = _AggregateKernel(function, sketch, buffer, how, numbers)
        layouts[function.name] = kernel.layout
        if how.between and kernel.closes_all:
            unmarked = code_between(function, sketch.sites, module.files)
            work = numbers.setdefault(free_name(WORK, {site.mark.name for site in sketch.sites}), len(numbers) + 1)
            layouts[function.name] = replace(kernel.layout, work=work)
            between[function.name] = [[numbers.get(one.after, 0), numbers.get(one.before, 0), work] for one in unmarked]
        kernel.weave()
        copies.add(function)
    if isinstance(buffer, SymbolBuffer) and entries:
        module.declare(buffer.declaration)
    regions = {number: name for name, number in numbers.items()}
    stores, threads = dict.fromkeys(entries, STORE), module.fixed_threads(entries)
    woven = Woven("", regions, locations, entries, threads, 0, "stop", stores, {}, between, layouts)
    return woven.with_text(module.text())


class _AggregateTrack(Track):
    """A track whose address stays in %wl_a and whose leader stays in %wl_p; every lane knows if its warp records."""

    def _lane(self) -> str:
        return f"and.b32 {LANE_BUCKETS}, %wl_t, 31; shr.u32 %wl_t, %wl_t, 5;"

    def _sm(self) -> list[str]:
        return [
            *super()._sm(),
            f"selp.b32 %wl_w, {LANE_BUCKETS}, -1, %wl_p; setp.eq.u32 %wl_p, %wl_w, 0;",
            set_lane_buckets("%wl_w"),
            # From a register that is dead afterwards; ptxas would otherwise recompute the predicate at each use.
            f"add.u32 %wl_w, %wl_w, {ZERO}; setp.ne.u32 {RECORDS}, %wl_w, -1;",
        ]

    def _start(self) -> list[str]:
        return [f"mov.b32 {_ARRIVED}, {ZERO};"]

    def closing(self, slots: int, rows: list[str]) -> str:
        return text_of([
            self.exit_clock(),
            *rows,
            f"add.u32 %wl_s, {_ARRIVED}, {slots};",
            *exit_fields("%wl_p"),
        ])  # fmt: skip


@dataclass(frozen=True)
class _MarkCode:
    """The PTX of a mark: before its clock read, right after it, what adds up an execution in registers, and what stores
    the result in memory. `clock` is the register for the clock, if any."""

    clock: str = ""
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    sums: list[str] = field(default_factory=list)
    stores: list[str] = field(default_factory=list)


class _AggregateKernel:
    """Rewrites one kernel."""

    def __init__(
        self, function: Function, sketch: Outline, buffer: AnyBuffer, how: Weaving, numbers: dict[str, int]
    ) -> None:
        self.function, self.sketch, self.how = function, sketch, how
        self.wide = how.clock == "64"
        self.track = _AggregateTrack(function, buffer, how, 0)
        flow = ControlFlow(function)
        self.paths = region_paths(flow, sketch.sites)
        self.open_at_exits = open_at(flow, sketch.sites, [position.node for position in sketch.exits])
        self.closes_all = are_nested(flow, sketch.sites) and all(one == () for one in self.open_at_exits)
        """Whether a warp that exits has spent the rest of its life between its outermost regions."""
        self.rows: dict[tuple[RegionPath, bool], int] = {}
        """By path, and whether it is an instant: the row."""
        self.layout = self._layout(numbers)
        self.registers: list[str] = []
        self.ring = RecordRing(self.layout, numbers, self._new) if self.layout.ring else None
        self.divergence = Divergence(function, aligned=how.aligned)
        self.places = SumPlaces(function, sketch, self._row_of, how)
        late = self.places.late if None not in self.open_at_exits else ()
        self.in_registers = RegisterRows(self.layout, self._looped(), late, self.places.timed, self._new)

    def _layout(self, numbers: dict[str, int]) -> AggregateLayout:
        rows: list[AggregateRow] = []
        for site in self.sketch.sites:
            path = self.paths.get(id(site))
            if path is None or site.mark.kind is Kind.ANCHOR:
                continue
            instant = site.mark.kind not in (Kind.BEGIN, Kind.END)
            for depth in range(1, len(path) + 1):
                key = path[:depth], instant and depth == len(path)
                if key not in self.rows:
                    self.rows[key] = len(rows)
                    parent = self.rows.get((path[: depth - 1], False), -1)
                    rows.append(AggregateRow(numbers[path[depth - 1]], parent, "instant" if key[1] else "span"))
        if len(rows) > MAX_ROWS:
            raise PtxError(self.function.line, self.function.name, f"the kernel has more than {MAX_ROWS} region paths")
        return AggregateLayout(tuple(rows), self.wide, 1 << (self.how.ring - 1).bit_length() if self.how.ring else 0)

    def _looped(self) -> list[int]:
        """The rows of regions that end in a loop and that all lanes of a warp enter together; innermost ones first."""
        if self.wide or self.sketch.calls or not self.divergence.starts_full:
            return []
        marks = [(site, block) for block in self.sketch.blocks for site in block.sites if id(site) in self.paths]
        ends = [self.paths[id(site)] for site, block in marks if block.in_loop and site.mark.kind is Kind.END]
        apart = {self.paths[id(site)] for site, _ in marks if self.divergence.diverges(site.position.node)}
        paths = [path for path in dict.fromkeys(ends) if path not in apart]
        return [self.rows[path, False] for path in sorted(paths, key=len, reverse=True)]

    def _row_of(self, site: MarkSite) -> int | None:
        """The row of a begin or an end that has one."""
        path = self.paths.get(id(site))
        return self.rows.get((path, False)) if path is not None else None

    def weave(self) -> None:
        for instruction in self.function.instructions():
            if AWAITED in instruction.raw:
                instruction.raw = instruction.raw.replace(AWAITED, _ARRIVED)
        opcodes = {instruction.opcode for instruction in self.function.instructions()}
        if "bra" in opcodes and not opcodes & PRODUCTS:
            make_early([block.groups(self.how.fuse)[-1] for block in self.sketch.blocks])
        for block in self.sketch.blocks:
            self._block(block)
        for position in self.sketch.barriers:
            insert_warp_barrier(position, lambda: self._new("b32"))
        for number, position in enumerate(self.sketch.exits):
            self._exit(number, position)
        self.sketch.edits.apply()
        clocks = [self._clocks(row) for row in self.layout.spans]
        declared = [
            self.track.declarations,
            f"\t.reg .b32 {_ARRIVED}, {LANE_BUCKETS}; .reg .pred {RECORDS};",
            *clocks,
            *(self.ring.declarations() if self.ring is not None else ()),
            *self.registers,
        ]
        opening = [self.track.prologue(), *self.in_registers.opening(), self.track.start_clock(), self.track.started()]
        insert_opening(self.function, "\n".join([*declared, *opening]))

    @property
    def _size(self) -> int:
        return 64 if self.wide else 32

    def _begin(self, row: int) -> str:
        """The register with the clock of the newest begin of a row."""
        return f"%wl_o{row}"

    def _end(self, row: int) -> str:
        """The register with the clock of the newest end of a row."""
        return f"%wl_e{row}"

    def _clocks(self, row: int) -> str:
        """Declare both, for an execution that never was."""
        begin, end, size = self._begin(row), self._end(row), self._size
        return f"\t.reg .b{size} {begin}, {end}; mov.b{size} {begin}, 0; mov.b{size} {end}, {NEVER};"

    def _measured(self, row: int) -> tuple[str, str]:
        """The register with a row's newest duration, and the PTX that computes it."""
        duration = self._new(f"b{self._size}")
        return duration, f"\tsub.u{self._size} {duration}, {self._end(row)}, {self._begin(row)};"

    def _new(self, size: str) -> str:
        name = f"%wl_ag{len(self.registers)}"
        self.registers.append(f"\t.reg .{size} {name};")
        return name

    def _constants(self, block: MarkBlock) -> list[str]:
        """The constants to build before the block's regions; see early_constants.py."""
        rows = [self.rows[self.paths[id(site)], False] for site in block.sites if site.mark.kind is Kind.BEGIN
                and id(site) in self.paths]  # fmt: skip
        if not self.how.constants or self.wide or not rows:
            return []
        built, registers = build_constants(block, f"%wl_i{block.order}", self._begin(rows[0]))
        self.registers += [f"\t.reg .b32 {name};" for name in registers]
        return built

    def _block(self, block: MarkBlock) -> None:
        later, gathered = self._constants(block), list[str]()
        for group in block.groups(self.how.fuse):
            lines, later = later, []
            if self._reconverges(group[0].position.node):
                lines.append(RECONVERGE)
            clock = CLOCK if self.ring is not None else ""
            if clock:
                lines.append(self._read(clock))
            for site in group:
                path = self.paths.get(id(site))
                if path is None or site.mark.kind is Kind.ANCHOR:
                    continue
                made = self._site(site.mark.kind, self.rows[path, site.mark.kind not in (Kind.BEGIN, Kind.END)])
                # What earlier marks of this group store comes first, as it may be of the same row.
                lines, later = [*lines, *later, *made.before], made.stores
                if made.clock:
                    lines.append(f"\tmov.b{self._size} {made.clock}, {clock};" if clock else self._read(made.clock))
                    clock = clock or made.clock
                lines += made.after
                gathered += made.sums
                if self.ring is not None:
                    now, record = self.ring.record(site.mark)
                    lines, later = [*lines, *now], [*later, *record]
            if site is block.sites[-1] or not self.places.gathers(block):
                lines, gathered = [*lines, *gathered], []
            group[0].position.after(Raw.of("\n".join(lines)))
        if later:
            block.end.before(Raw.of("\n".join(later)))

    def _reconverges(self, node: Node) -> bool:
        """Whether all lanes of the warp come here, perhaps apart, and have to be together for rows in registers."""
        divergence = self.divergence
        return bool(self.in_registers.rows) and divergence.needs_reconvergence(node) and not divergence.diverges(node)

    def _read(self, register: str) -> str:
        # Without a predicate that varies between lanes, ptxas would read the clock through the slower uniform datapath.
        # With one, and into a register that keeps its value in other lanes, the read is one instruction.
        return (
            f"\t@{RECORDS} mov.u64 {register}, %clock64;" if self.wide else f"\t@{RECORDS} mov.u32 {register}, %clock;"
        )

    def _site(self, kind: Kind, row: int) -> _MarkCode:
        held = self.in_registers
        if kind is Kind.BEGIN:
            if row not in held.late:
                return _MarkCode(clock=self._begin(row))
            duration, computed = self._measured(row)
            return _MarkCode(clock=self._begin(row), before=[computed], after=held.add(row, duration))
        if kind is Kind.END:
            if row in held.late:
                return _MarkCode(clock=self._end(row))
            duration, computed = self._measured(row)
            if row in held:
                return _MarkCode(clock=self._end(row), after=[computed], sums=held.add(row, duration))
            load, store = self._add(row, duration)
            return _MarkCode(clock=self._end(row), after=[computed, *load], stores=store)
        at, count = HEADER_BYTES + self.layout.statistics_at(row), self._new("b64")
        load = [f"\t@%wl_p ld.global.b64 {count}, [%wl_a+{at}];"]
        store = [f"\tadd.s64 {count}, {count}, 1; @%wl_p st.global.b64 [%wl_a+{at}], {count};"]
        return _MarkCode(after=load, stores=store)

    def _add(self, row: int, duration: str) -> tuple[list[str], list[str]]:
        """PTX that loads what an execution is added to, and PTX that adds it and stores the result."""
        at = HEADER_BYTES + self.layout.statistics_at(row)
        bucket_at = HEADER_BYTES + self.layout.histogram_at(row) - 4 * FIRST_BUCKET
        total, place, counter, bucket = self._new("b64"), self._new("b64"), self._new("b32"), self._new("b32")
        other = self._new("b64")
        load = [
            *(line.lstrip() for line in bucket_number(duration, bucket, self._new, f"u{self._size}")),
            *[f"min.u32 {bucket}, {bucket}, {FIRST_BUCKET + BUCKETS - 1};"] * self.wide,
            f"mad.wide.u32 {place}, {bucket}, 4, %wl_a;",
            f"@%wl_p ld.global.b32 {counter}, [{place}+{bucket_at}];",
        ]
        store = [f"add.u32 {counter}, {counter}, 1; @%wl_p st.global.b32 [{place}+{bucket_at}], {counter};"]
        if self.wide:
            least, most = self._new("b64"), self._new("b64")
            load += [
                f"@%wl_p ld.global.v2.b64 {{{total}, {least}}}, [%wl_a+{at}];",
                f"@%wl_p ld.global.b64 {most}, [%wl_a+{at + 16}];",
            ]
            store += [
                f"add.s64 {total}, {total}, {duration}; not.b64 {other}, {duration};",
                f"max.u64 {least}, {least}, {other}; max.u64 {most}, {most}, {duration};",
                f"@%wl_p st.global.v2.b64 [%wl_a+{at}], {{{total}, {least}}};",
                f"@%wl_p st.global.b64 [%wl_a+{at + 16}], {most};",
            ]
        else:
            both, least, most = self._new("b64"), self._new("b32"), self._new("b32")
            load.append(f"@%wl_p ld.global.v2.b64 {{{total}, {both}}}, [%wl_a+{at}];")
            store += [
                f"cvt.u64.u32 {other}, {duration}; add.s64 {total}, {total}, {other};",
                f"mov.b64 {{{least}, {most}}}, {both}; max.u32 {most}, {most}, {duration};",
                f"not.b32 {bucket}, {duration}; max.u32 {least}, {least}, {bucket};",
                f"mov.b64 {both}, {{{least}, {most}}};",
                f"@%wl_p st.global.v2.b64 [%wl_a+{at}], {{{total}, {both}}};",
            ]
        return ["\t" + line for line in load], ["\t" + line for line in store]

    def _exit(self, number: int, position: NodePosition) -> None:
        still_open = {self.rows[path, False] for path in self.open_at_exits[number] or ()}
        rows = self.in_registers.closing(self._measured, still_open)
        text = self.track.closing(self.layout.slots, [*rows, *(self.ring.closing() if self.ring is not None else ())])
        insert_before_exit(position, text, f"{self.function.name}_{number}")
