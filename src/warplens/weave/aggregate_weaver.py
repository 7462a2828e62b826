"""Weave a kernel whose warps keep statistics of their regions instead of records (`mode="aggregate"`).

The clock of a begin waits in a register of its own: the path of enclosing regions is known at each mark
(region_paths.py), so begins and ends are matched when weaving. An end adds the duration to the row of its path in the
warp's own memory, which record/aggregate_rows.py describes, with plain loads and stores: nobody else writes there. The
loads follow the clock read, and what uses them comes before the next mark, so that the code between hides them. Rows of
regions in loops stay in registers instead (register_rows.py).
"""

from __future__ import annotations

import json
import math

from warplens.ptx.control_flow import ControlFlow
from warplens.ptx.edits import NodePosition
from warplens.ptx.labels import end_with_return
from warplens.ptx.syntax import PtxError
from warplens.ptx.tree import Function, Instruction, PtxModule, Raw
from warplens.record.aggregate_rows import BUCKETS, MAX_ROWS, AggregateLayout, AggregateRow
from warplens.record.layout import HEADER_BYTES, Kind, TrackState
from warplens.weave.function_weaver import insert_opening
from warplens.weave.mark_comments import WOVEN
from warplens.weave.mark_sites import MarkBlock, MarkSite, Outline, outline
from warplens.weave.plain_body import PlainCopies
from warplens.weave.region_paths import RegionPath, region_paths
from warplens.weave.register_rows import FIRST_BUCKET, RegisterRows
from warplens.weave.track_ptx import AWAITED, FIELD, ZERO, Track, text_of
from warplens.weave.weaving import AnyBuffer, LaunchBuffer, SymbolBuffer, Weaving
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
    threads: dict[str, int] = {}
    layouts: dict[str, AggregateLayout] = {}
    copies = PlainCopies(module, how, plain)
    for function in module.functions:
        if function.body is None:
            continue
        end_with_return(function)
        sketch = outline(function, module.files)
        if not sketch.sites:
            continue
        if not function.is_entry:
            problem = "a function that is not inlined has marks, which mode='aggregate' cannot follow"
            raise PtxError(function.line, function.header, problem, "use mode='trace'", function.name)
        for site in sketch.sites:
            if site.mark.kind is Kind.ANCHOR:
                continue
            number = numbers.setdefault(site.mark.name, len(numbers) + 1)
            if site.location:
                locations.setdefault(number, site.location)
        entries[function.name] = len(sketch.sites)
        if "reqntid" in function.performance:
            threads[function.name] = math.prod(function.performance["reqntid"])
        kernel = _AggregateKernel(function, sketch, buffer, how, numbers)
        kernel.weave()
        layouts[function.name] = kernel.layout
        copies.add(function)
    if isinstance(buffer, SymbolBuffer) and entries:
        first = next(i for i, item in enumerate(module.items) if isinstance(item, Function))
        module.items.insert(first, Raw.of(f".visible .const .align 8 .b64 {buffer.name};"))
    regions = {number: name for name, number in numbers.items()}
    stores = dict.fromkeys(entries, STORE)
    woven = Woven("", regions, locations, entries, threads, 0, "stop", stores, aggregates=layouts)
    header = "// " + WOVEN + json.dumps(woven.describe(), separators=(",", ":")) + "\n"
    return Woven.restore(header + module.text(), woven.describe())


class _AggregateTrack(Track):
    """A track whose address stays in %wl_a and whose leader stays in %wl_p."""

    def _start(self) -> list[str]:
        return [f"mov.b32 {_ARRIVED}, {ZERO};"]

    def closing(self, slots: int, rows: RegisterRows) -> str:
        return text_of([
            self.exit_clock(),
            *rows.closing(),
            f"add.u32 %wl_s, {_ARRIVED}, {slots}; mov.b32 %wl_t, {int(TrackState.EXITED)};",
            f"@%wl_p st.global.v2.b32 [%wl_a+{FIELD['written']}], {{%wl_s, %wl_t}};",
            f"@%wl_p st.global.v2.b64 [%wl_a+{FIELD['exit_clock']}], {{%wl_ec, %wl_en}};",
        ])  # fmt: skip


