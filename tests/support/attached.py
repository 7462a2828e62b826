"""Front ends that are attached for one test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from warplens.frontends import registry
from warplens.session import stack


@contextmanager
def attached(library: str = "") -> Iterator[None]:
    """Attach the front end of a library. After the block, all that were attached in it are gone."""
    before = list(stack.front_ends), set(registry.attached)
    if library:
        registry.attach(library)
    try:
        yield
    finally:
        stack.front_ends[:] = before[0]
        registry.attached.intersection_update(before[1])
