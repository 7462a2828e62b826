"""The compile hook: weave the PTX of kernels compiled inside a profile, under a cache key of their own.

Triton 3.6 does not ask the hook for a key, so there `instrumentation_mode`, which is part of the key, names the
weaving. From 3.7 the hook is asked and answers; 3.9 would drop the user's maxnreg if the mode were set.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from warplens._triton.extra import triton_version
from warplens._triton.room import shared_buffer
from warplens.errors import WarplensError
from warplens.record.layout import LAYOUT_VERSION, SLOT_BYTES
from warplens.weave.marks import PREFIX
from warplens.weave.options import ParamBuffer, Weaving
from warplens.weave.weaver import weave

SCRATCH_BYTES = 128
"""What a woven kernel asks Triton for per block. Only that it is not zero matters: the allocator sizes the buffer."""
METADATA = "warplens"


@dataclass(frozen=True)
class Recipe:
    """Everything that changes what a kernel is compiled to."""

    how: Weaving
    kernels: str | None = None
    shared_bytes: int | None = None
    """Bytes of shared memory that records wait in, 0 for a default; None lets them go to global memory at once."""

    @functools.cached_property
    def key(self) -> str:
        """A cache key that differs whenever the woven text could."""
        text = f"{LAYOUT_VERSION} {_weaver_digest()} {self.how!r} {self.kernels!r} {self.shared_bytes!r}"
        return "warplens-" + hashlib.sha256(text.encode()).hexdigest()[:24]

    def wants(self, kernel: str) -> bool:
        return self.kernels is None or re.search(self.kernels, kernel) is not None


class CompileHook:
    """Installed in `knobs.runtime.add_stages_inspection_hook` while a profile runs."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self._before: Callable[..., Any] | None = None
        self._mode_before = ""

    def install(self) -> None:
        from triton import knobs

        self._before = knobs.runtime.add_stages_inspection_hook
        knobs.runtime.add_stages_inspection_hook = self
        if triton_version() < (3, 7):
            self._mode_before = knobs.compilation.instrumentation_mode
            knobs.compilation.instrumentation_mode = self.recipe.key

    def remove(self) -> None:
        from triton import knobs

        knobs.runtime.add_stages_inspection_hook = self._before
        if triton_version() < (3, 7):
            knobs.compilation.instrumentation_mode = self._mode_before

    def __call__(self, *arguments: Any) -> tuple[str, str] | None:
        """Without arguments: the cache key and its hash. With them: wrap the ptx stage."""
        if not arguments:
            key = self.recipe.key
            if self._before is not None:
                key += self._before()[0]
            return key, hashlib.sha256(key.encode()).hexdigest()
        if self._before is not None:
            self._before(*arguments)
        stages = arguments[1]
        if "ptx" in stages:
            stages["ptx"] = functools.partial(self._ptx, stages["ptx"])
        return None

    def _ptx(self, make_ptx: Callable[[Any, dict[str, Any]], str], source: Any, metadata: dict[str, Any]) -> str:
        text = make_ptx(source, metadata)
        name = str(metadata.get("name", ""))
        if not self.recipe.wants(name):
            return text
        how = self.recipe.how
        if self.recipe.shared_bytes is not None and PREFIX in text:
            how = replace(how, shared=shared_buffer(text, metadata["shared"], how.select, self.recipe.shared_bytes))
        woven = weave(text, buffer=ParamBuffer(-1), how=how)
        if not woven.entries:
            return text
        if metadata.get("profile_scratch_size"):
            raise WarplensError(
                f"kernel {name}: another tool already uses Triton's profile scratch; end it before wl.profile"
            )
        metadata["profile_scratch_size"] = SCRATCH_BYTES
        metadata["profile_scratch_align"] = SCRATCH_BYTES
        metadata[METADATA] = {**woven.describe(), "select": asdict(how.select)}
        if how.shared is not None:
            warps = -(-woven.threads[name] // 32)
            used = how.shared.slots * SLOT_BYTES * how.select.tracks_per_block(warps)
            metadata["shared"] = how.shared.offset + used
            metadata[METADATA] |= {"shared_slots": how.shared.slots, "shared_bytes": used}
        return woven.text


@functools.cache
def _weaver_digest() -> str:
    """The weaver's own source: a changed weaver must not be served what an older one made."""
    folder = Path(weave.__code__.co_filename).parent
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()
