"""CUDA graphs of every library that replays them from Python: one module for each, with a function `install`."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from warplens.frontends.import_hook import when_imported
from warplens.frontends.library_hooks import hook_library, remover
from warplens.session import Session

LIBRARIES = {
    "torch.cuda": "torch_graphs",
    "cupy": "cupy_graphs",
    "cuda.core.graph": "cuda_core_graphs",
    "cuda.bindings.driver": "cuda_bindings_graphs",
    "cuda.bindings.runtime": "cuda_runtime_graphs",
}
"""By module of the library, the module here that follows its captures and replays."""


def watch_graphs(running: Session) -> Callable[[], None]:
    """Follow the captures and replays of each library, once it is imported. Return a function that ends this."""
    undo: list[Callable[[], None]] = [running.replays.rest_all]

    def follow(library: str) -> None:
        module = import_module(f"{__name__}.{LIBRARIES[library]}")
        name = library.partition(".")[0]
        stop = hook_library(running, name, lambda: module.install(running), without="its CUDA graphs are not recorded")
        undo.extend([stop] if stop else [])

    undo.append(when_imported(dict.fromkeys(LIBRARIES, follow)))
    return remover(undo)
