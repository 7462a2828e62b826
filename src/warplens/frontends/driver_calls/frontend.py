"""Launches that C++ code makes through the CUDA driver or a CUDA runtime of its own, graphs included."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from warplens.driver.call_hooks import (
    CallHooks,
    CallKind,
    DriverCall,
    HandleKind,
    HandleOrigin,
    call_hooks,
    installed_hooks,
)
from warplens.driver.kernel_arguments import Shape
from warplens.driver.libcuda import driver, has_driver
from warplens.errors import WarplensError, without_frames
from warplens.frontends.assembled_ptx.ptx_store import KEEPS_PTX
from warplens.frontends.cuda_bindings import Arguments
from warplens.frontends.driver_calls.loaded_code import (
    WithoutPtx,
    compiled_again,
    expects_hand_marks,
    home_of,
    ptx_source,
)
from warplens.frontends.driver_calls.unmarked_kernels import SUBJECT, UnmarkedKernels
from warplens.frontends.graphs.executables import executables
from warplens.frontends.intercept.frontend import intercepted
from warplens.frontends.intercept.interceptor import Interceptor, PlainKernel
from warplens.frontends.intercept.woven_module import Twin, has_marks, source_name
from warplens.launch.variant import Variant
from warplens.ptx.symbols import plain_name
from warplens.ptx.tree import parse
from warplens.record.capture import Dim3
from warplens.session import Session

_tuning: list[object] = []
"""The compilers at work that may launch kernels to time them, in any thread."""


@contextmanager
def tuning_in_cpp() -> Iterator[None]:
    """Leave every launch alone inside the block, in whichever thread it is made: somebody may time it."""
    compiler = object()
    _tuning.append(compiler)
    hooks = installed_hooks()
    if hooks is not None:
        hooks.suspend_ready(1)
    try:
        yield
    finally:
        if hooks is not None:
            hooks.suspend_ready(-1)
        _tuning.remove(compiler)


class _WovenFailed(WarplensError):
    """The driver did not take a woven launch."""


class DriverCalls:
    """The launches of one session that pass the driver's hooks."""

    def __init__(self, launches: Interceptor, hooks: CallHooks) -> None:
        self.launches, self.hooks, self.session = launches, hooks, launches.session
        self._kernels: dict[Hashable, PlainKernel] = {}
        self._parameters: dict[Hashable, int] = {}
        self._by_hand: dict[Hashable, bool] = {}
        self._launch_sizes: dict[str, tuple[Dim3, Dim3]] = {}
        """By symbol, threads per block and blocks per cluster of kernels that say so themselves."""
        self._executables: set[int] = set()
        """Executable graphs that are there, and their graphs too."""
        self._sources: dict[int, int] = {}
        """By graph, the executable that was made of it."""
        self._closed: dict[int, Variant] = {}
        """By number of the hooks' counter, variants whose launches are only counted."""
        self._unmarked = UnmarkedKernels(self.session, hooks)
        self._without_ptx: dict[Hashable, WithoutPtx] = {}
        """Why kernels cannot be had as PTX."""

    def install(self) -> list[Callable[[], None]]:
        self.hooks.reopen()
        self.session.buffers.open_shelves(for_launches=True)
        return [self._settle, self.hooks.listen(self._answer), _keep_ptx()]

    def _answer(self, call: DriverCall) -> None:
        """Answer one call. No error may leave: the plain call is made where this did not make any."""
        if _tuning and call.kind == CallKind.LAUNCH:
            return
        try:
            lib = driver()
            if self.hooks.answers_elsewhere and call.context:
                with lib.inside(call.context):
                    self._follow(call)
            else:
                self._follow(call)
        except WarplensError as error:
            if self.session.options.strict:
                self.session.user_mistake = self.session.user_mistake or error
            self.session.note(SUBJECT, f"a launch was not recorded: {error}")
        except Exception as error:  # the program's own C++ code called us: it must go on, and the note says why
            self.session.note(SUBJECT, f"a launch was not recorded: warplens failed: {error!r}")

    def _follow(self, call: DriverCall) -> None:
        known = executables(self.session)
        if call.kind == CallKind.LAUNCH:
            self._launch(call)
        elif call.kind == CallKind.REFILL:
            kernel = self._kernel(call, self.hooks.find(call.function))
            parameters = functools.partial(self._count, kernel)
            self.launches.refill(kernel, self._shape(kernel, call), call.function, parameters)
        elif call.kind == CallKind.CAPTURE_BEGAN:
            known.began(call.stream)
        elif call.kind == CallKind.GRAPH_MADE:
            self._made(call.function, call.graph)
        elif call.kind == CallKind.GRAPH_LAUNCH:
            known.replay(call.function, call.stream, lambda: self.hooks.make(call))
        elif call.kind == CallKind.GRAPH_ENDS:
            self._executables.discard(self._sources.pop(call.graph, call.graph))
        elif call.kind == CallKind.CONTEXT_ENDS and self.hooks.context_ends is not None:
            self.session.buffers.open_shelves(for_launches=False)  # what they hold is memory of a context
            self.hooks.context_ends()
            self.session.buffers.open_shelves(for_launches=True)

    def _made(self, executable: int, graph: int) -> None:
        """An executable graph was made. Its nodes can be changed for as long as it and its graph are there."""
        known = executables(self.session)
        captured = known.of_handle(graph)
        known.made(executable, captured)
        if captured is not None:
            self._executables.add(executable)
            self._sources[graph] = executable
            captured.executable = lambda: executable if executable in self._executables else 0

    def _launch(self, call: DriverCall) -> None:
        origin = self.hooks.find(call.function)
        if not (self.session.options.marks or self._marked_by_hand(call, origin)):
            self.hooks.close(call.function, None)
            return
        try:
            kernel = self._kernel(call, origin)
        except WithoutPtx as reason:
            self._unmarked.launch(call, _name_of(call.function, origin), home_of(origin), str(reason))
            return
        shape = self._shape(kernel, call)
        variant = self.launches.variant(kernel, shape)

        def woven(twin: Twin, pointer: int) -> int:
            if kernel.keeps_parameters:
                status = self.hooks.make(call, twin.function)
            else:
                given = Arguments(call.params or 0, self._count(kernel), pointer)
                status = self.hooks.make(call, twin.function, given.address)
            if status:
                call.done = 0
                raise _WovenFailed(f"the driver refuses the woven kernel (CUDA error {status})")
            return status

        try:
            parameters = functools.partial(self._count, kernel)
            self.launches.launch_in_c(kernel, shape, call.function, parameters, lambda: self.hooks.make(call), woven)
        except _WovenFailed as problem:
            variant.closed = True
            self.session.note(variant.kernel, f"runs unmarked: {problem}")
        if variant.closed:
            context = driver().context() if kernel.function != call.function else 0
            number = self.hooks.close(call.function, call.shape, context)
            if number >= 0:
                self._closed[number] = variant

    def _kernel(self, call: DriverCall, origin: HandleOrigin | None) -> PlainKernel:
        """The kernel of a launch. Raises WithoutPtx where its PTX cannot be had."""
        packed = bool(call.extra) and not call.params
        key = (call.function, origin, packed)
        found = self._kernels.get(key)
        if found is not None:
            return found
        if key in self._without_ptx:
            raise without_frames(self._without_ptx[key])
        lib = driver()
        symbol, is_kernel = _symbol_of(call.function, origin)
        function = lib.kernel_function(call.function) if is_kernel else call.function
        capability = lib.device().capability
        try:
            text, again = ptx_source(origin, symbol, capability), compiled_again(origin, symbol, capability)
        except WithoutPtx as reason:
            self._without_ptx[key] = without_frames(reason)
            raise
        name, assemble = f"{plain_name(symbol)}.cu", None if again is None else again.assemble
        found = PlainKernel(
            symbol, function, lambda: source_name(text(), name), _code_of(origin),
            packed or assemble is not None, assemble,
        )  # fmt: skip
        self._kernels[key] = found
        return found

    def _marked_by_hand(self, call: DriverCall, origin: HandleOrigin | None) -> bool:
        """Whether a kernel has marks of its own; only a compiler that runs again for its PTX can know."""
        key = (call.function, origin)
        if key not in self._by_hand:
            symbol, _ = _symbol_of(call.function, origin)
            wanted = self.session.options.wants_kernel(plain_name(symbol))
            again = compiled_again(origin, symbol, driver().device().capability) if wanted else None
            self._by_hand[key] = False
            self._by_hand[key] = again is not None and has_marks(again.text(), symbol)
        return self._by_hand[key]

    def _shape(self, kernel: PlainKernel, call: DriverCall) -> Shape:
        """How a kernel is launched. Code that its own compiler assembles says itself how many threads a block has, and
        how many blocks the launcher counts as one."""
        if kernel.assemble is None or not self.session.options.wants_kernel(plain_name(kernel.symbol)):
            return call.shape
        if kernel.symbol not in self._launch_sizes:
            given: dict[str, tuple[int, ...]] = {}
            with suppress(WarplensError):  # who weaves it asks again, and says why
                entries = parse(self.launches.text_of(kernel)).entries
                given = next((one.performance for one in entries if one.name == kernel.symbol), given)
            self._launch_sizes[kernel.symbol] = _size(given.get("reqntid")), _size(given.get("reqnctapercluster"))
        block, (x, y, z) = self._launch_sizes[kernel.symbol]
        grid = call.shape.grid
        return replace(call.shape, grid=(grid[0] * x, grid[1] * y, grid[2] * z), block=block)

    def _count(self, kernel: PlainKernel) -> int:
        key = (kernel.function, kernel.code)
        if key not in self._parameters:
            self._parameters[key] = len(driver().parameter_sizes(kernel.function))
        return self._parameters[key]

    def _settle(self) -> None:
        """Add up what was only counted, and say which libraries have no PTX."""
        self.session.buffers.open_shelves(for_launches=False)
        for number, variant in self._closed.items():
            variant.launches += self.hooks.count(number)
        self._unmarked.settle()


