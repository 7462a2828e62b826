"""What a profile does to Triton when it starts and undoes when it stops."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from warplens.errors import UsageError, WarplensError
from warplens.frontends.triton import interpret
from warplens.frontends.triton.compile_hook import CompileHook, Recipe
from warplens.frontends.triton.launch_hook import LaunchHook
from warplens.frontends.triton.requirement import require_triton
from warplens.frontends.wrap import wrap
from warplens.launch.weaving_options import weaving
from warplens.options import Options
from warplens.session import Session
from warplens.weave.weaving import Weaving

override: Weaving | None = None
"""A weaving that benchmarks and tests put in place of the one the options ask for."""


def start(running: Session) -> Callable[[], None]:
    """Called when a profile starts; returns a function that removes the hooks."""
    require_triton()
    from triton import knobs

    if knobs.runtime.interpret:
        return _watch_interpreter(running)
    _refuse_others()
    compile_hook, launch_hook = CompileHook(recipe(running.options)), LaunchHook(running)
    compile_hook.install()
    launch_hook.install()

    def stop() -> None:
        launch_hook.remove()
        compile_hook.remove()

    return stop


def _watch_interpreter(running: Session) -> Callable[[], None]:
    from triton.runtime.interpreter import GridExecutor

    def call(original: Callable[..., Any], executor: Any, *arguments: Any, **options: Any) -> Any:
        name = getattr(executor.fn, "__name__", "kernel")
        launch = interpret.Interpreted(name)
        with interpret.recording(launch):
            result = original(executor, *arguments, **options)
        running.saw(name)
        if running.options.marks:
            running.note(name, "TRITON_INTERPRET=1: only marks in the source are recorded, automatic ones need a GPU")
        if launch.events and running.options.wants_kernel(name):
            running.add(launch)
        return result

    return wrap(GridExecutor, "__call__", call)


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


def _refuse_others() -> None:
    """Triton has one profile allocator: two instruments cannot share it."""
    from triton import knobs
    from triton.runtime import _allocation

    flags = getattr(sys.modules.get("triton.profiler.flags"), "flags", None)
    proton = bool(flags is not None and flags.instrumentation_on)
    taken = not isinstance(_allocation._profile_allocator.get(), _allocation.NullAllocator)
    if proton or taken:
        who = "Proton's instrumentation" if proton else "another profiler"
        raise WarplensError(f"{who} is active; call its finalize() before wl.profile, both need the same kernel buffer")
    mode = knobs.compilation.instrumentation_mode
    if mode:
        raise WarplensError(f"TRITON_INSTRUMENTATION_MODE={mode!r} is active; unset it before wl.profile")
