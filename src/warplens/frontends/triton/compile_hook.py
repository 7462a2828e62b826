"""The compile hook: weave the PTX of kernels compiled inside a profile, under their own cache key.

Triton 3.6 does not ask the hook for a key, so there `instrumentation_mode`, which is part of the key, names the
weaving. Triton 3.7 and newer ask the hook; 3.9 would drop the user's maxnreg if the mode were set.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from warplens.auto.rules import Auto
from warplens.frontends.triton import plain_cache
from warplens.frontends.triton.override import SUFFIX
from warplens.frontends.triton.requirement import set_knob, triton_version
from warplens.frontends.triton.stages import Compilation
from warplens.record.layout import LAYOUT_VERSION
from warplens.weave.weaving import Weaving


@dataclass(frozen=True)
class Recipe:
    """Everything that changes what a kernel is compiled to."""

    how: Weaving
    kernels: str | None = None
    shared_bytes: int | None = None
    """Bytes of shared memory that buffer the records, 0 for the default; None writes them to global memory directly."""
    auto: Auto = field(default_factory=Auto)
    strict: bool = False
    least_occupancy: float = 1.0
    dump_ir: str | None = None
    override: str | None = None

    @functools.cached_property
    def key(self) -> str:
        """A cache key that differs whenever the woven text could."""
        parts = (LAYOUT_VERSION, _weaver_digest(), self, _override_digest(self.override))
        return "warplens-" + hashlib.sha256(repr(parts).encode()).hexdigest()[:24]

    @property
    def always(self) -> bool:
        """Whether kernels must be compiled even if they are cached, because files are written or read."""
        return self.dump_ir is not None or self.override is not None

    def wants(self, kernel: str) -> bool:
        return self.kernels is None or re.search(self.kernels, kernel) is not None


class CompileHook:
    """Installed in `knobs.runtime.add_stages_inspection_hook` while a profile runs."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        # Computed before anything is installed: an override that cannot be read fails here.
        self._key = recipe.key
        self._before: Callable[..., Any] | None = None
        self._undo: list[Callable[[], None]] = []

    def install(self) -> None:
        from triton import knobs

        self._before = knobs.runtime.add_stages_inspection_hook
        knobs.runtime.add_stages_inspection_hook = self
        if triton_version() < (3, 7):
            self._undo.append(set_knob(knobs.compilation, "instrumentation_mode", self._key))
        self._undo.append(plain_cache.watch_cache_keys(self._key))
        if self.recipe.always:
            self._undo.append(set_knob(knobs.compilation, "always_compile", True))

    def remove(self) -> None:
        from triton import knobs

        knobs.runtime.add_stages_inspection_hook = self._before
        while self._undo:
            self._undo.pop()()

    def __call__(self, *arguments: Any) -> tuple[str, str] | None:
        """Return the cache key and its hash if called without arguments; else wrap the stages."""
        if not arguments:
            key = self._key
            if self._before is not None:
                key += self._before()[0]
            return key, hashlib.sha256(key.encode()).hexdigest()
        if self._before is not None:
            self._before(*arguments)
        stages = arguments[1]
        if "ptx" in stages:
            Compilation(self.recipe, stages)
        return None


@functools.cache
def _weaver_digest() -> str:
    """Hash the source of everything that shapes a woven kernel: a changed weaver must not get kernels of an older one
    from the cache."""
    here = Path(__file__).parent
    package = here.parents[1]
    rooms = ("auto", "driver", "ptx", "weave")
    return _digest(sorted([*(file for room in rooms for file in (package / room).rglob("*.py")), *here.glob("*.py")]))


def _override_digest(folder: str | None) -> str:
    """Hash the files of an override: an edited file must not get the kernel of its older content."""
    if folder is None:
        return ""
    return _digest(sorted(Path(folder).glob(f"*{SUFFIX}")))


def _digest(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()
