"""The CuTe DSL: functions compiled inside the profile keep their PTX, and the kernels they launch get their twins."""

from __future__ import annotations

import copy
import functools
import hashlib
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from warplens.driver.call_hooks import passing
from warplens.driver.libcuda import driver
from warplens.frontends.cuda_bindings import Arguments
from warplens.frontends.cute.host_code import Host, Launch, shape_of
from warplens.frontends.cute.requirement import require_cute
from warplens.frontends.driver_calls.frontend import why_not
from warplens.frontends.driver_calls.loaded_code import remember_ptx
from warplens.frontends.intercept.frontend import intercepted
from warplens.frontends.intercept.interceptor import Interceptor, PlainKernel
from warplens.frontends.intercept.name_swap import instances
from warplens.frontends.intercept.woven_module import Twin, Unavailable
from warplens.ptx.symbols import plain_name, remember
from warplens.ptx.tree import parse
from warplens.session import Session

_HAND_MARK = "wl_lead"
"""The register that every kernel with `wlc.kernel` declares."""
_FAILED = 999
"""cudaErrorUnknown: what the host code hears of a launch that failed here; the reason is raised in its place."""


@dataclass(frozen=True)
class _Program:
    """A compiled function: its kernels, its PTX, and its second engine or why there is none."""

    symbols: tuple[str, ...]
    text: str | None
    host: Host | Unavailable


