"""cuTile: launches of its kernels pass the driver's hooks, which ask here for the PTX."""

from __future__ import annotations

import dataclasses
import functools
import re
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from warplens.frontends.cutile.shadow_toolkit import ShadowToolkit, TileModule
from warplens.frontends.cutile.with_blocks import with_source_regions
from warplens.frontends.driver_calls.frontend import why_not
from warplens.frontends.driver_calls.loaded_code import Recompiled, expects_hand_marks, launching
from warplens.frontends.intercept.name_swap import swap
from warplens.frontends.intercept.woven_module import Unavailable
from warplens.frontends.library_hooks import hook_library, remover
from warplens.frontends.wrap import wrap_all
from warplens.session import Session

LIBRARY = "cuda.tile"
_INLINE = re.compile(r"// begin inline asm.*?// end inline asm", re.S)
_LOC = re.compile(r"\n[ \t]*\.loc\b[^\n]*")
_modules: weakref.WeakKeyDictionary[Any, dict[tuple[str, str], TileModule]] = weakref.WeakKeyDictionary()
"""By kernel: its modules, by symbol and architecture."""


def start(running: Session) -> Callable[[], None] | None:
    """Called when a profile starts; returns a function that removes the hooks."""
    if not running.options.marks and not expects_hand_marks(LIBRARY):
        return None
    return hook_library(running, LIBRARY, lambda: install(running), why_not)


def install(running: Session) -> list[Callable[[], None]]:
    """Say for each launch of a kernel how to get the PTX of what it launches."""
    from cuda import tile
    from cuda.tile._compile import _compiler_lock, _find_compiler_bin, compile_tile  # noqa: F401
    from cuda.tile.compilation import demangle_kernel_name  # noqa: F401

    original = tile.launch

    @functools.wraps(original)
    def launch(stream: Any, grid: Any, kernel: Any, *given: Any, **named: Any) -> Any:
        with launching(functools.partial(_find, kernel, running)):
            return original(stream, grid, kernel, *given, **named)

    return [swap(original, launch)]


def _find(kernel: Any, running: Session, symbol: str) -> Recompiled | None:
    name = kernel._pyfunc.__name__
    if not symbol.startswith(f"{name}_K"):
        return None
    from cuda.tile._cext import get_compute_capability
    from cuda.tile._compile import format_sm_arch

    module = functools.partial(module_of, kernel, symbol, format_sm_arch(*get_compute_capability()))

    def text() -> str:
        found, remarks = with_source_regions(_with_plain_lines(module().ptx), name)
        for remark in remarks:
            running.note(name, remark)
        return found

    return Recompiled(text, lambda text: module().assemble(text))


def module_of(kernel: Any, symbol: str, arch: str) -> TileModule:
    """Compile a kernel once more, and keep what its compiler hands to ptxas."""
    from cuda.tile import _compile
    from cuda.tile.compilation import demangle_kernel_name

    known = _modules.setdefault(kernel, {})
    if (symbol, arch) not in known:
        try:
            _, signature = demangle_kernel_name(symbol)
            with _compile._compiler_lock, _shadowed(_compile) as toolkit:
                _compile.compile_tile(kernel._annotated_function, (signature,), arch, kernel._compiler_options)
                known[symbol, arch] = toolkit.latest()
        except Exception as error:  # cuTile raises what it likes, and without it there is no PTX
            raise Unavailable(f"cuTile does not compile it to PTX: {error}") from None
    return known[symbol, arch]


@contextmanager
def _shadowed(compiler: Any) -> Iterator[ShadowToolkit]:
    """Let cuTile compile with our ptxas in front, and leave its cache of machine code alone."""
    found = compiler._find_compiler_bin()
    toolkit = _toolkit(found.path, found.bin_path)
    stop = remover(
        wrap_all(
            (compiler, "_find_compiler_bin", lambda original: dataclasses.replace(found, path=toolkit.tileiras)),
            (compiler, "cache_lookup", lambda original, *given: None),
            (compiler, "cache_store", lambda original, *given: None),
        )
    )
    try:
        yield toolkit
    finally:
        stop()


_toolkit = functools.cache(ShadowToolkit)


def _with_plain_lines(text: str) -> str:
    """Remove the lines inside inline assembly: the compiler counts on from the line of the statement."""
    return _INLINE.sub(lambda found: _LOC.sub("", found[0]), text)
