"""What a profile does to Triton when it starts and undoes when it stops."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from warplens.errors import UsageError, WarplensError
from warplens.frontends.triton import interpret
from warplens.frontends.triton.launch_hook import LaunchHook
from warplens.frontends.triton.requirement import require_triton
from warplens.frontends.triton.weaving_compiler import Recipe, WeavingCompiler
from warplens.frontends.wrap import wrap
from warplens.launch.weaving_options import weaving
from warplens.options import Options
from warplens.record.capture import Device
from warplens.session import Session
from warplens.weave.weaving import Weaving

override: Weaving | None = None
"""A weaving that benchmarks and tests put in place of the one the options ask for."""


def start(running: Session) -> Callable[[], None] | None:
    """Called when a profile starts; returns a function that removes the hooks."""
    require_triton()
    from triton import knobs

    if knobs.runtime.interpret:
        return _watch_interpreter(running)
    problem = _other_profiler()
    if problem and not running.whole_program:
        raise WarplensError(problem)
    if problem:
        running.note("triton", f"its kernels run unmarked: {problem}")
        return None
    hook = LaunchHook(running, WeavingCompiler(recipe(running.options)))
    hook.install()
    return hook.remove


_COMPILED_ONLY = (
    *("records_per_warp", "bytes_per_block", "full", "clock", "buffer", "granularity", "warps", "blocks", "sms"),
    *("store", "mode", "overhead"),
)
"""Options that only compiled kernels support."""


def _watch_interpreter(running: Session) -> Callable[[], None]:
    from triton.runtime.interpreter import GridExecutor

    def call(original: Callable[..., Any], executor: Any, *arguments: Any, **options: Any) -> Any:
        name = getattr(executor.fn, "__name__", "kernel")
        constants = _constants(executor, arguments, options)
        described = _describe(constants, executor.grid)  # now: a grid may be a function that holds tensors
        variant = running.variant(name, (executor.fn, repr(constants)), _fixed(executor.grid), lambda: described)
        if running.options.marks:
            running.note(name, "TRITON_INTERPRET=1: only marks in the source are recorded, automatic ones need a GPU")
        if without_effect := running.options.given(*_COMPILED_ONLY):
            given = ", ".join(f"{option}=" for option in without_effect)
            running.note(name, f"TRITON_INTERPRET=1: every program and every record is kept; without effect: {given}")
        if not running.takes_on_host(variant):
            return original(executor, *arguments, **options)
        launch = interpret.Interpreted(name, variant)
        try:
            with interpret.recording(launch):
                return original(executor, *arguments, **options)
        finally:  # a kernel that raises keeps what it recorded until then
            if launch.events:
                running.run.other_device(0, lambda: Device("Triton interpreter (CPU)"))
                running.add(launch)

    return wrap(GridExecutor, "__call__", call)


def _constants(executor: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
    """The compile-time constants of an interpreted launch, for which a GPU would run other code."""
    if not executor.constexprs:
        return {}
    parameters = inspect.signature(executor.fn).parameters
    given = {**dict(zip(executor.arg_names, arguments, strict=False)), **options}
    found = {name: given.get(name, parameters[name].default) for name in executor.constexprs}
    return {name: getattr(value, "value", value) for name, value in found.items()}


def _fixed(grid: Any) -> Any:
    """A grid, where it is known before the launch."""
    return None if callable(grid) else repr(grid)


def _describe(constants: Mapping[str, Any], grid: Any) -> dict[str, Any]:
    """What tells a variant from others, as for compiled kernels: its grid, if it has one, and constants."""
    known = {name: value for name, value in constants.items() if isinstance(value, int | float | str | bool)}
    try:
        sizes = [] if callable(grid) else [int(size) for size in grid]
    except (TypeError, ValueError):  # the launch failed
        sizes = []
    return {"grid": [*sizes, *[1] * (3 - len(sizes))], **known} if sizes else known


def recipe(options: Options) -> Recipe:
    """What `wl.profile`'s options ask of the weaver."""
    shared = None
    if options.buffer == "shared":
        shared = options.bytes_per_block or 0
        if options.full == "ring" and options.records_per_warp is not None:
            raise UsageError("buffer='shared' with full='ring': give its size with bytes_per_block=")
    return Recipe(
        override or weaving(options),
        options.kernels,
        shared,
        options.marks,
        options.strict,
        options.least_occupancy,
        None if options.dump_ir is None else os.fspath(options.dump_ir),
        None if options.override is None else os.fspath(options.override),
    )


def _other_profiler() -> str:
    """Say which other instrument uses Triton's one profile allocator; empty if none does."""
    from triton import knobs
    from triton.runtime import _allocation

    flags = getattr(sys.modules.get("triton.profiler.flags"), "flags", None)
    if flags is not None and flags.instrumentation_on:
        return "Proton's instrumentation is active; call its finalize() before wl.profile"
    if not isinstance(_allocation._profile_allocator.get(), _allocation.NullAllocator):
        return "another profiler is active; call its finalize() before wl.profile"
    mode = knobs.compilation.instrumentation_mode
    return f"TRITON_INSTRUMENTATION_MODE={mode!r} is active; unset it before wl.profile" if mode else ""