class Cute:
    """Follows functions of the DSL from their compilation to the kernels that they launch."""

    def __init__(self, launches: Interceptor) -> None:
        self.launches, self.running = launches, True
        self.folder = Path(tempfile.mkdtemp(prefix="warplens-cute-"))
        self._programs: WeakKeyDictionary[Any, _Program] = WeakKeyDictionary()
        self._call = threading.local()

    def install(self) -> list[Callable[[], None]]:
        from cutlass.base_dsl.jit_executor import JitExecutor
        from cutlass.cutlass_dsl import CuTeDSL
        from cutlass.cutlass_dsl.cuda_jit_executor import CudaDialectJitCompiledFunction

        hooks = ((CuTeDSL, "_func", self._compiler), (CuTeDSL, "mangle_name", self._namer),
                 (JitExecutor, "run_compiled_program", self._runner))  # fmt: skip
        for function in list(instances(CudaDialectJitCompiledFunction)):
            if _is_tvm_ffi(function):
                _remember(function)
        return [*(_wrap(*hook) for hook in hooks), self._stop]

    def _stop(self) -> None:
        self.running = False
        self._programs.clear()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _compiler(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def compile_function(dsl: Any, *arguments: Any, **named: Any) -> Any:
            plain = dsl.compile_options
            if not self.running or "apply_envar_settings" in vars(plain):
                # The profile is over, or this is a function that is traced into the one being compiled.
                return original(dsl, *arguments, **named)
            kept = dsl.compile_options = self._keeping(plain)
            cached, dsl.envar.disable_file_caching = dsl.envar.disable_file_caching, True
            try:
                result = original(dsl, *arguments, **named)
            finally:
                dsl.envar.disable_file_caching = cached
                if dsl.compile_options is kept:
                    dsl.compile_options = plain
            self._hand_over(result)
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
            path = self.folder / hashlib.sha256(function_name.encode()).hexdigest()[:16]
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

    def _hand_over(self, function: Any) -> None:
        """Functions that other code than the DSL's executor calls: the driver's hooks see their launches."""
        by_tvm_ffi = _is_tvm_ffi(function)
        if not by_tvm_ffi and not type(function).__name__.startswith("CutlassCall"):
            return
        reason = why_not() if by_tvm_ffi else "the DSL's own call interface passes Python by"
        if not reason and not _remember(function):
            reason = "the DSL did not keep its machine code"
        for symbol in function.kernel_info or () if reason else ():
            way = "TVM-FFI" if by_tvm_ffi else "C"
            self.launches.refuse(plain_name(symbol), Unavailable(f"it is called by {way}, past Python: {reason}"))

    def _namer(self, original: Callable[..., str]) -> Callable[..., str]:
        """Kernels are called by their function, after its class where it is a method."""

        def mangle_name(dsl: Any, name: str, arguments: Any, signature: Any) -> str:
            made = original(dsl, name, arguments, signature)
            method = next(iter(signature.parameters), "") == "self" and arguments
            remember(made, f"{type(arguments[0]).__name__}.{name}" if method else name)
            return made

        return mangle_name

    def _runner(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def run_compiled_program(executor: Any, exe_args: list[Any]) -> Any:
            host = self._host(executor.jit_module, exe_args) if self.running else None
            with passing():  # what is launched here is counted here
                if host is None:
                    return original(executor, exe_args)
                self._call.failed = None
                try:
                    return original(host.executor, exe_args)
                finally:
                    failed, self._call.failed = self._call.failed, None
                    if failed is not None:
                        raise failed from None

        return run_compiled_program

    def _host(self, module: Any, exe_args: list[Any]) -> Host | None:
        """The second engine of the function that loaded `module`; None where the plain one runs."""
        if not getattr(module, "cuda_library", None):
            return None
        program = self._programs.get(module)
        if program is None:
            program = self._programs[module] = self._program(module)
        if program.text is None and _takes_buffer(exe_args):
            return None
        if isinstance(program.host, Host):
            return program.host
        for symbol in program.symbols:
            self.launches.refuse(plain_name(symbol), program.host)
        return None

    def _program(self, module: Any) -> _Program:
        function = _function_of(module)
        text = _text_of(function)
        symbols = tuple(getattr(function, "kernel_info", None) or (module.execution_args.function_name,))
        try:
            if function is None or function.ir_module is None:
                raise Unavailable("only its machine code is left; compile it inside the profile")
            launch = functools.partial(self._launch, text)
            return _Program(symbols, text, Host(function, module.cuda_library[0], launch))
        except Unavailable as reason:
            return _Program(symbols, text, reason)

    def _launch(self, text: str | None, plain: Launch, config: int, kernel: int, arguments: int) -> int:
        """One launch of the host code. No error may leave through it: what goes wrong is kept until it has returned."""
        try:
            lib = driver()
            symbol, function, shape = lib.name_of(kernel, "Kernel"), lib.kernel_function(kernel), shape_of(config)
            if text is not None and _has_hand_marks(text, symbol):
                return plain(config, kernel, arguments)

            def woven(twin: Twin, pointer: int) -> int:
                given = Arguments(arguments, len(lib.parameter_sizes(function)), pointer)
                lib.launch_config(config, twin.function, given.address)
                return 0

            known = PlainKernel(symbol, function, functools.partial(_ptx, text), text)
            return self.launches.launch(known, shape, lambda: plain(config, kernel, arguments), woven)
        except BaseException as error:  # no exception can pass the host code in between; the caller raises it
            self._call.failed = error
            return _FAILED


def _wrap(kind: type, name: str, make: Callable[[Any], Any]) -> Callable[[], None]:
    """Put a method in the place of another, and give what takes it away, unless somebody has put theirs on top."""
    owner = next(one for one in kind.__mro__ if name in vars(one))
    original = vars(owner)[name]
    new = functools.wraps(original)(make(original))
    setattr(owner, name, new)

    def undo() -> None:
        if vars(owner)[name] is new:
            setattr(owner, name, original)

    return undo


def _is_tvm_ffi(function: Any) -> bool:
    return "tvm_ffi" in type(function).__module__


def _remember(function: Any) -> bool:
    """Let the driver's hooks know the PTX of a function's kernels. Return whether that is possible."""
    code, text = getattr(function, "__cubin__", None), _text_of(function)
    if not isinstance(code, bytes) or text is None:
        return False
    remember_ptx(code, functools.partial(_unmarked_ptx, text))
    return True


def _unmarked_ptx(text: str) -> str:
    if _HAND_MARK in text:
        raise Unavailable("it has marks of its own, which TVM-FFI does not give a buffer")
    return text


def _function_of(module: Any) -> Any:
    """The compiled function that loaded `module`: an executor does not know it."""
    from cutlass.cutlass_dsl.cuda_jit_executor import CudaDialectJitCompiledFunction

    return next((item for item in instances(CudaDialectJitCompiledFunction) if item.jit_module is module), None)


def _text_of(function: Any) -> str | None:
    """The PTX that was kept; where there is no such file the DSL has its path instead."""
    text = (getattr(function, "__ptx__", None) or "").partition("\0")[0]
    return text if ".version" in text else None


def _ptx(text: str | None) -> str:
    if text is None:
        raise Unavailable(
            "it was compiled before the profile began and its PTX was not kept; compile it inside the profile, or with "
            "the option --keep-ptx"
        )
    return text


@functools.lru_cache(maxsize=256)
def _has_hand_marks(text: str, symbol: str) -> bool:
    """Whether a kernel records already."""
    if _HAND_MARK not in text:
        return False
    return any(entry.name == symbol and _HAND_MARK in entry.text() for entry in parse(text).entries)


def _takes_buffer(exe_args: list[Any]) -> bool:
    """Whether a `wlc.buffer` is among the arguments of a function."""
    buffers = sys.modules.get("warplens.frontends.cute.buffer_argument")
    return buffers is not None and any(getattr(one, "value", one) in buffers.live for one in exe_args)


def start(running: Session) -> Callable[[], None] | None:
    """Called when a profile starts; returns a function that removes the hooks."""
    require_cute()
    return intercepted("cutlass", lambda launches: Cute(launches).install())(running)
