"""weave(): PTX whose marks are comments in, PTX that records out.

A mark costs a clock read and a store. The clock read is a scheduling fence for ptxas, but the store is not, so the
position of the store decides how much of its cost falls into the region between two marks. `store` selects it:

    now     right after the clock read
    late    just before the next mark's clock read; the last record of a block before the block ends
    end     all records of a block before the block ends
    defer   all but the last one or two records before the last clock read. Those wait in registers for the next marked
            block, or for the exit (stores/deferred.py). Only the clock read is left between the end of one loop
            iteration and the begin of the next.
    spread  lane i of the warp keeps the i-th record, and one store writes all of them at the end of a block, or of a
            chain of blocks (stores/spread.py, stores/block_chains.py). Requires that the warp is converged at every
            mark (ptx/divergence.py); otherwise the same as auto
    auto    defer when a marked block in a loop ends right after its last mark; otherwise end for blocks in loops with
            few marks, and late for the others

Marks of one basic block share one bounds check and one pointer step; marks without an instruction between them share
one clock read. Text that is already woven is returned unchanged.
"""

from __future__ import annotations

import functools
import itertools
import re
import sys
from collections.abc import Collection
from dataclasses import replace

from warplens.errors import UsageError
from warplens.ptx.divergence import Divergence, observes_other_threads
from warplens.ptx.garbage_pause import garbage_pause
from warplens.ptx.labels import end_with_return
from warplens.ptx.syntax import PtxError
from warplens.ptx.tree import Function, PtxModule, parse
from warplens.record.layout import MAX_REGION, Kind
from warplens.weave.aggregate_weaver import weave_aggregate
from warplens.weave.calls import Calls
from warplens.weave.code_between import CodeBetween, code_between, number_regions
from warplens.weave.delay import weave_delay
from warplens.weave.early_addresses import move_addresses_up
from warplens.weave.fit.recompute import recompute
from warplens.weave.fixed_slots import weave_fixed
from warplens.weave.function_weaver import FunctionWeaver
from warplens.weave.mark_comments import PREFIX, declare_marks, without_regions
from warplens.weave.mark_operands import check_operands
from warplens.weave.mark_sites import MarkBlock, MarkSite, outline
from warplens.weave.plain_body import PlainCopies
from warplens.weave.region_code import region_code
from warplens.weave.stores.block_chains import chain_blocks
from warplens.weave.stores.launch_tracks import TrackParameters, buffer_address, end_of_names
from warplens.weave.stores.shared_tracks import smallest
from warplens.weave.stores.spread import LANES, SPREAD_SLACK
from warplens.weave.weaving import AnyBuffer, LaunchBuffer, ParamBuffer, SymbolBuffer, Weaving
from warplens.weave.woven_ptx import Woven

__all__ = ["TIGHT", "Weaver", "Woven", "marked_kernels", "weave"]

TIGHT = 8
"""A loop body with fewer instructions than this after its last mark cannot hide the latency of a store."""


def weave(
    source: str | PtxModule,
    *,
    buffer: AnyBuffer | None = None,
    how: Weaving | None = None,
    lives: Collection[str] = (),
    plain: str = "",
) -> Woven:
    """Weave every kernel of `source` that can reach a mark; kernels without marks stay as they are, apart from those
    named in `lives`: they record when each warp started and exited, and where. A parsed module is not parsed again, and
    is not changed. `plain` is the module before automatic marks changed it, if `how.plain_copy` may need it."""
    if how and how.omit:
        source = without_regions(source if isinstance(source, str) else source.text(), how.omit)
    text = source if isinstance(source, str) else source.text()
    known = Woven.read(text)
    if known is not None:
        return known
    if PREFIX not in text and not lives:
        return Woven(text, full=(how or Weaving()).full)
    with garbage_pause():
        return _woven(source, buffer or ParamBuffer(), how or Weaving(), lives, plain)


def _woven(source: str | PtxModule, buffer: AnyBuffer, how: Weaving, lives: Collection[str], plain: str) -> Woven:
    # A function of its own, so that the trees are gone when garbage is collected again: it would look at each node.
    module = parse(source) if isinstance(source, str) else source.copy()
    twin = parse(plain) if plain else None
    if how.mode == "aggregate" and not lives:
        _prepare(module, how)
        return weave_aggregate(module, buffer, how, twin)
    if how.delay is not None:
        return weave_delay(module, buffer, how)
    if lives or how.fixed:
        return weave_fixed(module, buffer, how, lives, twin)
    return Weaver(module, buffer, how, twin).weave()


def _prepare(module: PtxModule, how: Weaving) -> None:
    """Move the code of functions as `how` asks for, before marks are found in it."""
    for function in module.functions:
        end_with_return(function)
        if how.early:
            move_addresses_up(function)
        if how.lean and function.is_entry and function.body:
            recompute(function)


