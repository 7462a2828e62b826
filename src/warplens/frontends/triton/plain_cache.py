"""Find the plain kernel in Triton's cache: one that ran before need not be assembled again to compare with it."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from warplens.frontends.wrap import wrap
from warplens.weave.fit.ptxas_output import read_cubin
from warplens.weave.fit.resources import Resources

WOVEN_KEY = "warplens"
"""The key of a compiled kernel's metadata that says how it is woven."""
_local = threading.local()


def watch_cache_keys(ours: str) -> Callable[[], None]:
    """Remember what Triton computes each kernel's cache key from; `ours` is what a profile adds to it. Return a
    function that stops this."""
    from triton.compiler import compiler

    if not hasattr(compiler, "get_cache_key"):
        return lambda: None

    def get_cache_key(original: Callable[..., str], source: Any, backend: Any, options: Any, env_vars: Any) -> str:
        def plain() -> str:
            mode = getattr(options, "instrumentation_mode", None)
            return original(
                source, backend, replace(options, instrumentation_mode="") if mode == ours else options, env_vars
            )

        _local.kernel = source.name, plain
        return original(source, backend, options, env_vars)

    return wrap(compiler, "get_cache_key", get_cache_key)


def find_resources() -> Resources | None:
    """Return what the kernel that this thread compiles takes without marks, if Triton has that kernel in its cache and
    it spills nothing."""
    from triton.runtime.cache import get_cache_manager

    name, key = getattr(_local, "kernel", None) or ("", None)
    if key is None:
        return None
    _local.kernel = None
    group = get_cache_manager(hashlib.sha256(key().encode()).hexdigest()).get_group(f"{name[:150]}.json") or {}
    path, about = group.get(f"{name[:150]}.cubin"), group.get(f"{name[:150]}.json")
    if not path or not about or WOVEN_KEY in json.loads(Path(about).read_text()):
        return None  # a program that calls triton.compile itself may have a woven kernel under the plain one's key
    return read_cubin(Path(path).read_bytes())
