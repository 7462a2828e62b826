"""One function, rewritten: clock reads at its marks, stores where the policy puts them, its opening and its exits."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from warplens.record.layout import WIDE_KINDS, Kind, ValueType, word0
from warplens.weave import spread
from warplens.weave.blocks import Block, MarkSite, Outline, Place, is_placeholder
from warplens.weave.conditions import make_early
from warplens.weave.constants import build_constants
from warplens.weave.held import LAST, Held
from warplens.weave.marks import PAYLOAD, Mark
from warplens.weave.ptx import Function, Instruction, Label, Node, Raw, Scope
from warplens.weave.shared import SharedRing, SharedTrack
from warplens.weave.tracks import AWAITED, ZERO, LeanTrack, RingTrack, Track

if TYPE_CHECKING:
    from warplens.weave.weaver import Weaver

HELD = 8
"""Clocks a block may hold in registers until its end."""

_TO_64 = {"s32": "cvt.s64.s32", "u32": "cvt.u64.u32", "s64": "mov.b64", "u64": "mov.b64", "f64": "mov.b64"}
_VALUE_TAG = {
    "s32": ValueType.I64, "s64": ValueType.I64, "u32": ValueType.U64, "u64": ValueType.U64,
    "f32": ValueType.F64, "f64": ValueType.F64,
}  # fmt: skip


@dataclass(frozen=True)
class _Record:
    """One record to store: its first slot counted back from the block's end, its words, its clock's group."""

    back: int
    word: str
    clock: str
    group: int
    payload: str = ""

    @property
    def words(self) -> str:
        return f"{{{self.word}, {self.clock}}}"


class FunctionWeaver:
    """Rewrites one function in place."""

    def __init__(self, weaver: Weaver, function: Function, sketch: Outline) -> None:
        self.weaver, self.function, self.sketch = weaver, function, sketch
        self.store = weaver.stores[function.name]
        self.whole = weaver.whole[function.name] if self.store == "spread" else None
        kinds = (SharedTrack, SharedRing) if weaver.how.shared else (Track, RingTrack)
        kind: type[Track] = kinds[weaver.how.full == "ring"]
        if self.whole is not None:
            kind = spread.SpreadTrack
        elif kind is Track and weaver.how.lean and not weaver.calls.has_stateful_functions:
            kind = LeanTrack
        self.track = kind(function, weaver.buffer, weaver.how, weaver.slack)
        self.opcodes = {node.opcode for node in function.instructions()}
        self.registers: list[str] = []
        self.kept: dict[int, str] = {}
        self.spread_words: dict[int, str] = {}
        self.runs = weaver.runs[function.name] if self.whole is not None else []
        """Blocks that share a store, spread over the lanes."""
        together = {block.order for run in self.runs for block in run}
        self.alone = [block for block in sketch.blocks if block.order not in together]
        loops = [run for run in self.runs if run[0].in_loop]
        reads = [slot for run in loops for _, _, slot in self._reads(run)]
        self.lanes = spread.Lanes([*reads, *(sum(block.slots for block in run) for run in loops)])
        self._keep_words()
        self.held = Held(sketch.blocks, weaver.pair, self._word, self.kept) if self.store == "defer" else None
        # Next to a matrix product, shorter loops turned out slower: ptxas schedules its loads and products otherwise.
        if self.held and not self.opcodes & {"mma", "wgmma", "tcgen05"}:
            self.track.join()
        self.first = None if self.whole is not None else self._first_mark()

    def weave(self) -> None:
        if self.track.awaited != AWAITED:
            for instruction in self.function.instructions():
                instruction.raw = instruction.raw.replace(AWAITED, self.track.awaited)
        for block in self.sketch.blocks if self.whole is not None else []:
            make_early([site.place for site in self._groups(block)[-1]])
        # The exit is timed before what its block still has to store: that is warplens's work, not the kernel's.
        for place in self.sketch.exits:
            shared = any(block.end.node is place.node and self._ends_at_exit(block) for block in self.alone)
            if self._timed(place) and not shared:
                place.before(Raw.of(self.track.exit_clock()))
        for block in self.alone:
            self._block(block)
        for run in self.runs:
            assert isinstance(self.track, spread.SpreadTrack)
            self._spread(run, self.track)
        for place in self.sketch.barriers:
            self._settle(place)
        for place in self.sketch.calls:
            self.weaver.calls.rewrite_call(place)
        for number, place in enumerate(self.sketch.exits):
            self._exit(number, place)
        if self.function.is_entry:
            opening = [self.track.prologue()]
            opening += [f"\tadd.u32 {register}, {ZERO}, {word};" for word, register in self.kept.items()]
            opening += self.lanes.opening() if self.runs else []
            for run in self.runs:
                if run[0].order in self.spread_words:
                    words = [self._word(site.mark) for block in run for site in block.sites]
                    opening += self.lanes.words(self.spread_words[run[0].order], words)
            opening += self.held.opening() if self.held else []
            opening.append(self.weaver.calls.open(self.function, self.weaver.how.full == "ring"))
            opening.append(self.track.start_clock())
            if self.first is None:
                opening.append(self.track.started())
        else:
            opening = [self.weaver.calls.open(self.function, self.weaver.how.full == "ring")]
            opening += [f"\tmov.b32 {register}, {word};" for word, register in self.kept.items()]
        declared = [self.track.declarations] + [
            f"\t.reg .b32 {name};" for name in self.registers if not name.startswith("%wl_v6")
        ]
        declared += [f"\t.reg .b64 {name};" for name in self.registers if name.startswith("%wl_v6")]
        self._insert_opening("\n".join(text for text in declared + opening if text))

    def _keep_words(self) -> None:
        """Hide the words of marks in loops from ptxas, which would otherwise rebuild the constant at each store."""
        # Accumulators of mma.sync fill the registers, and next to a matrix product a rebuilt constant costs nothing.
        full = "mma" in self.opcodes
        for run in self.runs:
            plain = all(site.mark.slots == 1 and not site.mark.operand for block in run for site in block.sites)
            if run[0].in_loop and plain and len(self.spread_words) < self.weaver.how.keep:
                self.spread_words[run[0].order] = self._new("%wl_k")
        for block in self.alone:
            for site in block.sites if block.in_loop and not full else []:
                word = self._word(site.mark)
                if word not in self.kept and len(self.kept) < self.weaver.how.keep:
                    self.kept[word] = self._new("%wl_k")

    def _new(self, stem: str) -> str:
        name = f"{stem}{len(self.registers)}"
        self.registers.append(name)
        return name

    def _word(self, mark: Mark) -> int:
        if mark.wide and mark.kind in WIDE_KINDS:
            return word0(Kind.ANCHOR, self.weaver.ids[mark.name], mark.kind)
        if mark.kind is Kind.ANCHOR:
            return word0(Kind.ANCHOR)
        tag = int(_VALUE_TAG[mark.type]) if mark.kind is Kind.VALUE else 0
        if mark.operand.isdigit() and mark.kind in (Kind.ASYNC_BEGIN, Kind.ASYNC_END):
            tag = int(mark.operand)
        return word0(mark.kind, self.weaver.ids[mark.name], tag)

    def _spread(self, run: list[Block], track: spread.SpreadTrack) -> None:
        """Every lane from a mark's slot on reads the clock there; one store behind the last mark writes all records."""
        kept = self.spread_words.get(run[0].order)
        slots = sum(block.slots for block in run)
        reads, opened = self._reads(run), None
        made, beyond = self.lanes.beyond(slots)
        # A matrix product's accumulators fill the registers, and it takes longer than the store's reads.
        apart = kept is not None and len(reads) > 1 and not self.opcodes & {"mma", "wgmma"}
        for block, group, slot in reads:
            before: list[str] = []
            if block is not opened:
                before += self._constants(block)
                if self.whole is not None and self.whole.out_of_step(group[0].place.node):
                    before.append(spread.IN_STEP)
                opened = block
            text = self._spread_group(group, slot, kept)
            if apart and group is reads[0][1]:
                text = self.lanes.first(reads[1][2])
            if group is reads[-1][1]:
                before += [*made, track.claim(slots)] if kept else [track.claim(slots)]
                text = self.lanes.last(slot) if apart else text
            group[0].place.after(Raw.of("\n".join(before + text)))
        store = track.write(slots, beyond, kept or spread.WORD, spread.STORED if apart else spread.CLOCK)
        run[-1].end.before(Raw.of("\n".join([store] if kept else [*made, store])))

    def _reads(self, run: list[Block]) -> list[tuple[Block, list[MarkSite], int]]:
        """The marks of a run that share a clock read, and the first slot of each."""
        groups = [(block, group) for block in run for group in self._groups(block)]
        slots = itertools.accumulate((sum(site.mark.slots for site in group) for _, group in groups), initial=0)
        return [(block, group, slot) for (block, group), slot in zip(groups, slots, strict=False)]

    def _spread_group(self, group: list[MarkSite], slot: int, kept: str | None) -> list[str]:
        """The clock read that the group's marks share, and what else of their records is not known before."""
        lanes = self.lanes
        text = [] if group[0].mark.kind in PAYLOAD else lanes.read(slot)
        for site in group:
            if site.mark.kind in PAYLOAD:
                payload, made = self._payload(site.mark)
                text += [*made, f"\tmov.b64 {{%wl_u, %wl_v}}, {payload};"]
                text += [*lanes.put(slot, spread.WORD, "%wl_u"), *lanes.put(slot, spread.CLOCK, "%wl_v")]
                slot += 1
                text += lanes.read(slot)
            if kept is None:
                word, made = self._word_register(site.mark)
                text += [*made, *lanes.put(slot, spread.WORD, word)]
            slot += 1
        return text

    def _block(self, block: Block) -> None:
        """Clock reads at the marks, stores where the policy puts them."""
        groups = self._groups(block)
        at_mark: list[list[str]] = []
        records: list[_Record] = []
        left = block.slots
        for number, group in enumerate(groups):
            last = number == len(groups) - 1
            clock = LAST if self.held and last and number > 0 else self._new("%wl_c")
            # Under register pressure ptxas would read a clock that waits long through the slower uniform path; a
            # predicate that differs between lanes keeps it on the fast one.
            guard = "@%wl_p " if clock == LAST else ""
            at_mark.append([f"\t{guard}mov.u32 {clock}, %clock;"])
            full = ""
            if group[0].mark.wide:
                full = self._new("%wl_v6")
                at_mark[-1] = [f"\tmov.u64 {full}, %clock64; cvt.u32.u64 {clock}, {full};"]
            elif group[0] is self.first:
                at_mark[-1] = [f"\tcvt.u32.u64 {clock}, %wl_b;"]
            elif last and self._ends_at_exit(block):
                at_mark[-1] = [self.track.exit_clock(), f"\tcvt.u32.u64 {clock}, %wl_ec;"]
            at_mark[-1] += self._started(group[0])
            for site in group:
                word, text = self._word_register(site.mark)
                at_mark[-1] += text
                payload = ""
                if full and site.mark.kind in WIDE_KINDS:
                    payload = full
                elif full:
                    records.append(_Record(left, str(word0(Kind.ANCHOR, tag=Kind.ANCHOR)), clock, number, full))
                    left -= 2
                if site.mark.kind in PAYLOAD:
                    payload, text = self._payload(site.mark)
                    at_mark[-1] += text
                records.append(_Record(left, word, clock, number, payload))
                left -= 2 if payload else 1
        before, tail = self._place(block, records, at_mark)
        before[0] += self._constants(block)
        for number, group in enumerate(groups):
            group[0].place.after(Raw.of("\n".join(before[number] + at_mark[number])))
        if tail:
            block.end.before(Raw.of("\n".join(tail)))

    def _constants(self, block: Block) -> list[str]:
        """What the block's regions would otherwise build inside; see constants.py."""
        if not (self.weaver.how.constants and self.function.is_entry):
            return []
        # Not the pointer, if there is a choice: what else reads it makes ptxas copy it.
        built, registers = build_constants(block, f"%wl_i{block.order}", LAST if self.held else "%wl_lo")
        self.registers += registers
        return built

    def _place(
        self, block: Block, records: list[_Record], at_mark: list[list[str]]
    ) -> tuple[list[list[str]], list[str]]:
        """Text before each group's clock read and before the block's end; `now` adds to `at_mark` itself."""
        step, final = self.track.step(block.slots), len(at_mark) - 1
        before: list[list[str]] = [[] for _ in at_mark]
        tail: list[str] = []
        policy = self._policy(block)
        if policy == "now":
            at_mark[0].append(step)
            for record in records:
                at_mark[record.group].append(self._stores([record]))
        elif policy == "late":
            for record in records:
                (before[record.group + 1] if record.group < final else tail).append(self._stores([record]))
            (before[1] if final else tail).insert(0, step)
        elif policy == "end":
            tail = [step, self._stores(records)]
        else:
            assert self.held is not None
            waits = records[-self.held.count :]
            stored = records[: -self.held.count]
            pending = self.track.store(block.slots + self.held.count, self.held.value)
            early = [record for record in stored if record.group < final]
            late = [record for record in stored if record.group == final]
            last = records[-1]
            payload = [self.track.store(last.back, last.payload)] if last.payload else []
            note = self.held.note([record.word for record in waits])
            pairs = zip(self.held.clocks, waits, strict=True)
            copies = [f"\tmov.b32 {clock}, {record.clock};" for clock, record in pairs]
            if final:
                before[final] = [step, pending, self._stores(early)]
                # Behind the read: the store in front of it may still have to take the clock that is replaced.
                at_mark[final] += [*copies[:-1], *note]
                tail = [self._stores(late), *payload]
            else:
                tail = [step, pending, self._stores(late), *payload, *copies, *note]
        return [[text for text in part if text] for part in before], [text for text in tail if text]

    def _policy(self, block: Block) -> str:
        if self.store not in ("mixed", "spread"):
            return self.store
        return "end" if block.in_loop and len(block.sites) <= HELD else "late"

    def _stores(self, records: list[_Record]) -> str:
        """Stores for `records`, in pairs where two share an aligned 16 bytes."""
        lines = []
        index = 0
        while index < len(records):
            record = records[index]
            following = records[index + 1] if index + 1 < len(records) else None
            if record.payload:
                lines.append(self.track.store(record.back, record.payload))
                lines.append(self.track.store(record.back - 1, record.words))
            elif self.weaver.pair and following and not following.payload and record.back % 2 == 0:
                both = f"{{{record.word}, {record.clock}, {following.word}, {following.clock}}}"
                lines.append(self.track.store(record.back, both))
                index += 1
            else:
                lines.append(self.track.store(record.back, record.words))
            index += 1
        return "\n".join(lines)

    def _groups(self, block: Block) -> list[list[MarkSite]]:
        groups: list[list[MarkSite]] = []
        for site in block.sites:
            same_list = bool(groups) and groups[-1][0].place.holder is site.place.holder
            if groups and site.fused and same_list and self.weaver.how.fuse and site.mark.shares_clock:
                groups[-1].append(site)
            else:
                groups.append([site])
        return groups

    def _word_register(self, mark: Mark) -> tuple[str, list[str]]:
        """The operand that holds the record's first word, and the text that computes it at the mark."""
        word = self._word(mark)
        if mark.kind in (Kind.ASYNC_BEGIN, Kind.ASYNC_END) and mark.operand.startswith("%"):
            register = self._new("%wl_g")
            return register, [f"\tshl.b32 {register}, {mark.operand}, 27; or.b32 {register}, {register}, {word};"]
        return self.kept.get(word, str(word)), []

    def _payload(self, mark: Mark) -> tuple[str, list[str]]:
        register = self._new("%wl_v6")
        if mark.kind is Kind.ANCHOR:
            return register, [f"\tmov.u64 {register}, %globaltimer;"]
        if mark.type == "f32":
            return register, [f"\t{{ .reg .f64 %wl_f; cvt.f64.f32 %wl_f, {mark.operand}; mov.b64 {register}, %wl_f; }}"]
        return register, [f"\t{_TO_64[mark.type]} {register}, {mark.operand};"]

    def _settle(self, place: Place) -> None:
        """Hold the warp at a block barrier: the GPU issues what needs no memory, clock reads too, before the barrier
        takes effect. A warp that is whole passes a warp barrier for nothing; measured by benchmarks/barrier_clock.py.
        """
        barrier = place.node
        assert isinstance(barrier, Instruction)
        guard = f"@{'!' * barrier.negated}{barrier.predicate} " if barrier.predicate else ""
        if barrier.opcode == "bar" or "aligned" in barrier.modifiers:
            place.after(Raw.of(f"\t{guard}bar.warp.sync 0xffffffff;"))
        else:
            mask = self._new("%wl_m")
            place.after(Raw.of(f"\t{guard}activemask.b32 {mask};\n\t{guard}bar.warp.sync {mask};"))

    def _first_mark(self) -> MarkSite | None:
        """The mark that nothing of the kernel's own stands before, if there is one."""
        body = self.function.body
        assert body is not None
        site = self.sketch.sites[0] if self.function.is_entry and self.sketch.sites else None
        if site is None:
            return None
        for node, following in zip(body, [*body[1:], None], strict=True):
            if node is site.place.node:
                return site
            if _is_code(node) and not (isinstance(node, Instruction) and is_placeholder(node, following)):
                break
        return None

    def _ends_at_exit(self, block: Block) -> bool:
        """Whether the block's last mark is the last of the kernel's own code: one clock read then times both. A second
        one may have to wait until a store has let go of the registers it writes, and that would be time in no region.
        """
        mark = self._groups(block)[-1][0]
        return not (block.tail or mark.mark.wide or mark is self.first) and any(
            place.node is block.end.node and place.holder is mark.place.holder and self._timed(place)
            for place in self.sketch.exits
        )

    def _timed(self, place: Place) -> bool:
        """Whether an exit's time is taken where the block before it ends."""
        return self._ends_track(place) and not _guarded(place)

    def _started(self, site: MarkSite) -> list[str]:
        return [self.track.started()] if site is self.first else []

    def _ends_track(self, place: Place) -> bool:
        return self.function.is_entry or (isinstance(place.node, Instruction) and place.node.opcode == "exit")

    def _exit(self, number: int, place: Place) -> None:
        instruction = place.node
        assert isinstance(instruction, Instruction)
        if self._ends_track(place):
            text = self.track.epilogue(self.held.value if self.held else "")
            if _guarded(place):
                text = f"{self.track.exit_clock()}\n{text}"
        else:
            text = self.weaver.calls.give_back()
        if instruction.predicate is None:
            place.before(Raw.of(text))
            return
        skip = f"$wl_stay_{self.function.name}_{number}"
        sign = "" if instruction.negated else "!"
        place.before(Raw.of(f"\t@{sign}{instruction.predicate} bra {skip};\n{text}\n\t{instruction.opcode};\n{skip}:"))
        place.remove()

    def _insert_opening(self, text: str) -> None:
        body = self.function.body
        assert body is not None
        for index, node in enumerate(body):
            if _is_code(node):
                body.insert(index, Raw.of(text))
                return


def _is_code(node: Node) -> bool:
    """Whether a node may run, or be jumped to."""
    if isinstance(node, Label):
        return not node.name.startswith(("$L__func_begin", "$L__tmp"))
    return isinstance(node, Instruction | Scope | Raw)


def _guarded(place: Place) -> bool:
    return isinstance(place.node, Instruction) and place.node.predicate is not None
