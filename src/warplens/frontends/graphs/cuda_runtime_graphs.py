"""CUDA graphs by the runtime's functions in cuda.bindings, which are the driver's with other names."""

from __future__ import annotations

import sys
from collections.abc import Callable

from warplens.frontends.graphs.cuda_bindings_graphs import follow
from warplens.session import Session


def install(running: Session) -> list[Callable[[], None]]:
    """Follow captures and replays. Return functions that end this."""
    return follow(running, sys.modules["cuda.bindings.runtime"], "cuda")
