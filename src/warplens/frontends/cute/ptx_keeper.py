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
from typing import Any, ClassVar

from warplens.ptx.symbols import remember


class PtxKeeper:
    """Compiles functions so that they keep their PTX, in a folder of its own that goes with it."""

    kept = 0
    """How many functions kept their PTX by any keeper in this process."""
    _installed: ClassVar[list[PtxKeeper]] = []

    def __init__(self, wanted: Callable[[Any], bool] = lambda dsl: True, *, marked: bool = False) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="warplens-cute-", ignore_cleanup_errors=True)
        self.wanted, self.marked = wanted, marked
        """Given the DSL, whether the function that it is about to compile is of interest; and whether it is once it
        turns out to have marks."""
        self.compiled: Callable[[Any], None] = lambda function: None

    def close(self) -> None:
        self._folder.cleanup()

    def install(self, compiled: Callable[[Any], None] = lambda function: None) -> Callable[[], None]:
        """Keep the PTX of what is compiled from now on, and hand each function to `compiled`. Return a function that
        undoes it."""
        from cutlass.cutlass_dsl import CuTeDSL

        self.compiled = compiled
        self._installed.append(self)
        name = wrap_method(CuTeDSL, "mangle_name", _namer)
        compiler = wrap_method(CuTeDSL, "_func", self._compiler)

        def undo() -> None:
            self._installed.remove(self)
            compiler()
            name()

        return undo

    def path_of(self, function_name: str) -> Path:
        """Where to keep the code of a function."""
        with suppress(OSError):  # some systems delete temporary files that are old
            os.makedirs(self._folder.name, exist_ok=True)
        return Path(self._folder.name) / hashlib.sha256(function_name.encode()).hexdigest()[:16]

    def _compiler(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Of the keepers that are installed, the one that comes first acts for all."""

        def compile_function(dsl: Any, *arguments: Any, **named: Any) -> Any:
            plain, keepers = dsl.compile_options, list(self._installed)
            if "apply_envar_settings" in vars(plain):  # a function that is traced into the one being compiled
                return original(dsl, *arguments, **named)
            wanted = [keeper for keeper in keepers if keeper.wanted(dsl)]
            interested = wanted or [keeper for keeper in keepers if keeper.marked]
            if not interested:
                return original(dsl, *arguments, **named)
            cached = dsl.envar.disable_file_caching
            keeping = _KeptFunction(dsl, interested[-1])
            if wanted:
                keeping.keep()
            try:
                result = original(dsl, *arguments, **named)
            finally:
                dsl.envar.disable_file_caching = cached
                if dsl.compile_options is keeping.options:
                    dsl.compile_options = plain
            for keeper in keepers if keeping.keeps else ():
                keeper.compiled(result)
            return result

        return compile_function


class _KeptFunction:
    """Options of the function that is about to be compiled, which also ask for line information and, once it is to be
    kept, for the PTX, unless the program keeps that itself."""

    def __init__(self, dsl: Any, keeper: PtxKeeper) -> None:
        self._dsl, self._keeper, self.keeps = dsl, keeper, False
        self._path: Path | None = None
        """Where the PTX goes; None until the DSL has settled its options."""
        self.options = copy.deepcopy(dsl.compile_options)
        self.options.apply_envar_settings = self._settle
        setattr(self.options, _KEEP_NOW, self.keep)
        dsl.compile_options = self.options

    def _settle(self, envar: Any, function_name: str) -> None:
        from cutlass.base_dsl.compiler import GenerateLineInfo

        type(self.options).apply_envar_settings(self.options, envar, function_name)
        if not getattr(envar, "loc_tracebacks", None):  # whole call stacks and line information crash the DSL
            self.options.options[GenerateLineInfo].value = True
        self._path = self._keeper.path_of(function_name)
        if self.keeps:
            self._ask(self._path)

    def keep(self) -> None:
        """Keep the PTX. The DSL reads these options after it has traced the function."""
        if self.keeps:
            return
        self.keeps = self._dsl.envar.disable_file_caching = True
        PtxKeeper.kept += 1
        if self._path is not None:
            self._ask(self._path)

    def _ask(self, path: Path) -> None:
        """For a function of TVM-FFI, ask also for the machine code, by which its kernels are known when they are
        loaded."""
        from cutlass.base_dsl.compiler import GPUArch, KeepCUBIN, KeepPTX

        options = self.options.options
        arch = options[GPUArch].value or self._dsl.envar.arch
        keep, keep_code = options[KeepPTX], options[KeepCUBIN]
        if not keep.value:
            keep.value, keep.dump_path = True, str(path)
            keep.full_ptx_path = f"{path}.{arch}.ptx"
        if getattr(self.options, "enable_tvm_ffi", False) and not keep_code.value:
            keep_code.value, keep_code.dump_path = True, str(path)
            keep_code.full_cubin_path = f"{path}.{arch}.cubin"


_KEEP_NOW = "_warplens_keep"
"""The attribute of compile options that asks for the PTX."""


def keep_ptx_of_this() -> Any:
    """Keep the PTX of the function that is being compiled, since it has marks. Return its options; None if it cannot be
    kept any more."""
    from cutlass.cutlass_dsl import CuTeDSL

    options = CuTeDSL._get_dsl().compile_options
    keep = getattr(options, _KEEP_NOW, None)
    if keep is None:
        return None
    keep()
    return options


@functools.cache
def keep_marked_ptx() -> Callable[[], None]:
    """Keep the PTX of functions that have marks, from now on, so that a profile that begins later can record them.
    Return a function that undoes it."""
    keeper = PtxKeeper(lambda dsl: False, marked=True)
    uninstall = keeper.install()

    def undo() -> None:
        uninstall()
        keeper.close()
        keep_marked_ptx.cache_clear()

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