def marked_kernels(module: PtxModule) -> list[str]:
    """The kernels that can reach a mark: those that weaving would change."""
    module = module.copy()
    for function in module.functions:
        end_with_return(function)
    outlines = {f.name: outline(f, module.files) for f in module.functions if f.body is not None}
    stateful = Calls(module, outlines).stateful
    return [entry.name for entry in module.entries if entry.name in stateful]


class Weaver:
    """Rewrites a parsed module in place."""

    def __init__(self, module: PtxModule, buffer: AnyBuffer, how: Weaving, plain: PtxModule | None = None) -> None:
        self.module, self.buffer, self.how = module, buffer, how
        self.copies = PlainCopies(module, how, plain)
        files = module.files
        _prepare(module, how)
        max_slots = LANES if isinstance(buffer, LaunchBuffer) else sys.maxsize
        self.outlines = {f.name: outline(f, files, max_slots) for f in module.functions if f.body is not None}
        for function in module.functions:
            if function.body is not None:
                check_operands(function, (site.mark for site in self.outlines[function.name].sites))
        self.calls = Calls(module, self.outlines)
        self.ids: dict[str, int] = {}
        self.locations: dict[int, str] = {}
        for sketch in self.outlines.values():
            for site in sketch.sites:
                if how.clock == "64":
                    site.mark = replace(site.mark, wide=True)
                self._region(site)
        blocks = [block for sketch in self.outlines.values() for block in sketch.blocks]
        self.divergence: dict[str, Divergence] = {}
        self.promises: dict[str, str] = {}
        """By kernel, which block size must be a multiple of 32 for full warps: `x` or `threads` (their product)."""
        self.stores = {f.name: self._store_policy(f) for f in module.functions if f.body is not None}
        self.chains = {name: self._chains(name) for name, store in self.stores.items() if store == "spread"}
        """By function, the chains of blocks that share a spread store."""
        chain_slots = [sum(block.slots for block in chain) for chains in self.chains.values() for chain in chains]
        self.pair = (
            self.how.pair
            # A ring of a launch buffer may have a single slot. Any other has an even number of them, so two records at
            # an even slot are never cut by its end.
            and (self.how.full == "stop" or not isinstance(buffer, LaunchBuffer))
            and not self.how.shared
            and all(block.slots % 2 == 0 for block in blocks)
        )
        self.slack = (
            1 + max([*chain_slots, *(block.slots for block in blocks)], default=0) + SPREAD_SLACK * bool(self.chains)
        )
        if self.pair:
            self.slack += self.slack % 2  # two deferred records are both inside the capacity, or both outside
        self._check_shared()

    def weave(self) -> Woven:
        entries: dict[str, int] = {}
        code: dict[str, dict[str, dict[str, float]]] = {}
        between: dict[str, list[list[int]]] = {}
        for function in self.module.functions:
            if function.body is None or function.name not in self.calls.stateful:
                continue
            if function.is_entry:
                unmarked = self._between(function)
                if unmarked:
                    between[function.name] = number_regions(unmarked, self.ids, self.locations)
                own = [site.mark.name for site in self.outlines[function.name].sites] + [one.name for one in unmarked]
                numbers = {name: self.ids[name] for name in own if name in self.ids}
                code[function.name] = region_code(function, numbers, self.outlines[function.name].sites, unmarked)
                entries[function.name] = self.calls.reachable_marks(function.name)
            FunctionWeaver(self, function, self.outlines[function.name]).weave()
            if not self.calls.shares_state(function):
                self.copies.add(function)
        self.calls.rewrite_headers()
        if isinstance(self.buffer, SymbolBuffer) and entries:
            self.module.declare(self.buffer.declaration)
        if self.how.shared and entries and f" {self.how.shared.symbol}[]" not in self.module.text():
            self.module.declare(f".extern .shared .align 16 .b8 {self.how.shared.symbol}[];")
        regions = {number: name for name, number in self.ids.items()}
        stores, threads = {name: self.stores[name] for name in entries}, self.module.fixed_threads(entries)
        woven = Woven("", regions, self.locations, entries, threads, self.slack, self.how.full, stores, code, between)
        text = self.module.text()
        return woven.with_text(declare_marks(text) if isinstance(self.buffer, LaunchBuffer) else text)

    def _between(self, function: Function) -> tuple[CodeBetween, ...]:
        """The code between regions, if it is asked for."""
        # A called function may leave records between those of its caller, and a launch buffer's regions have numbers.
        if not self.how.between or self.calls.shares_state(function) or isinstance(self.buffer, LaunchBuffer):
            return ()
        return code_between(function, self.outlines[function.name].sites, self.module.files)

    def _check_shared(self) -> None:
        if self.how.shared is None:
            return
        function = next((f for f in self.module.functions if not f.is_entry and f.name in self.calls.stateful), None)
        if function is not None:
            problem = "marks in a function that is not inlined cannot be buffered in shared memory"
            raise PtxError(function.line, function.header, problem, "use buffer='global'", function.name)
        if self.how.shared.slots < smallest(self.slack):
            raise UsageError(
                f"buffer='shared' with {self.how.shared.slots} records per warp is too small for this kernel: "
                f"use at least {smallest(self.slack)}, or buffer='global'"
            )

    def _region(self, site: MarkSite) -> None:
        if site.mark.kind is Kind.ANCHOR:
            return
        number = self.ids.setdefault(site.mark.name, self._number(site))
        if number > MAX_REGION:
            raise PtxError(site.mark.line, site.mark.name, f"the module has more than {MAX_REGION} regions")
        if site.location:
            self.locations.setdefault(number, site.location)

    def _number(self, site: MarkSite) -> int:
        if not isinstance(self.buffer, LaunchBuffer):
            return len(self.ids) + 1
        if not site.mark.name.startswith("#"):
            raise PtxError(site.mark.line, site.mark.name, "this mark has no region id from warplens.cuh")
        return int(site.mark.name[1:])

    def track_parameters(self, function: Function) -> TrackParameters:
        """The properties of a function's track in a launch buffer."""
        address = buffer_address(function) if function.is_entry else ""
        promise = self.promises.get(function.name, "") if self.stores[function.name] == "spread" else ""
        return TrackParameters(address, self.stores[function.name], self.how.full, promise, self.names_end)

    @functools.cached_property
    def names_end(self) -> str:
        return end_of_names(self.module)

    def _store_policy(self, function: Function) -> str:
        # A ring may be cut anywhere, a call passes the state on, and a 64-bit clock is a payload: none of them can
        # keep a record in registers.
        at_once = bool(
            self.how.full == "ring" or self.how.clock == "64" or self.how.shared or self.calls.shares_state(function)
        )
        policy = self.how.store
        if policy == "spread" and (at_once or not self._stays_converged(function)):
            policy = "auto"
        if policy == "auto":
            blocks = self.outlines[function.name].blocks
            policy = "defer" if any(block.in_loop and block.tail < TIGHT for block in blocks) else "mixed"
        return "mixed" if policy == "defer" and at_once else policy

    def _stays_converged(self, function: Function) -> bool:
        """Whether the warp is converged at every mark. Each lane keeps a copy of the track's position, and a lane that
        skips a mark would lose count."""
        sites = self.outlines[function.name].sites
        if not function.is_entry or not sites or self._calls_may_lock(function.name):
            return False
        for promise in self._promises(function):
            divergence = Divergence(function, aligned=promise == "x", full_warps=promise == "threads")
            if divergence.starts_full and not any(divergence.diverges(site.position.node) for site in sites):
                self.divergence[function.name], self.promises[function.name] = divergence, promise
                return True
        return False

    def _promises(self, function: Function) -> list[str]:
        """Which block sizes may be assumed to be multiples of 32, the most likely assumption first.

        A track in a launch buffer checks the assumption at run time; otherwise the host guarantees it.
        """
        if self.how.aligned:
            return ["x"]
        if not isinstance(self.buffer, LaunchBuffer) or "reqntid" in function.performance:
            return [""]
        flat = not any(re.search(r"%tid\.[yz]", instruction.raw) for instruction in function.instructions())
        return ["threads", "x"] if flat else ["threads"]

    def _chains(self, name: str) -> list[list[MarkBlock]]:
        """Chains of blocks whose records fit in the lanes of a warp and whose operands are the same in every lane."""
        divergence, blocks = self.divergence[name], self.outlines[name].blocks
        chains = chain_blocks(blocks, divergence.flow, LANES) if self.how.join else [[block] for block in blocks]
        varying = {
            id(b)
            for b in blocks
            if b.slots > LANES or any(divergence.varies(name) for site in b.sites for name in site.mark.operands)
        }
        return [
            list(part)
            for chain in chains
            for excluded, part in itertools.groupby(chain, lambda block: id(block) in varying)
            if not excluded
        ]

    def _calls_may_lock(self, name: str) -> bool:
        """Whether a called function may hold a lock for which other lanes of the warp wait."""
        return any(callee in self._may_lock or callee not in self._functions for callee in self.calls.reached(name))

    @functools.cached_property
    def _functions(self) -> set[str]:
        return {function.name for function in self.module.functions}

    @functools.cached_property
    def _may_lock(self) -> set[str]:
        """The functions that read memory which other threads may be writing."""
        return {f.name for f in self.module.functions if any(observes_other_threads(i) for i in f.instructions())}
