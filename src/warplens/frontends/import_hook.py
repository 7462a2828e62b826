"""Front ends that a profile needs though the program never names them: attached when their library is imported."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from warplens.errors import WarplensError

ATTACH = {
    "triton": "warplens.frontends.triton.frontend",
    "torch._inductor.runtime.triton_heuristics": "warplens.frontends.triton.inductor",
    "cupy": "warplens.frontends.cupy",
    "cuda.core": "warplens.frontends.cuda_core",
    "cuda.bindings.driver": "warplens.frontends.cuda_bindings",
    "numba.cuda": "warplens.frontends.numba",
    "cutlass.cutlass_dsl": "warplens.frontends.cute.automatic",
}
"""By the library that a program imports: the module whose `attach()` lets profiles reach its kernels."""


def watch(failed: Callable[[str, WarplensError], None]) -> Callable[[], None]:
    """Attach front ends now where their library is there, else when it comes; gives what ends the watching.

    A front end that refuses to take part must not make the program's own import fail: `failed` hears of it.
    """

    def attach(library: str) -> None:
        try:
            import_module(ATTACH[library]).attach()
        except WarplensError as error:
            failed(library, error)

    return when_imported(dict.fromkeys(ATTACH, attach))


def when_imported(callbacks: Mapping[str, Callable[[str], None]]) -> Callable[[], None]:
    """Call each with its module's name as soon as that module is imported; gives what stops waiting."""
    finder = _Waiting(callbacks)
    for name in callbacks:
        if _complete(sys.modules.get(name)):
            finder.arrived(name)
    sys.meta_path.insert(0, finder)

    def stop() -> None:
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)

    return stop


class _Waiting(MetaPathFinder):
    """Finds nothing itself; it lets the others find, and has their loader call back once the module has run."""

    def __init__(self, callbacks: Mapping[str, Callable[[str], None]]) -> None:
        self._callbacks = dict(callbacks)
        self._finding: set[str] = set()

    def arrived(self, name: str) -> None:
        callback = self._callbacks.pop(name, None)
        if callback is not None:
            callback(name)

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname not in self._callbacks or fullname in self._finding:
            return None
        self._finding.add(fullname)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._finding.discard(fullname)
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        original = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            loader.__dict__.pop("exec_module", None)
            original(module)
            self.arrived(fullname)

        loader.exec_module = exec_module
        return spec


def _complete(module: ModuleType | None) -> bool:
    """Whether a module has finished importing: one that is half done calls back when it is."""
    return module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False)
