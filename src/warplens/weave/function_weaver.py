"""Rewrite one function: its prologue, the clock reads and stores of its marks, and its exits."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from warplens.ptx.edits import NodePosition
from warplens.ptx.tree import Function, Instruction, Label, Node, Raw, Scope
from warplens.record.layout import WIDE_KINDS, Kind, word0
from warplens.weave.early_conditions import make_early
from warplens.weave.early_constants import build_constants
from warplens.weave.mark_comments import PAYLOAD, is_mark
from warplens.weave.mark_sites import BRANCHES, MarkBlock, MarkSite, Outline, is_loose, is_placeholder
from warplens.weave.record_words import LONG, RecordWords
from warplens.weave.stores.deferred import LAST, DeferredRecords
from warplens.weave.stores.launch_tracks import LaunchRing, LaunchSpread, LaunchTrack
from warplens.weave.stores.shared_tracks import SharedRing, SharedTrack
from warplens.weave.stores.spread import SpreadTrack
from warplens.weave.stores.spread_chains import SpreadChains
from warplens.weave.track_ptx import AWAITED, ZERO, LeanTrack, RingTrack, Track
from warplens.weave.weaving import LaunchBuffer

if TYPE_CHECKING:
    from warplens.weave.weaver import Weaver

_MEMORY = frozenset({"ld", "st", "atom", "red", "cp", "ldmatrix", "stmatrix"})
_READY = {"commit_group", "wait_group", "wait_all"}
"""Of copies, what accesses no memory."""
MAX_HELD_CLOCKS = 8
"""The maximum number of clocks that a block holds in registers until its end."""


@dataclass(frozen=True)
class _Record:
    """One record to store: its first slot counted back from the block's end, its words, and its clock's group."""

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

    def __init__(self, weaver: Weaver, function: Function, outline: Outline) -> None:
        self.weaver, self.function, self.outline = weaver, function, outline
        self.store = weaver.stores[function.name]
        self.divergence = weaver.divergence[function.name] if self.store == "spread" else None
        self.track = self._new_track()
        self.opcodes = {node.opcode for node in function.instructions()}
        self.words = RecordWords(weaver.ids)
        self.chains: SpreadChains | None = None
        if self.divergence is not None:
            self.chains = SpreadChains(
                weaver.chains[function.name], self.divergence, self.words, weaver.how, self.opcodes
            )
        self.unchained = [block for block in outline.blocks if self.chains is None or not self.chains.holds(block)]
        self._keep_words()
        self.deferred = None
        if self.store == "defer":
            self.deferred = DeferredRecords(outline.blocks, weaver.pair, self.words.word, self.words.in_registers)
        # Not next to a matrix product, where ptxas schedules loads and products differently and the loop gets slower.
        if self.deferred and not self.opcodes & {"mma", "wgmma", "tcgen05"}:
            self.track.join()
        self.first = None if self.divergence is not None else self._first_mark()
        self.ends_at_exit = self._blocks_at_exits()

    def _new_track(self) -> Track:
        weaver, ring = self.weaver, self.weaver.how.full == "ring"
        if isinstance(weaver.buffer, LaunchBuffer):
            of_launch = LaunchSpread if self.divergence is not None else LaunchRing if ring else LaunchTrack
            track = of_launch(self.function, weaver.buffer, weaver.how, weaver.slack)
            track.parameters = weaver.track_parameters(self.function)
            return track
        kinds = (SharedTrack, SharedRing) if weaver.how.shared else (Track, RingTrack)
        kind: type[Track] = kinds[ring]
        if self.divergence is not None:
            kind = SpreadTrack
        elif kind is Track and weaver.how.lean and not weaver.calls.shares_state(self.function):
            kind = LeanTrack
        return kind(self.function, weaver.buffer, weaver.how, weaver.slack)

    def weave(self) -> None:
        if self.track.awaited != AWAITED:
            for instruction in self.function.instructions():
                instruction.raw = instruction.raw.replace(AWAITED, self.track.awaited)
        if self.divergence is not None and "bra" in self.opcodes:
            make_early([block.groups(self.weaver.how.fuse)[-1] for block in self.outline.blocks])
        # Read the exit clock before the stores of the last block, which are overhead and not part of the kernel.
        shared = {id(block.end.node) for block in self.unchained if id(block) in self.ends_at_exit}
        for position in self.outline.exits:
            if self._timed(position) and id(position.node) not in shared:
                position.before(Raw.of(self.track.exit_clock()))
        for block in self.unchained:
            self._block(block)
        if self.chains is not None:
            assert isinstance(self.track, SpreadTrack)
            self.chains.weave(self.track, self._constants)
        places: dict[int, int] = {}
        for holder in {id(position.holder): position.holder for position in self.outline.barriers}.values():
            places.update((id(node), number) for number, node in enumerate(holder))
        for position in self.outline.barriers:
            if not _memory_follows(position.holder, places[id(position.node)]):
                insert_warp_barrier(position, lambda: self.words.new("%wl_m"))
        for position in self.outline.calls:
            self.weaver.calls.rewrite_call(position)
        for number, position in enumerate(self.outline.exits):
            self._exit(number, position)
        self.outline.edits.apply()
        if self.function.is_entry:
            opening = [self.track.prologue()]
            opening += [f"\tadd.u32 {register}, {ZERO}, {word};" for word, register in self.words.in_registers.items()]
            opening += self.chains.opening() if self.chains else []
            opening += self.deferred.opening() if self.deferred else []
            frame = self.weaver.calls.open(self.function, self.weaver.how.full == "ring")
            opening += [frame, self.track.framed()] if frame else []
            opening.append(self.track.start_clock())
            if self.first is None:
                opening.append(self.track.started())
        else:
            opening = [self.weaver.calls.open(self.function, self.weaver.how.full == "ring")]
            opening += [f"\tmov.b32 {register}, {word};" for word, register in self.words.in_registers.items()]
            if any(ZERO in instruction.raw for instruction in self.function.instructions()):
                opening.append(f"\tshr.u32 {ZERO}, %wl_hi, 31;")
        declared = [self.track.declarations, *self.words.declarations()]
        insert_opening(self.function, "\n".join(text for text in declared + opening if text))

    def _keep_words(self) -> None:
        """Keep record words of marks in loops in registers; ptxas would rebuild the constant at each store."""
        # The accumulators of mma.sync fill the registers, and next to a matrix product a rebuilt constant is free.
        has_mma, in_registers = "mma" in self.opcodes, self.words.in_registers
        for block in self.unchained:
            for site in block.sites if block.in_loop and not has_mma else []:
                word = self.words.word(site.mark)
                if word not in in_registers and len(in_registers) < self.weaver.how.keep:
                    in_registers[word] = self.words.new("%wl_k")

    def _block(self, block: MarkBlock) -> None:
        """Insert the clock reads at the block's marks, and the stores where the policy places them."""
        # Records that are stored at their mark need their payload there.
        loose = self._policy(block) != "now"
        groups = block.groups(self.weaver.how.fuse, loose=loose)
        at_mark: list[list[str]] = []
        records: list[_Record] = []
        back = block.slots
        for number, group in enumerate(groups):
            last = number == len(groups) - 1
            clock = LAST if self.deferred and last and number > 0 else self.words.new("%wl_c")
            # Under register pressure ptxas would read a long-lived clock through the slower uniform datapath; a
            # predicate that varies between lanes prevents that.
            guard = "@%wl_p " if clock == LAST else ""
            at_mark.append([f"\t{guard}mov.u32 {clock}, %clock;"])
            full = ""
            if group[0].mark.wide:
                full = self.words.new(LONG)
                at_mark[-1] = [f"\tmov.u64 {full}, %clock64; cvt.u32.u64 {clock}, {full};"]
            elif group[0] is self.first:
                at_mark[-1] = [f"\tcvt.u32.u64 {clock}, %wl_b;"]
            elif last and id(block) in self.ends_at_exit:
                at_mark[-1] = [self.track.exit_clock(), f"\tcvt.u32.u64 {clock}, %wl_ec;"]
            at_mark[-1] += self._started(group[0])
            for place, site in enumerate(group):
                word, text = self.words.operand(site.mark)
                at_mark[-1] += text
                payload = ""
                if full and site.mark.kind in WIDE_KINDS:
                    payload = full
                elif full:
                    records.append(_Record(back, str(word0(Kind.ANCHOR, tag=Kind.ANCHOR)), clock, number, full))
                    back -= 2
                if site.mark.kind in PAYLOAD:
                    payload, text = self.words.payload(site.mark)
                    if place and loose and is_loose(group[place - 1], site):
                        site.position.after(Raw.of("\n".join(text)))
                    else:
                        at_mark[-1] += text
                records.append(_Record(back, word, clock, number, payload))
                back -= 2 if payload else 1
        before, tail = self._place(block, records, at_mark)
        before[0] += self._constants(block)
        for number, group in enumerate(groups):
            group[0].position.after(Raw.of("\n".join(before[number] + at_mark[number])))
        if tail:
            block.end.before(Raw.of("\n".join(tail)))

    def _constants(self, block: MarkBlock) -> list[str]:
        """The constants to build before the block's regions; see early_constants.py."""
        if not (self.weaver.how.constants and self.function.is_entry):
            return []
        # Avoid the pointer if possible: ptxas copies a pointer that has another reader.
        built, registers = build_constants(block, f"%wl_i{block.order}", LAST if self.deferred else "%wl_lo")
        self.words.registers += registers
        return built

    def _place(
        self, block: MarkBlock, records: list[_Record], at_mark: list[list[str]]
    ) -> tuple[list[list[str]], list[str]]:
        """The PTX before each group's clock read and before the block's end; `now` appends to `at_mark` instead."""
        step, final = self.track.step(block.slots), len(at_mark) - 1
        before: list[list[str]] = [[] for _ in at_mark]
        tail: list[str] = []
        policy = self._policy(block)
        if policy == "now":
            at_mark[0].append(step)
            for record in records:
                at_mark[record.group].append(self._stores([record]))
        elif policy == "late":
            # Records of one clock read are stored together where they share 16 aligned bytes.
            for group, together in itertools.groupby(records, lambda record: record.group):
                (before[group + 1] if group < final else tail).append(self._stores(list(together)))
            (before[1] if final else tail).insert(0, step)
        elif policy == "end":
            tail = [step, self._stores(records)]
        else:
            assert self.deferred is not None
            waits = records[-self.deferred.count :]
            stored = records[: -self.deferred.count]
            pending = self.track.store(block.slots + self.deferred.count, self.deferred.value)
            early = [record for record in stored if record.group < final]
            late = [record for record in stored if record.group == final]
            last = records[-1]
            payload = [self.track.store(last.back, last.payload)] if last.payload else []
            note = self.deferred.note([record.word for record in waits])
            pairs = zip(self.deferred.clocks, waits, strict=True)
            copies = [f"\tmov.b32 {clock}, {record.clock};" for clock, record in pairs]
            if final:
                before[final] = [step, pending, self._stores(early)]
                # After the clock read, because the store before it may still have to read the clock that is replaced.
                at_mark[final] += [*copies[:-1], *note]
                tail = [self._stores(late), *payload]
            else:
                tail = [step, pending, self._stores(late), *payload, *copies, *note]
        return [[text for text in part if text] for part in before], [text for text in tail if text]

    def _policy(self, block: MarkBlock) -> str:
        if self.store not in ("mixed", "spread"):
            return self.store
        return "end" if block.in_loop and len(block.sites) <= MAX_HELD_CLOCKS else "late"

    def _stores(self, records: list[_Record]) -> str:
        """Stores for `records`; two records that share 16 aligned bytes are stored together."""
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

    def _first_mark(self) -> MarkSite | None:
        """The first mark, if no code of the kernel precedes it, else None."""
        body = self.function.body
        assert body is not None
        site = self.outline.sites[0] if self.function.is_entry and self.outline.sites else None
        if site is None:
            return None
        for node, following in itertools.zip_longest(body, body[1:]):
            if node is site.position.node:
                return site
            if is_code(node) and not (isinstance(node, Instruction) and is_placeholder(node, following)):
                break
        return None

    def _blocks_at_exits(self) -> set[int]:
        """The blocks (by `id`) after whose last mark no code of the kernel follows before an exit: both share a clock
        read. A second read might wait for a store to release its registers, and that time would belong to no region.
        """
        exits = {id(position.node): position for position in self.outline.exits if self._timed(position)}
        found = set()
        for block in self.unchained:
            mark = block.groups(self.weaver.how.fuse)[-1][0]
            position = exits.get(id(block.end.node))
            same_list = position is not None and position.holder is mark.position.holder
            if same_list and not (block.tail or mark.mark.wide or mark is self.first):
                found.add(id(block))
        return found

    def _timed(self, position: NodePosition) -> bool:
        """Whether the exit clock is read before the stores of the preceding block."""
        return self._ends_track(position) and not _guarded(position)

    def _started(self, site: MarkSite) -> list[str]:
        return [self.track.started()] if site is self.first else []

    def _ends_track(self, position: NodePosition) -> bool:
        return self.function.is_entry or (isinstance(position.node, Instruction) and position.node.opcode == "exit")

    def _exit(self, number: int, position: NodePosition) -> None:
        if self._ends_track(position):
            text = self.track.epilogue(self.deferred.value if self.deferred else "")
            if _guarded(position):
                text = f"{self.track.exit_clock()}\n{text}"
        else:
            text = self.weaver.calls.save_state()
        insert_before_exit(position, text, f"{self.function.name}_{number}")


