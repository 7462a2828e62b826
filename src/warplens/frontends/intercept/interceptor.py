"""Launches of kernels that other libraries compiled: those that are recorded run the kernel's woven twin."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from warplens.auto.ptx import has_barriers
from warplens.auto.rules import Auto
from warplens.auto.rungs import Rung, rungs
from warplens.driver.kernel_arguments import Shape
from warplens.driver.libcuda import driver
from warplens.driver.limits import SM_LIMITS, find_limits
from warplens.driver.theoretical_occupancy import registers_for_warps
from warplens.errors import WarplensError, without_frames
from warplens.frontends.intercept.woven_module import Twin, Unavailable, Unmarkable, has_marks, twin_of
from warplens.launch.captured_graphs import CapturedCode, NodeFunction
from warplens.launch.graph_cells import CELL_BYTES
from warplens.launch.lent_launch import LentLaunch
from warplens.launch.native_launches import NativeTarget
from warplens.launch.thinning import Thinning
from warplens.launch.variant import Variant
from warplens.launch.weaving_options import weaving
from warplens.launch.woven import WovenKernel
from warplens.ptx.symbols import plain_name
from warplens.ptx.syntax import PtxError
from warplens.record.capture import Dim3
from warplens.session import Session
from warplens.session.stack import is_running
from warplens.weave.fit.candidates import Candidate, fixed_candidates, intercepted_candidates
from warplens.weave.fit.harm import LIFE_SPILLS, Guard
from warplens.weave.fit.register_limit import allowance
from warplens.weave.fit.resources import Resources
from warplens.weave.fit.search import Attempt, search, tighten
from warplens.weave.iket_marks import with_iket_marks

T = TypeVar("T")


@dataclass(frozen=True)
class PlainKernel:
    """A plain kernel about to be launched: its symbol, its function in the current context, and how to get its PTX
    (or an `Unavailable` that says why it cannot be had)."""

    symbol: str
    function: int
    text: Callable[[], str]
    code: Hashable = None
    """What it was loaded from, where its module may go before the profile ends: handles are given out again then."""
    keeps_parameters: bool = False
    """Whether its launcher cannot give it one more argument: its twin finds the buffer by a variable of its module."""
    assemble: Callable[[str], bytes] | None = None
    """Makes machine code of its PTX, where the driver cannot."""


@dataclass(frozen=True)
class _LaunchForm:
    """What of a launch decides which twin it runs: what limits the blocks on an SM, whether blocks consist of whole
    warps along x, whether it is captured into a CUDA graph, whether its arguments are fixed, and what the overhead
    budget leaves out."""

    threads: int
    aligned: bool
    shared: int
    captured: bool
    keeps_parameters: bool
    thinning: Thinning


def _key(kernel: PlainKernel, shape: Shape) -> Hashable:
    """What tells the variants of kernels apart."""
    return kernel.function, kernel.code, shape.grid, shape.block, shape.shared


class KnownLaunch:
    """A launch that a front end has seen before, with the same kernel and shape."""

    __slots__ = ("_described", "_generation", "_grid", "_interceptor", "_key", "_session", "twin", "variant", "woven")

    def __init__(self, interceptor: Interceptor, variant: Variant, key: Hashable, grid: Dim3) -> None:
        self._interceptor, self.variant, self._key, self._grid = interceptor, variant, key, grid
        self._session, self._generation = interceptor.session, -1
        self._described: WovenKernel | None = None
        self.twin: Twin | None = None
        self.woven: Any = None
        """What the front end keeps to launch the twin."""

    def ready(self, stream: int) -> LentLaunch | None:
        """A launch whose memory is at hand, if the next one on `stream` is to be recorded; else `launch` must decide.
        `twin` is what it runs."""
        variant = self.variant
        ready = variant.ready
        if ready is None or not is_running(self._session):
            return None
        if self._generation != variant.generation:
            found = self._interceptor.described(self._key)
            if found is None:
                return None
            self.twin, self._described, self.woven, self._generation = *found, None, variant.generation
        return ready.take(self._described, self._grid, stream)


class Interceptor:
    """The woven launches of one session, for libraries that launch by the driver."""

    def __init__(self, running: Session) -> None:
        self.session = running
        self._texts: dict[tuple[int, Hashable], str | Unavailable] = {}
        self._chosen: dict[Hashable, Twin | Unavailable] = {}
        self._how = weaving(running.options)
        self._variants: dict[Hashable, Variant] = {}
        self._cells: dict[int, tuple[int, int]] = {}
        """By cell of a twin, the stream of its latest launch and an event that is reached when that is over."""
        self._described: dict[Hashable, tuple[Twin, WovenKernel]] = {}
        """By variant's key, what its recorded launches run, where they are not captured."""

    def launch(self, kernel: PlainKernel, shape: Shape, plain: Callable[[], T], woven: Callable[[Twin, int], T]) -> T:
        """Make one launch: `plain` launches the plain kernel, `woven` its twin with one more argument, the pointer."""
        if not is_running(self.session):
            return plain()  # somebody kept our function in a place that the profile's end does not reach
        variant = self.variant(kernel, shape)
        if variant.closed:
            variant.launches += 1
            return plain()
        return self.session.launch(
            variant, shape.stream, plain, lambda captured: self._record(kernel, variant, shape, woven, captured)
        )

    def launch_in_c(
        self,
        kernel: PlainKernel,
        shape: Shape,
        handle: int,
        parameters: Callable[[], int],
        plain: Callable[[], T],
        woven: Callable[[Twin, int], T],
    ) -> T:
        """`launch`, where launches of `handle` pass the library in front of the driver: it makes those that follow by
        itself while memory for them is at hand. `parameters` says how many parameters the plain kernel has."""
        variant = self.variant(kernel, shape)
        if variant.ready is not None:
            variant.ready.unshelve()
        result = self.launch(kernel, shape, plain, woven)
        found = self._described.get(_key(kernel, shape))
        if variant.ready is not None and found is not None:
            twin, described = found
            target = NativeTarget(handle, shape, twin.function, parameters())
            self.session.buffers.shelve(described, variant, target)
        return result

    def refill(self, kernel: PlainKernel, shape: Shape, handle: int, parameters: Callable[[], int]) -> None:
        """Have memory for further launches at hand before the library in front of the driver runs out of it."""
        found = self._described.get(_key(kernel, shape))
        if found is not None and is_running(self.session):
            twin, described = found
            variant = self.variant(kernel, shape)
            self.session.lend_more(described, variant, shape.grid)
            target = NativeTarget(handle, shape, twin.function, parameters())
            self.session.buffers.shelve(described, variant, target)

    def known(self, kernel: PlainKernel, shape: Shape) -> KnownLaunch:
        """What a front end may keep of a launch, to find its way quickly when it comes again."""
        return KnownLaunch(self, self.variant(kernel, shape), _key(kernel, shape), shape.grid)

    def described(self, key: Hashable) -> tuple[Twin, WovenKernel] | None:
        """What recorded launches of a variant run, once there was one."""
        return self._described.get(key)

    def variant(self, kernel: PlainKernel, shape: Shape) -> Variant:
        """The variant of a launch."""
        key = _key(kernel, shape)
        variant = self._variants.get(key)
        if variant is None:
            variant = self._variants[key] = self._new_variant(kernel, shape)
        return variant

    def _new_variant(self, kernel: PlainKernel, shape: Shape) -> Variant:
        name = plain_name(kernel.symbol)
        form = (shape.grid, shape.block, shape.shared)
        described = {"grid": list(shape.grid), "block": list(shape.block), "shared_bytes": shape.shared}
        variant = self.session.variant(name, (kernel.function, kernel.code), form, lambda: described)
        self.session.start_trial(variant, self._how.select, shape.grid)
        return variant

    def _record(
        self, kernel: PlainKernel, variant: Variant, shape: Shape, woven: Callable[[Twin, int], T], captured: bool
    ) -> Callable[[], T] | None:
        """A function that launches the twin; None where the plain kernel must run."""
        try:
            twin = self._find(kernel, shape, captured, variant.thinning)
        except Unavailable as reason:
            variant.closed = True
            self._unmarked(variant.kernel, reason)
            return None
        try:
            for variable in twin.shared:
                driver().share_variable(variable, kernel.function, twin.library, shape.stream)
        except WarplensError as error:
            variant.closed = True
            self._unmarked(
                variant.kernel, Unavailable(f"the variable {variable} of its module cannot be shared: {error}")
            )
            return None
        described = self._describe(kernel, variant, twin, shape, captured)
        functions = NodeFunction(twin.function, shape.shared), NodeFunction(kernel.function, shape.shared)
        code = CapturedCode(twin, *functions) if captured else None
        record = self.session.lend(described, variant, shape.grid, shape.stream, code)
        if record is None:
            return None

        def go() -> T:
            with record as pointer:
                if not twin.cell:
                    return woven(twin, pointer)
                with self._filled(twin.cell, pointer, shape.stream, captured):
                    return woven(twin, pointer)

        return go

    @contextmanager
    def _filled(self, cell: int, pointer: int, stream: int, captured: bool) -> Iterator[None]:
        """Let the launch in the block find `pointer` in its cell. In a graph, `pointer` is the address of the cell that
        each replay fills."""
        lib = driver()
        if captured:
            lib.copy_on_device(cell, pointer, CELL_BYTES, stream)
            yield
            return
        before, event = self._cells.get(cell, (stream, 0))
        if event and before != stream:
            lib.hold(stream, event)  # a launch on another stream may still read the cell
        lib.upload(cell, pointer.to_bytes(CELL_BYTES, "little"), stream)
        yield
        event = event or lib.new_event()
        lib.mark(event, stream)
        self._cells[cell] = stream, event

    def _describe(self, kernel: PlainKernel, variant: Variant, twin: Twin, shape: Shape, captured: bool) -> WovenKernel:
        """What a launch must know of the twin, worked out once for all launches of a variant."""
        key = _key(kernel, shape)
        known = self._described.get(key)
        if known is not None and known[0] is twin:
            return known[1]
        self._tell(variant.kernel, twin)
        described = self._woven(variant.kernel, twin, shape, variant.thinning)
        # Variables of the module are copied and cells filled before each launch: such kernels take the long way.
        if not captured and not twin.shared and not twin.cell:
            self._described[key] = twin, described
        return described

    def refuse(self, name: str, reason: Unavailable) -> None:
        """Count a launch of a kernel that is out of reach, and say why."""
        self.session.run.saw(name)
        if self.session.options.wants_kernel(name):
            self._unmarked(name, reason)

    def _unmarked(self, name: str, reason: Unavailable) -> None:
        if self.session.options.strict:
            raise WarplensError(f"{name}: {reason}; strict=True allows no unmarked kernel") from None
        self.session.note(name, f"runs unmarked: {reason}")

    def _find(self, kernel: PlainKernel, shape: Shape, captured: bool, thinning: Thinning) -> Twin:
        lib = driver()
        aligned = shape.block[0] % 32 == 0
        form = _LaunchForm(math.prod(shape.block), aligned, shape.shared, captured, kernel.keeps_parameters, thinning)
        key = (kernel.function, kernel.code, form)
        if key not in self._chosen:
            try:
                self._chosen[key] = self._choose(kernel, form)
            except Unavailable as reason:
                self._chosen[key] = without_frames(reason)
            except WarplensError:
                raise
            except Exception as error:  # whatever fails here, the program can run its own kernel
                self._chosen[key] = Unavailable(f"warplens failed: {error!r}")
        chosen = self._chosen[key]
        if isinstance(chosen, Unavailable):
            raise without_frames(chosen)
        lib.copy_settings(kernel.function, chosen.function)
        return chosen

    def _choose(self, kernel: PlainKernel, form: _LaunchForm) -> Twin:
        """Return the twin with as many marks as do no harm (auto/rungs.py)."""
        asked, text, problem = self.session.options.marks, self.text_of(kernel), ""
        by_hand = has_marks(text, kernel.symbol)
        if form.thinning.lives:
            return self._fit(kernel, Rung(Auto(), by_hand=by_hand), form, harmful=True)
        for rung in rungs(asked, keep_marks=by_hand, barriers=has_barriers(text, asked)):
            if rung.fixed and not (problem and (asked.classes or rung.auto)):
                continue
            if rung.lives_only and self.session.options.strict:
                continue  # a kernel of which only lives are recorded counts as unmarked
            try:
                twin = self._fit(kernel, rung, form)
            except Unmarkable as reason:
                problem = problem or str(reason)
                continue
            return replace(twin, note=rung.note(problem)) if problem else twin
        if by_hand:  # the program asked for these marks itself
            twin = self._fit(kernel, Rung(Auto(), by_hand=True), form, harmful=True)
            return replace(twin, note=f"only its own marks are recorded: {problem}" if asked else problem)
        raise Unavailable(problem)

    def _fit(self, kernel: PlainKernel, rung: Rung, form: _LaunchForm, *, harmful: bool = False) -> Twin:
        """Return the twin woven in the first way that does no harm, in few more registers than the plain kernel if that
        costs no spill. A twin with fewer blocks on an SM, which `least_occupancy` may allow, is the last resort; with
        `harmful`, the one that does the least harm. Lives alone cost next to nothing, so they are always taken."""
        lib, options = driver(), self.session.options

        def resources(function: int) -> Resources:
            return Resources.from_driver(
                lib.resources(function), lib.active_blocks(function, form.threads, form.shared)
            )

        def attempt(candidate: Candidate) -> tuple[Twin, Resources]:
            how, registers = candidate.how, candidate.registers
            text, device = self.text_of(kernel), lib.device_index()
            twin = twin_of(
                text, kernel.symbol, rung.auto, how, device, registers,
                indirect=form.captured, keeps_parameters=form.keeps_parameters, assemble=kernel.assemble,
            )  # fmt: skip
            lib.copy_settings(kernel.function, twin.function)
            return twin, resources(twin.function)

        plain = resources(kernel.function)
        free_spills = LIFE_SPILLS if rung.lives_only else 0
        guard = Guard(lambda: plain, required=options.least_occupancy, free_spills=free_spills)
        limits = find_limits(lib.device().capability) or SM_LIMITS["9.0"]
        limit = registers_for_warps(limits, plain.blocks * -(-form.threads // 32))
        asked = form.thinning.of(self._how)
        if rung.fixed:
            candidates = fixed_candidates(asked, lambda: limit)
        else:
            candidates = intercepted_candidates(asked, limit, aligned=form.aligned)
        chosen = search(candidates, attempt, guard)
        if rung.lives_only or (harmful and chosen.harm):
            return chosen.build
        if chosen.harm and chosen.harm.refused:
            raise Unmarkable(chosen.harm.words)
        if chosen.candidate.registers and not chosen.harm:
            return chosen.build

        def limited(registers: int) -> Attempt[Twin] | None:
            candidate = Candidate(chosen.candidate.how, registers)
            try:
                made = Attempt(candidate, *attempt(candidate))
            except Unavailable:
                return None
            harm = guard.harm(made.resources)
            return None if harm and harm.refused else made

        return tighten(chosen, plain, limited, allowance(plain.registers)).build

    def text_of(self, kernel: PlainKernel) -> str:
        """The PTX, asked for once: a library may compile anew to give it."""
        key = (kernel.function, kernel.code)
        known = self._texts.get(key)
        if known is None:
            try:
                known = with_iket_marks(kernel.text())
            except Unavailable as reason:
                known = without_frames(reason)
            except PtxError as error:
                known = Unavailable(str(error))
            self._texts[key] = known
        if isinstance(known, Unavailable):
            raise without_frames(known)
        return known

    def _tell(self, name: str, twin: Twin) -> None:
        """Note what the rules left out, and which of the wanted lines have code."""
        marked, symbol = twin.marked, twin.symbol
        if twin.note:
            self.session.note(name, twin.note)
        if left_out := marked.left_out.get(symbol):
            self.session.note(
                name, f"{left_out} more places could be marked; most_marks={left_out + len(marked.sites[symbol])} does"
            )
        self.session.run.coverage.add(marked.matched(symbol), marked.lines.get(symbol, {}))

    def _woven(self, name: str, twin: Twin, shape: Shape, thinning: Thinning) -> WovenKernel:
        woven, resources = twin.woven, driver().resources(twin.function)
        places = {site.region: site.location for site in twin.marked.sites.get(twin.symbol, ()) if site.location}
        known = {number: places[region] for number, region in woven.regions.items() if region in places}
        return WovenKernel.of(
            woven,
            twin.symbol,
            threads=math.prod(shape.block),
            name=name,
            locations={**woven.locations, **known},
            select=thinning.of(self._how).select,
            resources={
                "registers": resources["registers"],
                "local_bytes": resources["local_bytes"],
                "shared_bytes_kernel": resources["shared_bytes"] + shape.shared,
            },
            auto=True,
            block=shape.block,
        )
