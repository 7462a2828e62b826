"""NVIDIA Warp: its launches pass the driver's hooks; the PTX of a module is asked of Warp's own compiler."""

from __future__ import annotations

import functools
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from warplens.frontends.driver_calls.frontend import why_not
from warplens.frontends.driver_calls.loaded_code import remember_ptx, remember_symbol
from warplens.frontends.intercept.name_swap import instances
from warplens.frontends.intercept.woven_module import Unavailable
from warplens.frontends.library_hooks import hook_library
from warplens.frontends.wrap import wrap_all
from warplens.session import Session

LIBRARY = "warp"
_OUTPUT = "marked.ptx"


def start(running: Session) -> Callable[[], None] | None:
    """Called when a profile starts; returns a function that removes the hooks."""
    if not running.options.marks:
        return None
    return hook_library(running, LIBRARY, install, why_not)


def install() -> list[Callable[[], None]]:
    """Remember of each machine code that Warp loads which module it is of; of what is loaded already as well."""
    from warp._src import build, context

    current = threading.local()

    def load(original: Callable[..., Any], module: Any, device: Any, block_dim: int | None = None, *rest: Any,
             **named: Any) -> Any:  # fmt: skip
        before, current.module = getattr(current, "module", None), (module, block_dim)
        try:
            return original(module, device, block_dim, *rest, **named)
        finally:
            current.module = before

    def load_cuda(original: Callable[..., Any], path: Any, device: Any) -> Any:
        handle = original(path, device)
        if handle is not None and getattr(current, "module", None) is not None:
            module, block_dim = current.module
            _remember(module, device, module.options["block_dim"] if block_dim is None else block_dim, path)
        return handle

    for module in list(instances(context.Module)):
        for (_, block_dim), loaded in list(module.execs.items()):
            if loaded.device.is_cuda:
                _remember(module, loaded.device, block_dim, loaded.binary_path)
                text = functools.partial(ptx_of_module, module, loaded.device, block_dim)
                for name in loaded.kernel_hooks:  # a hash in the name tells kernels apart
                    for kind in ("forward", "backward"):
                        remember_symbol(f"{name}_cuda_kernel_{kind}", text)
    return wrap_all((context.Module, "load", load), (build, "load_cuda", load_cuda))


def _remember(module: Any, device: Any, block_dim: int, path: Any) -> None:
    try:
        code = Path(path).read_bytes()
    except (OSError, TypeError):
        return  # the hooks say that there is no PTX
    remember_ptx(code, functools.partial(ptx_of_module, module, device, block_dim))


def ptx_of_module(module: Any, device: Any, block_dim: int) -> str:
    """Compile a module to PTX with the options of its machine code, and line information."""
    with tempfile.TemporaryDirectory(prefix="warplens-warp-") as folder:
        options = {**module.resolved_options[block_dim], "lineinfo": True}
        arch = module._get_compile_arch(device)
        try:
            module._compile(device, folder, _OUTPUT, arch, True, options)
            return (Path(folder) / _OUTPUT).read_bytes().partition(b"\0")[0].decode(errors="replace")
        except Exception as error:  # Warp raises what it likes
            raise Unavailable(f"Warp does not compile it to PTX: {error}") from None
