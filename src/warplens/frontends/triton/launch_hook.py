"""The launch path: a launch that is recorded runs the woven twin, every other one the kernel that Triton compiled.

Triton keeps the launcher of a compiled kernel in its attribute `_run`. A kernel that may be recorded gets a launcher of
ours in that place, which decides for each launch. Kernels that are not profiled keep theirs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, NamedTuple
from weakref import WeakSet

from warplens.errors import WarplensError
from warplens.frontends.intercept.name_swap import instances
from warplens.frontends.triton.metadata_keys import METADATA, REMARKS
from warplens.frontends.triton.straight_launch import Launch, straight_launch
from warplens.frontends.triton.tuning import leave_tuning_alone, thread
from warplens.frontends.triton.weaving_compiler import WeavingCompiler
from warplens.frontends.wrap import wrap
from warplens.launch.captured_graphs import CapturedCode, NodeFunction
from warplens.launch.lent_launch import LentLaunch
from warplens.launch.thinning import ALL_MARKS, Thinning
from warplens.launch.variant import Variant
from warplens.launch.woven import WovenKernel
from warplens.record.capture import Dim3
from warplens.sass.machine_code import MachineCode
from warplens.session import Session
from warplens.threads import assigned
from warplens.weave.mark_comments import PREFIX
from warplens.weave.weaver import Woven
from warplens.weave.weaving import Selection

_loaded: WeakSet[Any] = WeakSet()
"""Kernels that Triton has loaded in this process."""
_CHOICE = "warplens_choice"
"""The attribute by which a launcher of ours is known."""
_TRIED = 1 << 20
"""An address that no kernel gets."""
_hooks: list[LaunchHook] = []
"""The hook of the running session."""


def running() -> LaunchHook | None:
    """The hook of the running session."""
    return _hooks[-1] if _hooks else None


def woven_kernel(metadata: Any, kernel: Any = None, plain: Any = None) -> WovenKernel | None:
    """What a compiled kernel's metadata says about its weaving; None where it has none. `kernel` has its code, and
    `plain` that of the kernel without marks."""
    document = getattr(metadata, METADATA, None)
    if not document:
        return None
    select: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in document["select"].items()}
    return WovenKernel.of(
        Woven.restore("", document),
        metadata.name,
        threads=32 * metadata.num_warps,
        name=metadata.name,
        ctas=getattr(metadata, "num_ctas", 1),
        select=Selection(**select),
        shared_slots=document.get("shared_slots", 0),
        shared_bytes=document.get("shared_bytes", 0),
        resources={**document.get("resources", {}), "shared_bytes_kernel": getattr(metadata, "shared", 0)},
        auto="auto" in document,
        machine_code=_code_of(metadata.name, kernel, plain, automatic="auto" in document),
    )


def _code_of(name: str, kernel: Any, plain: Any, *, automatic: bool) -> MachineCode | None:
    """The PTX and the cubin of a compiled kernel, which Triton keeps."""
    stages = getattr(kernel, "asm", None) or {}
    cubin, ptx = stages.get("cubin"), stages.get("ptx")
    if not isinstance(ptx, str) or not isinstance(cubin, bytes):
        return None
    without_marks = (getattr(plain, "asm", None) or {}).get("cubin")
    return MachineCode(name, ptx, cubin, automatic=automatic, plain=without_marks)


class Pointer(int):
    """An address that Triton's launchers accept, as a number or by `data_ptr`."""

    __slots__ = ()

    def data_ptr(self) -> int:
        return int(self)


class WovenTwin(NamedTuple):
    """What a recorded launch runs."""

    kernel: Any
    """As Triton compiled it."""
    woven: WovenKernel
    start: Launch


class _Launching(threading.local):
    """What the woven kernel that this thread launches now gets as its buffer."""

    pointer: int | None = None


def pass_on(session: Session, kernel: str, remarks: Mapping[str, Any]) -> None:
    """Give the compiler's remarks about a kernel to the session."""
    session.run.coverage.add(remarks.get("matched", ()), remarks.get("lines", {}))
    for text in remarks["notes"]:
        session.note(kernel, text)


