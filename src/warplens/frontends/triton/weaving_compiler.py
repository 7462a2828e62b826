"""Compile the woven twin of a kernel that Triton has compiled plain.

Triton's own compilations are left alone: what it compiles, caches, tunes and launches is what it would be without a
profile. The woven twin is compiled from its TTGIR with the same options when the first launch of a kernel is recorded.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from warplens.auto.rules import Auto
from warplens.errors import WarplensError
from warplens.frontends.triton import plain_cache
from warplens.frontends.triton.metadata_keys import RECIPE
from warplens.frontends.triton.override import SUFFIX, parse_module
from warplens.frontends.triton.requirement import set_knob
from warplens.frontends.triton.stages import Compilation
from warplens.frontends.wrap import wrap
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
    indirect: bool = False
    """Whether the kernel finds its buffer by a cell, as those in CUDA graphs do."""

    @functools.cached_property
    def key(self) -> str:
        """A cache key that differs whenever the woven text could."""
        # An edited file of an override must not get the kernel of its older content.
        edited = _digest(sorted(Path(self.override).glob(f"*{SUFFIX}"))) if self.override is not None else ""
        parts = (LAYOUT_VERSION, weaver_digest(), self, edited)
        return "warplens-" + hashlib.sha256(repr(parts).encode()).hexdigest()[:24]

    @property
    def always(self) -> bool:
        """Whether kernels must be compiled even if they are cached, because files are written or read."""
        return self.dump_ir is not None or self.override is not None

    def wants(self, kernel: str) -> bool:
        return self.kernels is None or re.search(self.kernels, kernel) is not None


_thread = threading.local()


class WeavingCompiler:
    """Weaves what this thread compiles inside `weaving`, and nothing else."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        # Computed before anything is installed: an override that cannot be read fails here.
        self._key = recipe.key

    def install(self) -> Callable[[], None]:
        """Stand between the stages of Triton's compiler. Return a function that ends this."""
        from triton.backends.nvidia.compiler import CUDABackend

        def add_stages(original: Callable[..., None], backend: Any, stages: dict[str, Any], *rest: Any) -> None:
            original(backend, stages, *rest)
            if getattr(_thread, "compiler", None) is self and "ptx" in stages:
                Compilation(self.recipe, stages)

        return wrap(CUDABackend, "add_stages", add_stages)

    @contextmanager
    def weaving(
        self,
        plain: bytes | None = None,
        stages: Mapping[str, str] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Iterator[None]:
        """Weave what this thread compiles inside the block; `plain` is the plain kernel's machine code, `stages` has
        its IR and PTX and `metadata` what Triton notes of it, if they are known."""
        from triton import knobs

        with ExitStack() as stack:
            stack.enter_context(plain_cache.known(plain, stages, metadata))
            if self.recipe.always:
                stack.callback(set_knob(knobs.compilation, "always_compile", True))
            before, _thread.compiler = getattr(_thread, "compiler", None), self
            try:
                yield
            finally:
                _thread.compiler = before

    def twin(self, kernel: Any) -> Any:
        """Compile the woven twin of a CompiledKernel."""
        from triton import knobs
        from triton.compiler import compiler

        if not isinstance(kernel.src, compiler.ASTSource):
            raise WarplensError("it was compiled from IR, not from source")
        target = kernel.metadata.target
        known = {one.name for one in fields(compiler.make_backend(target).parse_options({}))}
        # What Triton read back from its cache has lists where its options have tuples.
        metadata = kernel.metadata._asdict()
        options = {name: _frozen(value) for name, value in metadata.items() if name in known}
        # Of a warp-specialised kernel the metadata counts all warps, the module's attribute those it was asked for.
        asked = re.search(r'"ttg\.num-warps" = (\d+)', kernel.asm.get("ttgir", ""))
        if asked:
            options["num_warps"] = int(asked[1])
        environment = {**compiler.get_cache_invalidating_env_vars(), RECIPE: self._key}
        stages = {name: kernel.asm[name] for name in ("ttir", "ttgir", "llir", "ptx") if name in kernel.asm}
        with self.weaving(kernel.kernel, stages, metadata):
            make = functools.partial(
                compiler.compile, _lowered(kernel.src, stages), target=target, options=options, _env_vars=environment
            )
            try:
                return make()
            except json.JSONDecodeError:  # Triton's cache has the twin, but its file was cut off: make it again
                undo = set_knob(knobs.compilation, "always_compile", True)
                try:
                    return make()
                finally:
                    undo()


def _lowered(source: Any, stages: Mapping[str, str]) -> Any:
    """The source of a kernel, from which Triton compiles on with the TTGIR that it has made before."""
    if "ttgir" not in stages:
        return source
    made = copy.copy(source)
    made.ext, made.make_ir = "ttgir", lambda *given: parse_module(stages["ttgir"], given[-1])
    return made


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


@functools.cache
def weaver_digest() -> str:
    """Hash the source of everything that shapes a woven kernel: a changed weaver must not get kernels of an older one
    from the cache."""
    here = Path(__file__).parent
    package = here.parents[1]
    rooms = ("auto", "driver", "ptx", "weave")
    return _digest(sorted([*(file for room in rooms for file in (package / room).rglob("*.py")), *here.glob("*.py")]))


def _digest(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()
