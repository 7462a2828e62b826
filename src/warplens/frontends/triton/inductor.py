"""torch.compile: Inductor's kernels are marked at their launch, when Inductor has taken all of its own decisions.

Inductor compiles in worker processes, tunes, caches on disk and launches by its own launchers. None of that is touched:
its compiles run without the weaver, so its caches hold what they always hold and its choices are those of a plain run.
Once a kernel has its one configuration and one of its launches is to be recorded, it is compiled again here, woven,
into a cache of warplens's own. Only the launches that are recorded go through the launcher of that twin.
"""

from __future__ import annotations

import atexit
import functools
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from warplens.files import cache_folder
from warplens.frontends.triton import launch_hook
from warplens.frontends.triton.launch_hook import LaunchHook, pass_on, woven_kernel
from warplens.frontends.triton.metadata_keys import REMARKS
from warplens.frontends.triton.tuning import tuning, unwatched
from warplens.frontends.wrap import wrap
from warplens.launch.captured_graphs import CapturedCode
from warplens.launch.thinning import Thinning, samples_of
from warplens.launch.variant import Variant
from warplens.launch.woven import WovenKernel
from warplens.session import Session
from warplens.weave.weaving import Selection

_STATIC = ("use_static_cuda_launcher", "use_static_triton_launcher")
"""What torch calls the setting of launchers that cannot pass a buffer; the second name is the newer one."""


def start(running: Session) -> Callable[[], None] | None:
    """Called when a profile starts; returns a function that removes the hooks."""
    heuristics: Any = sys.modules.get("torch._inductor.runtime.triton_heuristics")
    if heuristics is None:
        return None
    recorder = InductorRecorder(running)
    recorder.install(heuristics.CachingAutotuner)
    return recorder.remove