class LaunchChoice:
    """Decides about the launches of one compiled kernel while a session runs."""

    __slots__ = ("hook", "kernel", "plain", "twin", "variants")

    def __init__(self, hook: LaunchHook, kernel: Any, plain: Callable[..., Any]) -> None:
        self.hook, self.kernel, self.plain = hook, kernel, plain
        self.variants: dict[Dim3, Variant] = {}
        self.twin: WovenTwin | None = None
        """What a recorded launch runs, once there was one."""

    def launch(self, grid: Dim3, stream: int, function: Any, rest: tuple[Any, ...]) -> Any:
        """Make a launch of which nothing is known, or for which no memory is at hand."""
        if not self.hook.running:
            return self.plain(*grid, stream, function, *rest)
        variant = self.variants.get(grid)
        if variant is None:
            variant = self.variants[grid] = self.hook.variant(self.kernel, grid)
        return self.hook.session.launch(
            variant,
            stream,
            lambda: self.plain(*grid, stream, function, *rest),
            lambda captured: self._record(variant, grid, stream, rest, captured),
        )

    def _record(
        self, variant: Variant, grid: Dim3, stream: int, rest: tuple[Any, ...], captured: bool
    ) -> Callable[[], Any] | None:
        """A function that launches the woven twin; None where the plain kernel must run."""
        if not captured:
            self.twin = self.hook.twin(self.kernel, captured, variant.thinning)
        return self.hook.record(self.kernel, variant, grid, stream, rest[1:], captured)


def recording_launcher(hook: LaunchHook, kernel: Any, plain: Callable[..., Any]) -> Callable[..., Any]:
    """What stands in for the launcher of a compiled kernel while a session runs.

    It is a function, because calling an object of a class would copy the arguments once more.
    """
    choice = LaunchChoice(hook, kernel, plain)
    find, start = choice.variants.get, straight_launch(plain) or (lambda scratch, *given: plain(*given))
    done_grid: Dim3 | None = None
    done: Any = None
    """The grid and the variant of the latest launch of which nothing more is recorded."""

    def launch(x: int, y: int, z: int, stream: int, function: Any, metadata: Any, *rest: Any) -> Any:
        nonlocal done_grid, done
        grid = (x, y, z)
        if grid == done_grid:
            # Most launches take this path: one comparison and one count.
            if not thread.tuning:
                done.launches += 1
            return start(None, x, y, z, stream, function, metadata, *rest)
        if thread.tuning:
            return start(None, x, y, z, stream, function, metadata, *rest)
        variant = find(grid)
        if variant is not None:
            if variant.closed:
                done, done_grid = variant, grid
                variant.launches += 1
                return start(None, x, y, z, stream, function, metadata, *rest)
            # Recorded launches take this path in the steady state: memory is at hand, and nothing is decided again.
            ready, twin = variant.ready, choice.twin
            if ready is not None and twin is not None and hook.running:
                ctas = twin.woven.ctas
                recorded = ready.take(twin.woven, grid if ctas == 1 else (x * ctas, y, z), stream)
                if recorded is not None:
                    return hook.launch(twin, recorded, grid, stream, rest)
        return choice.launch(grid, stream, function, (metadata, *rest))

    # What else a launcher has, such as the sizes that Inductor reads.
    vars(launch).update(getattr(plain, "__dict__", {}))
    setattr(launch, _CHOICE, choice)
    return launch


