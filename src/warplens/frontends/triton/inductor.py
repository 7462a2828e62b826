"""torch.compile: Inductor's kernels are marked at their launch, when Inductor has taken all of its own decisions.

Inductor compiles in worker processes, tunes, caches on disk and launches by its own launchers. None of that is touched:
its compiles run without the weaver, so its caches hold what they always hold and its choices are those of a plain run.
Once a kernel has its one configuration, it is compiled again here, woven, into a cache of warplens's own, and its
launcher is swapped for as long as the profile runs.
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
from warplens.frontends.triton import torch_memory
from warplens.frontends.triton.compile_hook import CompileHook
from warplens.frontends.triton.launch_hook import pass_on, tuning, woven_kernel
from warplens.frontends.triton.stages import REMARKS
from warplens.frontends.wrap import wrap
from warplens.session import Session

_STATIC = ("use_static_cuda_launcher", "use_static_triton_launcher")
"""What torch calls the setting of launchers that cannot pass a buffer; the second name is the newer one."""


def start(running: Session) -> Callable[[], None] | None:
    """Called when a profile starts; returns a function that removes the hooks."""
    heuristics: Any = sys.modules.get("torch._inductor.runtime.triton_heuristics")
    if heuristics is None:
        return None
    marker = _Marker(running)
    marker.install(heuristics.CachingAutotuner)
    return marker.remove


class _Marker:
    """Patches Inductor's CachingAutotuner while a profile runs."""

    def __init__(self, running: Session) -> None:
        self.session = running
        self._lock = threading.RLock()
        self._marking = threading.local()
        self._done: dict[int, tuple[Any, Any]] = {}
        self._undo: list[Callable[[], None]] = []

    def install(self, tuner: Any) -> None:
        wrappers = {
            "run": self._run, "autotune_to_one_config": self._autotune, "coordinate_descent_tuning": self._descend,
            "_precompile_config": self._compile,
        }  # fmt: skip
        self._undo += [wrap(tuner, name, wrapper) for name, wrapper in wrappers.items()]

    def remove(self) -> None:
        while self._undo:
            self._undo.pop()()
        for kernel, launcher in self._done.values():
            kernel.launchers = [launcher]
        self._done.clear()

    def _run(self, original: Callable[..., Any], kernel: Any, *arguments: Any, **options: Any) -> Any:
        if options.get("benchmark_run"):
            with tuning():
                return original(kernel, *arguments, **options)
        if getattr(kernel, "triton_interpret", False):
            return original(kernel, *arguments, **options)
        if not kernel.launchers:
            kernel.precompile()
        if len(kernel.launchers) == 1:
            self._settle(kernel)
        with self._timed(kernel, arguments, options.get("stream")):
            result = original(kernel, *arguments, **options)
        if getattr(kernel.launchers[0], "_is_static", False):
            # Inductor's static launcher does not pass Triton's, where launches are counted.
            self.session.saw(kernel.fn.__name__)
        return result

    @contextmanager
    def _timed(self, kernel: Any, arguments: tuple[Any, ...], stream: int | None) -> Iterator[None]:
        """Once enough launches are recorded the plain launcher is back; a few launches with either are timed."""
        name, (_, plain) = str(kernel.fn.__name__), self._done.get(id(kernel), (None, None))
        if plain is None or stream is None or (self.session.options.launches is None) or torch_memory.capturing():
            yield
            return
        over = self.session.finished(name)
        if over:
            kernel.launchers = [plain]
        elif kernel.launchers[0] is plain:
            yield
            return
        # The sizes that a kernel's grid follows from are numbers among its arguments.
        shape = tuple(value for value in arguments if isinstance(value, int))
        if over:
            self.session.timings.begin(name, shape, stream, marked=False)
        else:
            self.session.timings.expect(name, shape, stream, marked=True)
        yield
        self.session.timings.end()

    def _autotune(self, original: Callable[..., Any], kernel: Any, *arguments: Any, **options: Any) -> None:
        with tuning():
            original(kernel, *arguments, **options)
        self._settle(kernel)

    def _descend(self, original: Callable[..., Any], kernel: Any, *arguments: Any, **options: Any) -> Any:
        with tuning():
            best = original(kernel, *arguments, **options)
        return self._marked(kernel, best)

    def _compile(self, original: Callable[..., Any], kernel: Any, *arguments: Any, **options: Any) -> Any:
        with self._lock:
            if getattr(self._marking, "now", False):
                return original(kernel, *arguments, **options)
            with _unwoven():
                return original(kernel, *arguments, **options)

    def _settle(self, kernel: Any) -> None:
        """Put the marked launcher in the place of the one that Inductor chose."""
        if id(kernel) in self._done:
            return
        (launcher,) = kernel.launchers
        descends = kernel.inductor_meta.get("coordinate_descent_tuning", False)
        if descends and not getattr(launcher.config, "found_by_coordesc", False):
            return
        kernel.launchers = [self._marked(kernel, launcher)]

    def _marked(self, kernel: Any, launcher: Any) -> Any:
        self._done[id(kernel)] = (kernel, launcher)
        name = str(kernel.fn.__name__)
        # Unless asked to touch kernels, only one of the user's own can have marks.
        possible = self.session.options.changes_any_kernel or getattr(kernel, "custom_kernel", False)
        if not possible or not self.session.options.wants_kernel(name):
            return launcher
        try:
            return self._compiled(kernel, launcher) or launcher
        except Exception as error:
            # Whatever Inductor, Triton or the weaver cannot do here, the program has a launcher that works.
            if self.session.options.strict:
                raise
            self.session.note(name, f"runs unmarked: it could not be compiled again with marks ({error})")
            return launcher

    def _compiled(self, kernel: Any, launcher: Any) -> Any:
        from torch._inductor import config

        # A kernel that a worker compiled has left its source behind.
        if kernel.fn.fn is None:
            kernel.fn = kernel._reload_kernel().fn
        static = next(name for name in _STATIC if hasattr(config, name))
        with self._lock, config.patch({static: False}):
            result = self._woven(kernel, launcher.config)
            if woven_kernel(result.kernel.metadata):
                # Triton compiles a launcher in C for each signature, whatever is woven.
                with _own_cache("launchers"):
                    return result.make_launcher()
        pass_on(self.session, kernel.fn.__name__, getattr(result.kernel.metadata, REMARKS, {"notes": ()}))
        return None

    def _woven(self, kernel: Any, config: Any) -> Any:
        from triton import knobs

        # Triton 3.6 leaves the weaving out of the key of what Inductor compiles: each has a folder of its own.
        hook = knobs.runtime.add_stages_inspection_hook
        self._marking.now = True
        try:
            with _own_cache(hook.recipe.key if isinstance(hook, CompileHook) else "plain"):
                return kernel._precompile_config(config)
        finally:
            self._marking.now = False


@contextmanager
def _unwoven() -> Iterator[None]:
    """Compiles inside the block are as if no profile ran."""
    from triton import knobs

    hook = knobs.runtime.add_stages_inspection_hook
    if not isinstance(hook, CompileHook):
        yield
        return
    hook.remove()
    try:
        yield
    finally:
        hook.install()


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
        return folder
    except OSError:
        made = tempfile.TemporaryDirectory(prefix="warplens-inductor-")
        atexit.register(made.cleanup)
        return Path(made.name)
