"""The CuTe DSL: functions compiled inside the profile keep their PTX, and the kernels they launch get their twins, with
automatic marks, marks of IKET and marks of `warplens.compat.iket`."""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from warplens.driver.call_hooks import hook_library, passing
from warplens.driver.kernel_arguments import Shape
from warplens.driver.libcuda import driver
from warplens.frontends.cuda_bindings import Arguments
from warplens.frontends.cute.host_code import LAUNCH, Host, plain_launch, shape_of
from warplens.frontends.cute.ptx_keeper import PtxKeeper, has_iket_on, text_of, wrap_method
from warplens.frontends.cute.requirement import require_cute
from warplens.frontends.driver_calls.frontend import why_not
from warplens.frontends.driver_calls.loaded_code import expects_hand_marks, remember_ptx, remember_symbol
from warplens.frontends.intercept.frontend import intercepted
from warplens.frontends.intercept.interceptor import Interceptor, PlainKernel
from warplens.frontends.intercept.name_swap import instances
from warplens.frontends.intercept.woven_module import Twin, Unavailable, has_marks
from warplens.launch.variant import Variant
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


class _RunningCall(threading.local):
    """The call of a compiled function that a thread is in: its PTX, and what went wrong."""

    text: str | None = None
    failed: BaseException | None = None