class LaunchHook:
    """Gives recording launchers to the kernels of one session."""

    def __init__(self, session: Session, compiler: WeavingCompiler) -> None:
        self.session, self.compiler = session, compiler
        self.indirect = WeavingCompiler(replace(compiler.recipe, indirect=True))
        """Compiles what is captured into CUDA graphs."""
        self._twins: dict[tuple[int, bool, Thinning], WovenTwin | None] = {}
        self._compilers: dict[tuple[bool, Thinning], WeavingCompiler] = {}
        self._watched: list[tuple[Any, Any]] = []
        self._undo: list[Callable[[], None]] = []
        self._local = _Launching()
        self.running = False

    def install(self) -> None:
        from triton.runtime import _allocation

        _follow_loads()
        allocator = _allocation._profile_allocator
        before = allocator.get()
        allocator.set(self._allocate)
        self._undo.append(lambda: allocator.set(before) if allocator.get() == self._allocate else None)
        self._undo += [self.compiler.install(), self.indirect.install(), *leave_tuning_alone()]
        self.running = True
        _hooks.append(self)
        for kernel in list(_loaded):
            self.watch(kernel)

    def remove(self) -> None:
        self.running = False
        if self in _hooks:
            _hooks.remove(self)
        while self._undo:
            self._undo.pop()()
        for kernel, launcher in self._watched:
            if hasattr(kernel._run, _CHOICE):
                kernel._run = launcher
        self._watched.clear()

    def watch(self, kernel: Any) -> None:
        """Decide about the launches of a kernel that Triton has loaded, if any of them may be recorded."""
        name = kernel.metadata.name
        watched = hasattr(kernel._run, _CHOICE) or not kernel._run or thread.unwatched
        if watched or getattr(kernel.metadata, METADATA, None):
            return
        if kernel.metadata.target.backend != "cuda":
            self.session.note(name, _not_recorded(kernel.metadata.target))
            self.session.run.passed_by(name)
            return
        if not (self.session.counts_all or self.session.options.wants_kernel(name)):
            self.session.run.passed_by(name)
            return
        self._watched.append((kernel, kernel._run))
        kernel._run = recording_launcher(self, kernel, kernel._run)

    def variant(self, kernel: Any, grid: Dim3) -> Variant:
        """The variant of a launch; one that cannot be recorded is closed."""
        variant = self.session.variant(kernel.metadata.name, kernel.hash, grid, lambda: _describe(kernel, grid))
        possible = self.session.options.changes_any_kernel or PREFIX in kernel.asm.get("ptx", PREFIX)
        variant.closed = variant.closed or not possible
        self.session.start_trial(variant, self.compiler.recipe.how.select, grid)
        return variant

    def record(
        self, kernel: Any, variant: Variant, grid: Dim3, stream: int, rest: tuple[Any, ...], captured: bool
    ) -> Callable[[], Any] | None:
        """A function that launches the woven twin; None where the plain kernel must run. `rest` is what a launcher
        takes after the kernel's metadata."""
        twin = self.twin(kernel, captured, variant.thinning)
        if twin is None:
            variant.closed = True
            return None
        code = None
        if captured:
            plain, woven = (NodeFunction(one.function, one.metadata.shared) for one in (kernel, twin.kernel))
            code = CapturedCode(twin.kernel, woven, plain)
        launch = self.lend(twin.woven, variant, grid, stream, code)
        if launch is None:
            return None
        return lambda: self.launch(twin, launch, grid, stream, rest)

    def launch(self, twin: WovenTwin, launch: LentLaunch, grid: Dim3, stream: int, rest: tuple[Any, ...]) -> Any:
        """Launch a woven twin with the memory of `launch`."""
        kernel = twin.kernel
        try:
            result = twin.start(launch.pointer, *grid, stream, kernel.function, kernel.packed_metadata, *rest)
        except BaseException:
            launch.failed()
            raise
        launch.launched()
        return result

    def lend(
        self, woven: WovenKernel, variant: Variant, grid: Dim3, stream: int, code: CapturedCode | None
    ) -> LentLaunch | None:
        """Memory for a launch; None where it cannot be recorded."""
        x, y, z = grid
        return self.session.lend(woven, variant, (x * woven.ctas, y, z), stream, code)

    def passing(self, pointer: int) -> AbstractContextManager[None]:
        """Let the woven kernel that this thread launches inside the block get `pointer`."""
        return assigned(self._local, pointer=pointer)

    def twin(self, kernel: Any, captured: bool, thinning: Thinning = ALL_MARKS) -> WovenTwin | None:
        """The woven twin of a kernel, made when it is first needed; None where the kernel must run plain."""
        key = id(kernel), captured, thinning
        if key not in self._twins:
            self._twins[key] = self._compile(kernel, self.compiler_of(captured, thinning))
        return self._twins[key]

    def compiler_of(self, captured: bool, thinning: Thinning) -> WeavingCompiler:
        """The compiler that leaves out what the overhead budget does not allow."""
        plain = self.indirect if captured else self.compiler
        if not thinning:
            return plain
        key = captured, thinning
        if key not in self._compilers:
            made = WeavingCompiler(replace(plain.recipe, how=thinning.of(plain.recipe.how)))
            self._undo.append(made.install())
            self._compilers[key] = made
        return self._compilers[key]

    def _compile(self, kernel: Any, compiler: WeavingCompiler) -> WovenTwin | None:
        from triton.runtime import _allocation

        if _allocation._profile_allocator.get() != self._allocate:
            raise WarplensError("another profiler uses Triton's profile scratch; end it before wl.profile")
        made = compiler.twin(kernel)
        remarks = getattr(made.metadata, REMARKS, None)
        if remarks:
            pass_on(self.session, made.metadata.name, remarks)
        woven = woven_kernel(made.metadata, made, kernel)
        if woven is None:
            return None
        made._init_handles()
        return WovenTwin(made, woven, self._start(made._run))

    def _start(self, launcher: Any) -> Launch:
        """What launches a woven kernel, given the address of its buffer first."""
        with self.passing(_TRIED):
            straight = straight_launch(launcher, _TRIED)

        def start(pointer: int, *given: Any) -> Any:
            with self.passing(pointer):
                return launcher(*given)

        return straight or start

    def _allocate(self, size: int, alignment: int, stream: int | None) -> Pointer | None:
        """Triton's profile allocator: called in the launching thread just before a woven kernel is launched."""
        pointer = self._local.pointer
        if pointer is None:
            raise WarplensError(
                "a kernel asks for profile scratch that warplens did not weave: it was compiled by another profiler, "
                "or outside this process's profiles; compile it again inside wl.profile"
            )
        return Pointer(pointer) if pointer else None