class InductorRecorder:
    """Patches Inductor's CachingAutotuner while a profile runs."""

    def __init__(self, running: Session) -> None:
        self.session = running
        self._lock = threading.RLock()
        self._launching = threading.local()
        self._twins: dict[tuple[int, bool, Thinning], Any] = {}
        """By kernel and whether it is captured, the launcher of its woven twin; None where it has none."""
        self._undo: list[Callable[[], None]] = []

    def install(self, tuner: Any) -> None:
        wrappers = {
            "run": self._run, "autotune_to_one_config": _tuned, "coordinate_descent_tuning": _tuned,
            "precompile": _unwatched,
        }  # fmt: skip
        self._undo += [wrap(tuner, name, wrapper) for name, wrapper in wrappers.items()]

    def remove(self) -> None:
        while self._undo:
            self._undo.pop()()
        self._twins.clear()

    def _run(self, original: Callable[..., Any], kernel: Any, *arguments: Any, **options: Any) -> Any:
        def plain() -> Any:
            with tuning():
                return original(kernel, *arguments, **options)

        if options.get("benchmark_run") or getattr(kernel, "triton_interpret", False):
            return plain()
        self._tune(kernel, arguments, options)
        # The sizes that a kernel's grid follows from are numbers among its arguments.
        shape = tuple(value for value in arguments if isinstance(value, int))
        variant = self._variant(kernel, shape)
        if variant.closed:
            variant.launches += 1
            return plain()
        stream = int(options.get("stream") or 0)
        return self.session.launch(
            variant, stream, plain, lambda captured: self._record(kernel, variant, plain, captured)
        )

    def _variant(self, kernel: Any, shape: tuple[int, ...]) -> Variant:
        name, config = str(kernel.fn.__name__), kernel.launchers[0].config

        def describe() -> dict[str, Any]:
            known = {name: getattr(config, name, None) for name in ("num_warps", "num_stages")} | config.kwargs
            chosen = {name: value for name, value in known.items() if isinstance(value, int | float | str)}
            return {"sizes": list(shape), **chosen}

        variant = self.session.variant(name, id(kernel), shape, describe)
        # Unless every kernel may be changed, only one of the user's own can have marks.
        possible = self.session.options.changes_any_kernel or getattr(kernel, "custom_kernel", False)
        variant.closed = variant.closed or not possible
        # The grid is known when Inductor's launcher has worked it out.
        self.session.start_trial(variant, Selection(), (1, 1, 1))
        return variant

    def _record(
        self, kernel: Any, variant: Variant, plain: Callable[[], Any], captured: bool
    ) -> Callable[[], Any] | None:
        """A function that launches the woven twin; None where the plain kernel must run."""
        key = id(kernel), captured, variant.thinning
        if key not in self._twins:
            self._twins[key] = self._compiled(kernel, kernel.launchers[0], captured, variant.thinning)
        twin = self._twins[key]
        if twin is None:
            variant.closed = True
            return None

        def go() -> Any:
            with self._lock:
                before, kernel.launchers, self._launching.variant = kernel.launchers, [twin], variant
                try:
                    return plain()
                finally:
                    kernel.launchers, self._launching.variant = before, None

        return go

    def _tune(self, kernel: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        """Let Inductor take all of its decisions about a kernel, as its `run` does first."""
        given = {name: value for name, value in options.items() if name not in ("stream", "benchmark_run")}
        if not kernel.launchers:
            kernel.precompile()
        if len(kernel.launchers) > 1:
            kernel.autotune_to_one_config(*arguments, **given)
        descends = kernel.inductor_meta.get("coordinate_descent_tuning", False)
        if descends and not getattr(kernel.launchers[0].config, "found_by_coordesc", False):
            kernel.launchers = [kernel.coordinate_descent_tuning(kernel.launchers[0], *arguments, **given)]

    def _compiled(self, kernel: Any, launcher: Any, captured: bool, thinning: Thinning) -> Any:
        """The launcher of the woven twin; None where the kernel has none."""
        from torch._inductor import config

        hook = launch_hook.running()
        if hook is None:
            return None
        # A kernel that a worker compiled has left its source behind.
        if kernel.fn.fn is None:
            kernel.fn = kernel._reload_kernel().fn
        static = next(name for name in _STATIC if hasattr(config, name))
        with self._lock, config.patch({static: False}):
            # Inductor's compilations are cached by a key that does not know of the weaving: each has its own folder.
            compiler = hook.compiler_of(captured, thinning)
            with _own_cache(compiler.recipe.key), compiler.weaving():
                result = kernel._precompile_config(launcher.config)
            binary = result.kernel
            pass_on(self.session, kernel.fn.__name__, getattr(binary.metadata, REMARKS, None) or {"notes": ()})
            woven = woven_kernel(binary.metadata, binary)
            if woven is None:
                return None
            # Triton compiles a launcher in C for each signature, whatever is woven.
            with _own_cache("launchers"):
                binary._init_handles()
                binary._run = _TwinLauncher(self._launching, hook, woven, binary, captured)
                return result.make_launcher()


class _TwinLauncher:
    """Launches a woven twin when Inductor's launcher has worked out the grid."""

    def __init__(self, launching: Any, hook: LaunchHook, woven: WovenKernel, binary: Any, captured: bool) -> None:
        self._launching, self._hook, self._woven, self._launcher = launching, hook, woven, binary._run
        self._code = CapturedCode(binary) if captured else None

    def __call__(self, x: int, y: int, z: int, stream: int, function: Any, *rest: Any) -> Any:
        variant = self._launching.variant
        if not variant.settled and not variant.thinning:
            variant.samples = samples_of(self._woven.select, (x, y, z))
        launch = self._hook.lend(self._woven, variant, (x, y, z), stream, self._code)
        if launch is None:
            # A woven kernel without a buffer records nothing.
            with self._hook.passing(0):
                return self._launcher(x, y, z, stream, function, *rest)
        with launch as pointer, self._hook.passing(pointer):
            return self._launcher(x, y, z, stream, function, *rest)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._launcher, name)


def _tuned(original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    with tuning(), unwatched():
        return original(*arguments, **options)


def _unwatched(original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Inductor's launchers keep Triton's for good, so those must not be ours."""
    with unwatched():
        return original(*arguments, **options)


@contextmanager
def _own_cache(name: str) -> Iterator[None]:
    """What is compiled inside the block does not reach the caches of torch and Triton."""
    from triton import knobs

    with knobs.cache.scope():
        knobs.cache.dir = str(_folder() / name)
        yield


@functools.cache
def _folder() -> Path:
    """In the user's cache, so that the next profile of the same program need not compile again."""
    folder = cache_folder() / "inductor"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:  # it cannot be written
        made = tempfile.TemporaryDirectory(prefix="warplens-inductor-")
        atexit.register(made.cleanup)
        return Path(made.name)
