"""Call back when the program imports a module."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def when_imported(callbacks: Mapping[str, Callable[[str], None]]) -> Callable[[], None]:
    """Call each callback once its module is imported, with the module's name. Return a function that stops this."""
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
    """Let the other finders find a module, and have its loader call back once the module has run."""

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
    """Return whether a module has finished importing; a half-imported one calls back later."""
    return module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False)
