"""TileLang: launches of its kernels pass the driver's hooks, which ask here for the PTX."""

from __future__ import annotations

import functools
import re
import weakref
from collections.abc import Callable
from typing import Any

from warplens.frontends.driver_calls.frontend import tuning_in_cpp, why_not
from warplens.frontends.driver_calls.loaded_code import Recompiled, launching
from warplens.frontends.intercept.name_swap import instances
from warplens.frontends.library_hooks import hook_library
from warplens.frontends.wrap import wrap, wrap_all
from warplens.installed import require
from warplens.session import Session

LIBRARY = "tilelang"
_texts: weakref.WeakKeyDictionary[Any, tuple[Any, str, tuple[str, ...]]] = weakref.WeakKeyDictionary()
"""By kernel: the function that its PTX was made of, the PTX, and what was said about it."""


def start(running: Session) -> Callable[[], None] | None:
    """Called when a profile starts; returns a function that removes the hooks."""

    def missing() -> str:
        require("tilelang", "tilelang", "tilelang")
        return why_not()

    return hook_library(running, LIBRARY, lambda: install(running), missing)


def install(running: Session) -> list[Callable[[], None]]:
    """Say for each call of a kernel how to get the PTX of what it launches."""
    from tilelang.autotuner.tuner import AutoTuner
    from tilelang.jit.adapter.base import BaseKernelAdapter
    from tilelang.jit.kernel import JITKernel

    from warplens.frontends.tilelang import generated_source

    def find(kernel: Any, symbol: str) -> Recompiled | None:
        if kernel is None or not _defines(kernel, symbol):
            return None
        return Recompiled(functools.partial(_ptx, kernel, symbol, generated_source.ptx_of_kernel, running))

    def call_kernel(original: Callable[..., Any], kernel: Any, *given: Any, **named: Any) -> Any:
        with launching(functools.partial(find, kernel)):
            return original(kernel, *given, **named)

    def call_adapter(original: Callable[..., Any], adapter: Any, *given: Any, **named: Any) -> Any:
        kernel = next((one for one in instances(JITKernel) if one.adapter is adapter), None)
        with launching(functools.partial(find, kernel)):
            return original(adapter, *given, **named)

    def tune(original: Callable[..., Any], tuner: Any, *given: Any, **named: Any) -> Any:
        with tuning_in_cpp():
            return original(tuner, *given, **named)

    return wrap_all(
        (JITKernel, "__call__", call_kernel), (BaseKernelAdapter, "__call__", call_adapter), (AutoTuner, "run", tune)
    )


def _defines(kernel: Any, symbol: str) -> bool:
    return re.search(rf"__global__[^;{{]*\b{re.escape(symbol)}\(", kernel.get_kernel_source()) is not None


def _ptx(kernel: Any, symbol: str, compile: Callable[[Any, Callable[[str], None]], str], running: Session) -> str:
    known = _texts.get(kernel)
    if known is None or known[0] is not kernel.prim_func:
        told: list[str] = []
        known = _texts[kernel] = kernel.prim_func, compile(kernel, told.append), tuple(told)
    for text in known[2]:
        running.note(symbol, text)
    return known[1]


def keep_latest_regions() -> None:
    """TileLang keeps one kernel for all functions with the same code: let it have the regions of the latest of them."""
    from tilelang.cache.kernel_cache import KernelCache

    def cached(original: Callable[..., Any], cache: Any, func: Any = None, *given: Any, **named: Any) -> Any:
        kernel = original(cache, func, *given, **named)
        if func is not None and kernel.prim_func is not func:
            kernel.prim_func = func
        return kernel

    wrap(KernelCache, "cached", cached)