class _AggregateKernel:
    """Rewrites one kernel."""

    def __init__(
        self, function: Function, sketch: Outline, buffer: AnyBuffer, how: Weaving, numbers: dict[str, int]
    ) -> None:
        self.function, self.sketch, self.how = function, sketch, how
        self.wide = how.clock == "64"
        self.track = _AggregateTrack(function, buffer, how, 0)
        self.paths = region_paths(ControlFlow(function), sketch.sites)
        self.rows: dict[tuple[RegionPath, bool], int] = {}
        """By path, and whether it is an instant: the row."""
        self.layout = self._layout(numbers)
        self.in_registers = RegisterRows(self.layout, [] if self.wide else self._looped())
        self.registers: list[str] = []

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
        return AggregateLayout(tuple(rows), self.wide)

    def _looped(self) -> list[int]:
        """The rows of regions that end in a loop, the innermost ones first."""
        ends = [
            self.paths[id(site)]
            for block in self.sketch.blocks
            if block.in_loop
            for site in block.sites
            if site.mark.kind is Kind.END and id(site) in self.paths
        ]
        return [self.rows[path, False] for path in sorted(dict.fromkeys(ends), key=len, reverse=True)]

    def weave(self) -> None:
        for instruction in self.function.instructions():
            if AWAITED in instruction.raw:
                instruction.raw = instruction.raw.replace(AWAITED, _ARRIVED)
        for block in self.sketch.blocks:
            self._block(block)
        for position in self.sketch.barriers:
            self._settle(position)
        for number, position in enumerate(self.sketch.exits):
            self._exit(number, position)
        self.sketch.edits.apply()
        clocks = [f"\t.reg .b{64 if self.wide else 32} {self._begin(row)};" for row in self.layout.spans]
        declared = [self.track.declarations, f"\t.reg .b32 {_ARRIVED};", *clocks, *self.registers]
        opening = [self.track.prologue(), *self.in_registers.opening(), self.track.start_clock(), self.track.started()]
        insert_opening(self.function, "\n".join([*declared, *opening]))

    def _begin(self, row: int) -> str:
        """The register with the clock of the newest begin of a row."""
        return f"%wl_o{row}"

    def _new(self, size: str) -> str:
        name = f"%wl_g{len(self.registers)}"
        self.registers.append(f"\t.reg .{size} {name};")
        return name

    def _block(self, block: MarkBlock) -> None:
        pending: list[str] = []
        for group in block.groups(self.how.fuse):
            clock, read = self._clock()
            loads: list[str] = []
            updates: list[str] = []
            seen: set[int] = set()
            for site in group:
                found = self._site(site, clock)
                if found is None:
                    continue
                row, load, update = found
                if row in seen:  # the same row once more: its first update comes first
                    loads, updates = [*loads, *updates, *load], update
                    seen = {row}
                else:
                    loads, updates = [*loads, *load], [*updates, *update]
                    seen.add(row)
            group[0].position.after(Raw.of("\n".join([*pending, read, *loads])))
            pending = updates
        if pending:
            block.end.before(Raw.of("\n".join(pending)))

    def _clock(self) -> tuple[str, str]:
        # Without a predicate that varies between lanes, ptxas would read the clock through the slower uniform datapath.
        register = self._new("b64" if self.wide else "b32")
        read = f"mov.u64 {register}, %clock64;" if self.wide else f"mov.u32 {register}, %clock;"
        return register, f"\t@%wl_p {read}"

    def _site(self, site: MarkSite, clock: str) -> tuple[int, list[str], list[str]] | None:
        """The row of a mark, the PTX right after its clock read, and the PTX that stores the result."""
        path, kind = self.paths.get(id(site)), site.mark.kind
        if path is None or kind is Kind.ANCHOR:
            return None
        if kind is Kind.BEGIN:
            row = self.rows[path, False]
            return -1 - row, [f"\tmov.b{64 if self.wide else 32} {self._begin(row)}, {clock};"], []
        if kind is Kind.END:
            row = self.rows[path, False]
            return row, *self._end(row, clock)
        row = self.rows[path, True]
        at, count = HEADER_BYTES + self.layout.statistics_at(row), self._new("b64")
        return (
            row,
            [f"\t@%wl_p ld.global.b64 {count}, [%wl_a+{at}];"],
            [f"\tadd.s64 {count}, {count}, 1; @%wl_p st.global.b64 [%wl_a+{at}], {count};"],
        )

    def _end(self, row: int, clock: str) -> tuple[list[str], list[str]]:
        at = HEADER_BYTES + self.layout.statistics_at(row)
        bucket_at = HEADER_BYTES + self.layout.histogram_at(row) - 4 * FIRST_BUCKET
        begin, total, place, counter = self._begin(row), self._new("b64"), self._new("b64"), self._new("b32")
        duration, bucket, real = self._new("b64" if self.wide else "b32"), self._new("b32"), self._new("f32")
        kind = "u64" if self.wide else "u32"
        measure = [f"\tsub.{kind} {duration}, {clock}, {begin};"]
        numbered = [
            f"cvt.rz.f32.{kind} {real}, {duration};",
            # The exponent and two bits of the fraction number the bucket.
            f"mov.b32 {bucket}, {real}; shr.u32 {bucket}, {bucket}, 21; max.u32 {bucket}, {bucket}, {FIRST_BUCKET};",
        ]
        if row in self.in_registers:
            return measure, ["\t" + line for line in numbered] + self.in_registers.add(row, duration, bucket, total)
        load = [
            *numbered,
            *[f"min.u32 {bucket}, {bucket}, {FIRST_BUCKET + BUCKETS - 1};"] * self.wide,
            f"mad.wide.u32 {place}, {bucket}, 4, %wl_a;",
            f"@%wl_p ld.global.b32 {counter}, [{place}+{bucket_at}];",
        ]
        store = [f"add.u32 {counter}, {counter}, 1; @%wl_p st.global.b32 [{place}+{bucket_at}], {counter};"]
        if self.wide:
            least, most, other = self._new("b64"), self._new("b64"), self._new("b64")
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
            both, least, most, other = self._new("b64"), self._new("b32"), self._new("b32"), self._new("b64")
            load.append(f"@%wl_p ld.global.v2.b64 {{{total}, {both}}}, [%wl_a+{at}];")
            store += [
                f"cvt.u64.u32 {other}, {duration}; add.s64 {total}, {total}, {other};",
                f"mov.b64 {{{least}, {most}}}, {both}; max.u32 {most}, {most}, {duration};",
                f"not.b32 {bucket}, {duration}; max.u32 {least}, {least}, {bucket};",
                f"mov.b64 {both}, {{{least}, {most}}};",
                f"@%wl_p st.global.v2.b64 [%wl_a+{at}], {{{total}, {both}}};",
            ]
        return [*measure, *("\t" + line for line in load)], ["\t" + line for line in store]

    def _settle(self, position: NodePosition) -> None:
        """Add a warp barrier after a block barrier; see FunctionWeaver."""
        barrier = position.node
        assert isinstance(barrier, Instruction)
        guard = f"@{'!' * barrier.negated}{barrier.predicate} " if barrier.predicate else ""
        if barrier.opcode == "bar" or "aligned" in barrier.modifiers:
            position.after(Raw.of(f"\t{guard}bar.warp.sync 0xffffffff;"))
        else:
            mask = self._new("b32")
            position.after(Raw.of(f"\t{guard}activemask.b32 {mask};\n\t{guard}bar.warp.sync {mask};"))

    def _exit(self, number: int, position: NodePosition) -> None:
        instruction, text = position.node, self.track.closing(self.layout.slots, self.in_registers)
        assert isinstance(instruction, Instruction)
        if instruction.predicate is None:
            position.before(Raw.of(text))
            return
        skip, sign = f"$wl_stay_{self.function.name}_{number}", "" if instruction.negated else "!"
        position.before(
            Raw.of(f"\t@{sign}{instruction.predicate} bra {skip};\n{text}\n\t{instruction.opcode};\n{skip}:")
        )
        position.remove()