class Cute:
    """Follows functions of the DSL from their compilation to the kernels that they launch."""

    def __init__(self, launches: Interceptor) -> None:
        self.launches, self.running = launches, True
        self.automatic = bool(launches.session.options.marks)
        self._by_hand = expects_hand_marks()
        """Whether calls of the driver are followed for hand-written marks since the profile began."""
        self._keeper = PtxKeeper(lambda dsl: self.running and (self.automatic or has_iket_on(dsl)))
        self._programs: WeakKeyDictionary[Any, _Program] = WeakKeyDictionary()
        self._latest: tuple[Callable[[], Any], _Program] = (lambda: None, _Program((), None, None))
        """The module of the last call, by a weak reference, and its program."""
        self._call = _RunningCall()
        self._answer = LAUNCH(self._launch)
        self._launch_address = 0
        """What host code launches by; 0 before there is any."""
        self._closed: dict[int, tuple[int, Variant]] = {}
        """By number of the library's counter, kernels and variants whose launches are only counted."""

    def install(self) -> list[Callable[[], None]]:
        from cutlass.base_dsl.jit_executor import JitExecutor
        from cutlass.cutlass_dsl.cuda_jit_executor import CudaDialectJitCompiledFunction

        earlier = [one for one in instances(CudaDialectJitCompiledFunction) if _is_tvm_ffi(one)]
        for function in earlier:
            _remember(function)
        _remember_loaded(earlier)
        self.launches.session.buffers.open_shelves(for_launches=True)
        runner = wrap_method(JitExecutor, "run_compiled_program", self._runner, passes_on=True)
        return [self._keeper.install(self._hand_over), runner, self._stop]

    def _stop(self) -> None:
        self.running = False
        self._programs.clear()
        self._latest = lambda: None, self._latest[1]
        self.launches.session.buffers.open_shelves(for_launches=False)
        hooks = hook_library()[0] if self._launch_address else None
        if hooks is not None:
            hooks.answer_configs(None, None, 0)
            for number, (kernel, variant) in self._closed.items():
                variant.launches += hooks.count(number)
                hooks.reopen_function(kernel)
        self._closed.clear()
        self._keeper.close()

    def _hand_over(self, function: Any) -> None:
        """Functions that other code than the DSL's executor calls: the driver's hooks see their launches."""
        by_tvm_ffi = _is_tvm_ffi(function)
        if not by_tvm_ffi and not type(function).__name__.startswith("CutlassCall"):
            return
        reason = why_not() if by_tvm_ffi else "the DSL's own call interface passes Python by"
        if not self.automatic and not (by_tvm_ffi and self._by_hand):
            reason = reason or (
                "its hand-written marks are recorded where it is compiled before the profile begins, or with automatic "
                "marks too: give auto= (--auto)"
                if by_tvm_ffi
                else "such calls are followed with automatic marks only; give auto= (--auto)"
            )
        if not reason and not _remember(function):
            reason = "the DSL did not keep its machine code"
        for symbol in function.kernel_info or () if reason else ():
            way = "TVM-FFI" if by_tvm_ffi else "C"
            self.launches.refuse(plain_name(symbol), Unavailable(f"it is called by {way}, past Python: {reason}"))

    def _runner(self, original: Callable[..., Any]) -> Callable[..., Any]:
        call = self._call

        def run_compiled_program(executor: Any, exe_args: list[Any]) -> Any:
            module, program = getattr(executor, "jit_module", None), None
            latest, known = self._latest
            if module is not None and latest() is module:
                program = known
            elif self.running:
                program = self._program_of(module, exe_args)
            if program is None or not isinstance(program.host, Host):
                with passing():  # what is launched here is counted here
                    return original(executor, exe_args)
            call.text = program.text
            try:
                return original(program.host.executor, exe_args)
            finally:
                if call.failed is not None:
                    failed, call.failed = call.failed, None
                    raise failed from None

        return run_compiled_program

    def _program_of(self, module: Any, exe_args: list[Any]) -> _Program | None:
        """The function that loaded `module`; None where its plain host code runs."""
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
        if program.text is not None and program.host is not None:
            self._latest = weakref.ref(module), program
        return program

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
            return _Program(symbols, text, Host(function, module.cuda_library[0], self._address()))
        except Unavailable as reason:
            return _Program(symbols, text, reason)

    def _address(self) -> int:
        """What host code launches by: a function in C, or the one below where there is no compiler."""
        if not self._launch_address:
            hooks, _ = hook_library()
            calls = driver().launch_calls()
            if hooks is not None:
                hooks.use(calls)
                self._launch_address = hooks.answer_configs(self._answer, plain_launch(), calls[3])
            else:
                self._launch_address = ctypes.cast(self._answer, ctypes.c_void_p).value or 0
        return self._launch_address

    def _launch(self, config: int, kernel: int, arguments: int) -> int:
        """One launch of the host code. No error may leave through it: what goes wrong is kept until it has returned."""
        text, plain = self._call.text, plain_launch()
        try:
            lib = driver()
            symbol, function, shape = lib.name_of(kernel, "Kernel"), lib.kernel_function(kernel), shape_of(config)
            if text is not None and _has_hand_marks(text, symbol):
                return int(plain(config, kernel, arguments))
            if not self.automatic and not _has_inert_marks(text or "", symbol):
                return int(plain(config, kernel, arguments))

            def parameters() -> int:
                return len(lib.parameter_sizes(function))

            def woven(twin: Twin, pointer: int) -> int:
                given = Arguments(arguments, parameters(), pointer)
                lib.launch_config(config, twin.function, given.address)
                return 0

            known = PlainKernel(symbol, function, functools.partial(_ptx, text), text)
            status = self.launches.launch_in_c(
                known, shape, kernel, parameters, lambda: plain(config, kernel, arguments), woven
            )
            self._close(kernel, shape, self.launches.variant(known, shape))
            return int(status)
        except BaseException as error:  # no exception can pass the host code in between; the caller raises it
            self._call.failed = error
            return _FAILED

    def _close(self, kernel: int, shape: Shape, variant: Variant) -> None:
        """Ask no more about launches of a variant that is done with."""
        hooks, _ = hook_library()
        if variant.closed and hooks is not None and self.running:
            number = hooks.close(kernel, shape, driver().context())
            if number >= 0:
                self._closed[number] = kernel, variant


def _is_tvm_ffi(function: Any) -> bool:
    return "tvm_ffi" in type(function).__module__


def _remember(function: Any) -> bool:
    """Let the driver's hooks know the PTX of a function's kernels. Return whether that is possible."""
    code, text = getattr(function, "__cubin__", None), text_of(function)
    if not isinstance(code, bytes) or text is None:
        return False
    remember_ptx(code, functools.partial(_unmarked_ptx, text))
    return True


def _remember_loaded(functions: list[Any]) -> None:
    """The same for kernels that may have been loaded before warplens could see it: they are known by their symbols,
    which name the types of the arguments, but not constants that the kernel was compiled with."""
    texts: dict[str, set[str]] = {}
    for function in functions:
        for symbol in function.kernel_info or ():
            texts.setdefault(symbol, set()).add(text_of(function) or "")
    for symbol, found in texts.items():
        if len(found) == 1 and (text := found.pop()):
            remember_symbol(symbol, functools.partial(_unmarked_ptx, text))


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