def _keep_ptx() -> Callable[[], None]:
    """Let `warplens nvcc` keep the PTX of what the program has it compile. Return a function that ends this."""
    before = os.environ.get(KEEPS_PTX)
    os.environ[KEEPS_PTX] = "1"

    def stop() -> None:
        os.environ.pop(KEEPS_PTX, None)
        if before is not None:
            os.environ[KEEPS_PTX] = before

    return stop


def _symbol_of(handle: int, origin: HandleOrigin | None) -> tuple[str, bool]:
    """The symbol of what is launched, and whether the handle is a library's kernel instead of a function."""
    if origin is not None and origin.symbol:
        return origin.symbol, origin.kind is HandleKind.KERNEL
    try:
        return driver().name_of(handle, "Func"), False
    except WarplensError:
        return driver().name_of(handle, "Kernel"), True


def _size(given: tuple[int, ...] | None) -> Dim3:
    x, y, z = (*(given or ()), 1, 1, 1)[:3]
    return x, y, z


def _name_of(handle: int, origin: HandleOrigin | None) -> str:
    try:
        return plain_name(_symbol_of(handle, origin)[0])
    except WarplensError:
        return "unknown kernel"


def _code_of(origin: HandleOrigin | None) -> Hashable:
    return None if origin is None else (origin.home, origin.image, origin.size)


@functools.cache
def why_not() -> str:
    """Why kernels launched from C++ cannot be recorded here; empty where they can."""
    return call_hooks()[1]


def start(running: Session) -> Callable[[], None] | None:
    """Called when a profile starts; returns a function that removes the hooks."""
    by_hand = expects_hand_marks()
    if not (running.options.marks or by_hand) or not has_driver():
        return None
    hooks, reason = call_hooks()
    if hooks is None:
        running.note(SUBJECT, f"kernels launched from C++ run unmarked: {reason}")
        return None
    return intercepted(SUBJECT, lambda launches: DriverCalls(launches, hooks).install(), by_hand=by_hand)(running)