def insert_warp_barrier(position: NodePosition, new_register: Callable[[], str]) -> None:
    """Add a warp barrier after a block barrier.

    The GPU issues instructions that access no memory, including clock reads, before the block barrier takes effect. A
    warp barrier prevents that, and is free for a converged warp (measured by benchmarks/barrier_clock.py). None is
    needed where an access to memory comes before the next mark.
    """
    barrier = position.node
    assert isinstance(barrier, Instruction)
    guard = f"@{'!' * barrier.negated}{barrier.predicate} " if barrier.predicate else ""
    if barrier.opcode == "bar" or "aligned" in barrier.modifiers:
        position.after(Raw.of(f"\t{guard}bar.warp.sync 0xffffffff;"))
    else:
        mask = new_register()
        position.after(Raw.of(f"\t{guard}activemask.b32 {mask};\n\t{guard}bar.warp.sync {mask};"))


def insert_before_exit(position: NodePosition, text: str, label: str) -> None:
    """Insert `text` before an instruction; where that has a predicate, for the threads that execute it."""
    node = position.node
    if not _guarded(position):
        position.before(Raw.of(text))
        return
    assert isinstance(node, Instruction)
    skip, sign = f"$wl_stay_{label}", "" if node.negated else "!"
    position.before(Raw.of(f"\t@{sign}{node.predicate} bra {skip};\n{text}\n\t{node.opcode};\n{skip}:"))
    position.remove()


def insert_opening(function: Function, text: str) -> None:
    """Insert `text` before the first code of a function."""
    body = function.body
    assert body is not None
    for index, node in enumerate(body):
        if is_code(node):
            body.insert(index, Raw.of(text))
            return


def is_code(node: Node) -> bool:
    """Whether a node may execute or be the target of a branch."""
    if isinstance(node, Label):
        return not node.name.startswith(("$L__func_begin", "$L__tmp"))
    return isinstance(node, Instruction | Scope | Raw)


def _guarded(position: NodePosition) -> bool:
    return isinstance(position.node, Instruction) and position.node.predicate is not None


def _memory_follows(holder: list[Node], at: int) -> bool:
    """Whether every path from the node at `at` accesses memory before it comes to a mark, as far as the code up to the
    next jump, label or scope tells."""
    for number in range(at + 1, len(holder)):
        node = holder[number]
        if isinstance(node, Instruction):
            if node.opcode in BRANCHES:
                return False
            if node.opcode in _MEMORY and node.predicate is None and "param" not in node.modifiers:
                return not _READY & set(node.modifiers)
        elif isinstance(node, Label | Scope) or is_mark(node):
            return False
    return False