def _not_recorded(target: Any) -> str:
    reason = f"not recorded: it runs on {target.arch}, and warplens records launches on NVIDIA GPUs only"
    compiled = "; marks for AMD's GPUs compile, but have not run on hardware"
    return reason + (compiled if target.backend == "hip" else "")


def _follow_loads() -> None:
    """Learn of every kernel that Triton loads, those of before included; done once per process."""
    from triton.compiler.compiler import CompiledKernel

    if getattr(CompiledKernel, "_warplens_follows", False):
        return
    CompiledKernel._warplens_follows = True
    _loaded.update(kernel for kernel in instances(CompiledKernel) if kernel._run is not None)

    def init_handles(original: Callable[..., None], kernel: Any) -> None:
        fresh = kernel._run is None
        original(kernel)
        if fresh and kernel._run is not None:
            _loaded.add(kernel)
            for hook in _hooks:
                hook.watch(kernel)

    wrap(CompiledKernel, "_init_handles", init_handles)


def _describe(kernel: Any, grid: Dim3) -> dict[str, Any]:
    """What tells a variant from others: its grid, launch options and constants."""
    metadata = kernel.metadata
    options = {name: getattr(metadata, name, None) for name in ("num_warps", "num_stages", "num_ctas", "maxnreg")}
    names = getattr(getattr(kernel.src, "fn", None), "arg_names", ())
    constants = {
        str(names[key[0]] if len(key) == 1 and key[0] < len(names) else key): value
        for key, value in getattr(kernel.src, "constants", {}).items()
        if isinstance(value, int | float | str | bool)
    }
    return {"grid": list(grid), **{name: value for name, value in options.items() if value is not None}, **constants}
