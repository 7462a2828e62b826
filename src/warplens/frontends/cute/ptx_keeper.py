"""Functions of the CuTe DSL keep their PTX: they are compiled with options that ask for it."""

from __future__ import annotations

import copy
import functools
import hashlib
import os
import re
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from warplens.ptx.symbols import remember


class PtxKeeper:
    """Compiles functions so that they keep their PTX, in a folder of its own that goes with it."""

    kept = 0
    """How many functions kept their PTX by any keeper in this process."""

    def __init__(self, wanted: Callable[[Any], bool] = lambda dsl: True) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="warplens-cute-", ignore_cleanup_errors=True)
        self._wanted = wanted
        """Given the DSL, whether the function that it is about to compile is of interest."""

    def close(self) -> None:
        self._folder.cleanup()

    def install(self, compiled: Callable[[Any], None] = lambda function: None) -> Callable[[], None]:
        """Keep the PTX of what is compiled from now on, and hand each function to `compiled`. Return a function that
        undoes it."""
        from cutlass.cutlass_dsl import CuTeDSL

        name = wrap_method(CuTeDSL, "mangle_name", _namer)
        compiler = wrap_method(CuTeDSL, "_func", functools.partial(self.compiler, compiled))

        def undo() -> None:
            compiler()
            name()

        return undo

    def compiler(self, compiled: Callable[[Any], None], original: Callable[..., Any]) -> Callable[..., Any]:
        def compile_function(dsl: Any, *arguments: Any, **named: Any) -> Any:
            plain = dsl.compile_options
            if "apply_envar_settings" in vars(plain) or not self._wanted(dsl):
                # A function that is traced into the one being compiled, or one that nobody asked for.
                return original(dsl, *arguments, **named)
            PtxKeeper.kept += 1
            kept = dsl.compile_options = self._keeping(plain)
            cached, dsl.envar.disable_file_caching = dsl.envar.disable_file_caching, True
            try:
                result = original(dsl, *arguments, **named)
            finally:
                dsl.envar.disable_file_caching = cached
                if dsl.compile_options is kept:
                    dsl.compile_options = plain
            compiled(result)
            return result

        return compile_function

    def _keeping(self, plain: Any) -> Any:
        """Options that also ask for line information and for the PTX, unless the program keeps that itself; for a
        function of TVM-FFI also for the machine code, by which its kernels are known when they are loaded."""
        from cutlass.base_dsl.compiler import GenerateLineInfo, GPUArch, KeepCUBIN, KeepPTX

        options = copy.deepcopy(plain)

        def apply_envar_settings(envar: Any, function_name: str) -> None:
            type(options).apply_envar_settings(options, envar, function_name)
            if not getattr(envar, "loc_tracebacks", None):  # whole call stacks and line information crash the DSL
                options.options[GenerateLineInfo].value = True
            with suppress(OSError):  # some systems delete temporary files that are old
                os.makedirs(self._folder.name, exist_ok=True)
            path = Path(self._folder.name) / hashlib.sha256(function_name.encode()).hexdigest()[:16]
            arch = options.options[GPUArch].value or envar.arch
            keep, keep_code = options.options[KeepPTX], options.options[KeepCUBIN]
            if not keep.value:
                keep.value, keep.dump_path = True, str(path)
                keep.full_ptx_path = f"{path}.{arch}.ptx"
            if getattr(options, "enable_tvm_ffi", False) and not keep_code.value:
                keep_code.value, keep_code.dump_path = True, str(path)
                keep_code.full_cubin_path = f"{path}.{arch}.cubin"

        options.apply_envar_settings = apply_envar_settings
        return options


@functools.cache
def keep_all_ptx() -> Callable[[], None]:
    """Keep the PTX of all functions that are compiled from now on, so that a profile that begins later can mark them.
    Return a function that undoes it."""
    keeper = PtxKeeper()
    uninstall = keeper.install()

    def undo() -> None:
        uninstall()
        keeper.close()
        keep_all_ptx.cache_clear()

    return undo


def has_iket_on(dsl: Any) -> bool:
    """Whether IKET's marks are switched on for the function that is about to be compiled."""
    options = getattr(dsl.compile_options, "options", {}).values()
    asked = re.search(r"\biket\b", getattr(dsl.envar, "compiler_opt", ""))
    return asked is not None or any("enable-iket=true" in str(getattr(one, "value", "")) for one in options)


def _namer(original: Callable[..., str]) -> Callable[..., str]:
    """Kernels are called by their function, after its class where it is a method."""

    def mangle_name(dsl: Any, name: str, arguments: Any, signature: Any) -> str:
        made = original(dsl, name, arguments, signature)
        method = next(iter(signature.parameters), "") == "self" and arguments
        remember(made, f"{type(arguments[0]).__name__}.{name}" if method else name)
        return made

    return mangle_name


_unused: dict[Any, Any] = {}
"""Methods that were to be taken away while others lay on top of them, and what they replaced."""


def wrap_method(kind: type, name: str, make: Callable[[Any], Any], *, passes_on: bool = False) -> Callable[[], None]:
    """Put a method in the place of another, and return what takes it away: at once, also where others were put on top
    of it meanwhile. One that `passes_on` its calls by itself from then on is called without a detour."""
    owner = next(one for one in kind.__mro__ if name in vars(one))
    original = vars(owner)[name]
    made = make(original)

    @functools.wraps(original)
    def new(*arguments: Any, **named: Any) -> Any:
        return (original if new in _unused else made)(*arguments, **named)

    if passes_on:
        new = functools.wraps(original)(made)
    setattr(owner, name, new)

    def undo() -> None:
        _unused[new] = original
        while (top := vars(owner)[name]) in _unused:
            setattr(owner, name, _unused.pop(top))

    return undo


def text_of(function: Any) -> str | None:
    """The PTX that was kept; where there is no such file the DSL has its path instead."""
    text = (getattr(function, "__ptx__", None) or "").partition("\0")[0]
    return text if ".version" in text else None
