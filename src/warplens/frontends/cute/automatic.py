"""The CuTe DSL: functions compiled inside the profile keep their PTX, and the kernels they launch get their twins, with
automatic marks, marks of IKET and marks of `warplens.compat.iket`."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from warplens.driver.call_hooks import passing
from warplens.driver.libcuda import driver
from warplens.frontends.cuda_bindings import Arguments
from warplens.frontends.cute.host_code import Host, Launch, shape_of
from warplens.frontends.cute.ptx_keeper import PtxKeeper, has_iket_on, text_of, wrap_method
from warplens.frontends.cute.requirement import require_cute
from warplens.frontends.driver_calls.frontend import why_not
from warplens.frontends.driver_calls.loaded_code import remember_ptx
from warplens.frontends.intercept.frontend import intercepted
from warplens.frontends.intercept.interceptor import Interceptor, PlainKernel
from warplens.frontends.intercept.name_swap import instances
from warplens.frontends.intercept.woven_module import Twin, Unavailable, has_marks
from warplens.ptx.symbols import plain_name
from warplens.ptx.syntax import PtxError
from warplens.ptx.tree import parse
from warplens.session import Session
from warplens.weave.iket_marks import with_iket_marks

_HAND_MARK = "wl_lead"
"""The register that every kernel with `wlc.kernel` declares."""
_FAILED = 999
"""cudaErrorUnknown: what the host code hears of a launch that failed here; the reason is raised in its place."""


@dataclass(frozen=True)
class _Program:
    """A compiled function: its kernels, its PTX, and its second engine or why there is none; None where none is needed,
    because its kernels have no marks and nobody asked for automatic ones."""

    symbols: tuple[str, ...]
    text: str | None
    host: Host | Unavailable | None


class Cute:
    """Follows functions of the DSL from their compilation to the kernels that they launch."""

    def __init__(self, launches: Interceptor) -> None:
        self.launches, self.running = launches, True
        self.automatic = bool(launches.session.options.marks)
        self._keeper = PtxKeeper(lambda dsl: self.running and (self.automatic or has_iket_on(dsl)))
        self._programs: WeakKeyDictionary[Any, _Program] = WeakKeyDictionary()
        self._call = threading.local()

    def install(self) -> list[Callable[[], None]]:
        from cutlass.base_dsl.jit_executor import JitExecutor
        from cutlass.cutlass_dsl.cuda_jit_executor import CudaDialectJitCompiledFunction

        for function in list(instances(CudaDialectJitCompiledFunction)):
            if _is_tvm_ffi(function):
                _remember(function)
        runner = wrap_method(JitExecutor, "run_compiled_program", self._runner)
        return [self._keeper.install(self._hand_over), runner, self._stop]

    def _stop(self) -> None:
        self.running = False
        self._programs.clear()
        self._keeper.close()

    def _hand_over(self, function: Any) -> None:
        """Functions that other code than the DSL's executor calls: the driver's hooks see their launches."""
        by_tvm_ffi = _is_tvm_ffi(function)
        if not by_tvm_ffi and not type(function).__name__.startswith("CutlassCall"):
            return
        reason = why_not() if by_tvm_ffi else "the DSL's own call interface passes Python by"
        if not self.automatic:
            reason = reason or "such calls are followed with automatic marks only; give auto= (--auto)"
        if not reason and not _remember(function):
            reason = "the DSL did not keep its machine code"
        for symbol in function.kernel_info or () if reason else ():
            way = "TVM-FFI" if by_tvm_ffi else "C"
            self.launches.refuse(plain_name(symbol), Unavailable(f"it is called by {way}, past Python: {reason}"))

    def _runner(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def run_compiled_program(executor: Any, exe_args: list[Any]) -> Any:
            host = self._host(getattr(executor, "jit_module", None), exe_args) if self.running else None
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
        if not self.automatic and not PtxKeeper.kept:
            return None  # looking for the function of a module takes long, and none can have marks
        program = self._programs.get(module)
        if program is None:
            program = self._programs[module] = self._program(module)
        if program.text is None and _takes_buffer(exe_args):
            return None
        if isinstance(program.host, Unavailable):
            for symbol in program.symbols:
                self.launches.refuse(plain_name(symbol), program.host)
            return None
        return program.host

    def _program(self, module: Any) -> _Program:
        function = _function_of(module)
        text = text_of(function)
        symbols = tuple(getattr(function, "kernel_info", None) or (module.execution_args.function_name,))
        if not self.automatic and not any(_has_inert_marks(text or "", symbol) for symbol in symbols):
            return _Program(symbols, text, None)
        try:
            if function is None or function.ir_module is None:
                raise Unavailable("only its machine code is left; compile it inside the profile")
            if text is None and (unwritten := getattr(function, "__ptx__", None)):
                raise Unavailable(f"the DSL could not write its PTX to {unwritten}")
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
            if not self.automatic and not _has_inert_marks(text or "", symbol):
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


def _is_tvm_ffi(function: Any) -> bool:
    return "tvm_ffi" in type(function).__module__


def _remember(function: Any) -> bool:
    """Let the driver's hooks know the PTX of a function's kernels. Return whether that is possible."""
    code, text = getattr(function, "__cubin__", None), text_of(function)
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


@functools.lru_cache(maxsize=256)
def _has_inert_marks(text: str, symbol: str) -> bool:
    """Whether a kernel has marks that become records only when it is woven: those of IKET and its drop-in."""
    try:
        return has_marks(with_iket_marks(text), symbol)
    except PtxError:
        return True  # the launch says what is wrong with them


def _takes_buffer(exe_args: list[Any]) -> bool:
    """Whether a `wlc.buffer` is among the arguments of a function."""
    buffers = sys.modules.get("warplens.frontends.cute.buffer_argument")
    return buffers is not None and any(getattr(one, "value", one) in buffers.live for one in exe_args)


def start(running: Session) -> Callable[[], None] | None:
    """Called when a profile starts; returns a function that removes the hooks."""
    require_cute()
    return intercepted("cutlass", lambda launches: Cute(launches).install(), by_hand=True)(running)
