"""The compile hook: weave the PTX of kernels compiled inside a profile, under a cache key of their own.

Triton 3.6 does not ask the hook for a key, so there `instrumentation_mode`, which is part of the key, names the
weaving. From 3.7 the hook is asked and answers; 3.9 would drop the user's maxnreg if the mode were set.
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
from warplens.weave.weaver import weave
from warplens.weave.weaving import Weaving


@dataclass(frozen=True)
class Recipe:
    """Everything that changes what a kernel is compiled to."""

    how: Weaving
    kernels: str | None = None
    shared_bytes: int | None = None
    """Bytes of shared memory that records wait in, 0 for a default; None lets them go to global memory at once."""
    auto: Auto = field(default_factory=Auto)
    strict: bool = False
    least_occupancy: float = 1.0
    dump_ir: str | None = None
    override: str | None = None

    @functools.cached_property
    def key(self) -> str:
        """A cache key that differs whenever the woven text could."""
        parts = (LAYOUT_VERSION, _weaver_digest(), self, _content(self.override))
        return "warplens-" + hashlib.sha256(repr(parts).encode()).hexdigest()[:24]

    @property
    def always(self) -> bool:
        """Whether kernels must be compiled even if an earlier process did: files are to be written or read."""
        return self.dump_ir is not None or self.override is not None

    def wants(self, kernel: str) -> bool:
        return self.kernels is None or re.search(self.kernels, kernel) is not None


class CompileHook:
    """Installed in `knobs.runtime.add_stages_inspection_hook` while a profile runs."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        # Before anything is installed: what cannot be read is refused here.
        self._key = recipe.key
        self._before: Callable[..., Any] | None = None
        self._undo: list[Callable[[], None]] = []

    def install(self) -> None:
        from triton import knobs

        self._before = knobs.runtime.add_stages_inspection_hook
        knobs.runtime.add_stages_inspection_hook = self
        if triton_version() < (3, 7):
            self._undo.append(set_knob(knobs.compilation, "instrumentation_mode", self._key))
        self._undo.append(plain_cache.watch(self._key))
        if self.recipe.always:
            self._undo.append(set_knob(knobs.compilation, "always_compile", True))

    def remove(self) -> None:
        from triton import knobs

        knobs.runtime.add_stages_inspection_hook = self._before
        while self._undo:
            self._undo.pop()()

    def __call__(self, *arguments: Any) -> tuple[str, str] | None:
        """Without arguments: the cache key and its hash. With them: put ourselves between the stages."""
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
    """The source of what makes a woven kernel: a changed weaver must not be served what an older one made."""
    weaver, here = Path(weave.__code__.co_filename).parent, Path(__file__).parent
    return _content_of(sorted([*weaver.rglob("*.py"), *here.glob("*.py")]))


def _content(folder: str | None) -> str:
    """The files of an override: edited ones must not be served from what was in them before."""
    if folder is None:
        return ""
    return _content_of(sorted(Path(folder).glob(f"*{SUFFIX}")))


def _content_of(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()
