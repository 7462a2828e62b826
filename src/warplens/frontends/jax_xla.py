"""JAX: kernels of Pallas (Triton and Mosaic GPU), and all others that XLA compiles.

XLA assembles PTX with the ptxas that it finds, and launches from C++. A ptxas in front of it keeps the PTX of what it
assembles, by which the driver's hooks weave the machine code that XLA loads.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from warplens.errors import WarplensError
from warplens.frontends.assembled_ptx.ptx_store import check_writable
from warplens.frontends.assembled_ptx.ptxas_in_front import put_in_front
from warplens.frontends.driver_calls.frontend import tuning_in_cpp, why_not
from warplens.frontends.library_hooks import Undo, hook_library
from warplens.frontends.wrap import wrap_all
from warplens.session import Session

LIBRARY = "jax"
_TOOLKIT = Path("/usr/local/cuda")
"""Where XLA looks last."""
_PARALLEL = "xla_gpu_enable_llvm_module_compilation_parallelism"


def start(running: Session) -> Callable[[], None] | None:
    """Called when a profile starts; returns a function that removes the hooks."""
    if not running.options.marks:
        return None
    return hook_library(running, LIBRARY, lambda: install(running), why_not)


def install(running: Session) -> Undo:
    """Let XLA find our ptxas where it finds its own: in JAX's CUDA folder, else on PATH."""
    from jax._src import lib

    before = lib.cuda_path
    shadow = _toolkit_in_front(before)
    own = str(shadow / "bin")
    undo = _compile_in_view(running)

    def restore() -> None:
        lib.cuda_path = before
        # The program may have changed PATH meanwhile.
        folders = os.environ.get("PATH", "").split(os.pathsep)
        os.environ["PATH"] = os.pathsep.join(folder for folder in folders if folder != own)

    os.environ["PATH"] = os.pathsep.join((own, os.environ.get("PATH", "")))
    if before is not None:
        lib.cuda_path = str(shadow)
    return [*undo, restore]


def _toolkit_in_front(cuda_path: str | None) -> Path:
    """A copy of the toolkit that XLA uses, with our ptxas in front of its own."""
    root = None if cuda_path is None else Path(cuda_path)
    found = [str(root / "bin" / "ptxas")] if root is not None else []
    ptxas = next(filter(None, map(shutil.which, [*found, "ptxas", str(_TOOLKIT / "bin" / "ptxas")])), None)
    if ptxas is None:
        raise WarplensError("no ptxas was found, neither on PATH nor in nvidia-cuda-nvcc; install the CUDA toolkit")
    try:
        check_writable()
        return put_in_front(Path(ptxas), root)
    except OSError as error:
        raise WarplensError(f"no ptxas can be put in front of XLA's ({error})") from None


def _compile_in_view(running: Session) -> Undo:
    """Compile inside the profile, not from a cache, to machine code that ptxas wrote and launches that can be seen."""
    from jax._src import compilation_cache, compiler

    def options(original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        made = original(*arguments, **named)
        try:
            _adjust(made)
        except Exception as error:  # the program must compile, whatever its version of JAX has changed
            running.note(LIBRARY, f"its kernels may run unmarked: warplens does not know this version of it ({error})")
        return made

    def compile_and_load(original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        with tuning_in_cpp():
            return original(*arguments, **named)

    def never(original: Callable[..., Any], *arguments: Any, **named: Any) -> bool:
        return False

    return wrap_all(
        (compiler, "get_compile_options", options), (compiler, "backend_compile_and_load", compile_and_load),
        (compilation_cache, "is_cache_used", never), (compilation_cache, "is_persistent_cache_enabled", never),
    )  # fmt: skip


def _adjust(options: Any) -> None:
    # A command buffer is a CUDA graph that XLA builds node by node, without any launch.
    options.env_option_overrides = [*options.env_option_overrides, ("xla_gpu_enable_command_buffer", "")]
    debug = options.executable_build_options.debug_options
    # Modules that are compiled in parallel are linked, and the result is no longer what ptxas wrote. Newer versions of
    # JAX do not ask XLA for that.
    if hasattr(debug, _PARALLEL):
        setattr(debug, _PARALLEL, False)
