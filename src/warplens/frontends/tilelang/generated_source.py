"""The PTX of a TileLang kernel, with the lines of its Python source and the marks of its regions."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tilelang.contrib import nvcc
from tilelang.cuda import backend
from tilelang.engine.lower import device_codegen_without_compile, lower_to_host_device_ir
from tvm import tirx
from tvm.ir.transform import PassContext

from warplens.auto.ptx import mark_barriers
from warplens.frontends.intercept.woven_module import Unavailable
from warplens.frontends.tilelang.placed_marks import has_regions, with_marks
from warplens.frontends.tilelang.statement_spans import SpanKeeper, fill
from warplens.frontends.wrap import wrap
from warplens.weave.mark_comments import PREFIX

_LINES, _FLAGS = "tl.emit_line_directives", "tl.device_compile_flags"
_DIRECTIVE = re.compile(r'\s*(#line \d+ "[^"\n]*")\s*')
_PLACED = re.compile(r"\s*\[\]\(\) \{ asm volatile\(\"// " + re.escape(PREFIX))
_lock = threading.Lock()


class _Compiled(Exception):
    """Carries PTX past TileLang's cache of machine code."""


def ptx_of_kernel(kernel: Any, tell: Callable[[str], None]) -> str:
    """Compile a JIT kernel to PTX; `tell` gets what cannot be had of its Python source."""
    plain = kernel.get_kernel_source()
    with _lock:
        try:
            source = _lowered_again(kernel)
            if _bare(source) != _bare(plain):
                raise ValueError("TileLang lowers it to other code now")
            if "\n#line " not in source:
                raise ValueError("TileLang keeps no lines (TILELANG_ENABLE_IR_SPAN=0)")
            source = _directives_on_each_line(source)
        except Exception as error:  # TileLang raises what it likes, and its generated source has lines too
            tell(f"its lines are those of the source that TileLang generated, and regions are not marked: {error}")
            source = f'#line 1 "{_name_of(kernel)}.cu"\n{plain}'
        try:
            return mark_barriers(_compiled(source, kernel), automatic=False)
        except Exception as error:  # nvcc is gone, or refuses
            reason = str(error).strip().splitlines()[-1:] or [type(error).__name__]
            raise Unavailable(f"TileLang does not compile it to PTX: {reason[0]}") from None


def _name_of(kernel: Any) -> str:
    return str(kernel.prim_func.attrs["global_symbol"])


def _lowered_again(kernel: Any) -> str:
    """The CUDA source of a kernel with a `#line` for each statement."""
    keeper = SpanKeeper()
    config = {**(kernel.pass_configs or {}), _LINES: True}
    restore = keeper.lowering_gemms()
    try:
        with PassContext(opt_level=3, config=config, instruments=[keeper]), kernel.target:
            device = lower_to_host_device_ir(kernel.prim_func, kernel.backend_context)[1]
            for name, function in list(device.functions.items()):
                if isinstance(function, tirx.PrimFunc):
                    device.update_func(name, _marked(function))
            return str(device_codegen_without_compile(device, kernel.backend_context).inspect_source())
    finally:
        restore()


def _marked(function: Any) -> Any:
    body = with_marks(function.body) if has_regions(function.body) else function.body
    fill(body)
    return function.with_body(body)


def _bare(source: str) -> list[str]:
    """The lines of a source without directives and placed marks."""
    lines = (line.strip() for line in source.splitlines())
    return [line for line in lines if line and not _DIRECTIVE.fullmatch(line) and not _PLACED.match(line)]


def _directives_on_each_line(source: str) -> str:
    """TileLang writes many lines for one statement: repeat the statement's `#line` before each."""
    made, current = [], ""
    for line in source.splitlines():
        if found := _DIRECTIVE.fullmatch(line):
            current = found[1]
        else:
            made += [current, line] if current else [line]
        if line.startswith("}"):
            current = ""  # the end of a function
    return "\n".join(made) + "\n"


def _compiled(source: str, kernel: Any) -> str:
    """Let TileLang's own callback compile a source, to PTX instead of machine code."""
    flags = kernel.compile_flags or []
    config = dict(kernel.pass_configs or {})
    given = config.get(_FLAGS) or []
    config[_FLAGS] = [*([given] if isinstance(given, str) else given), *flags]
    with _to_ptx(), PassContext(opt_level=3, config=config), kernel.target:
        try:
            backend.tilelang_callback_cuda_compile(source, kernel.target, config)
        except _Compiled as done:
            return str(done)
    raise ValueError("it has other code in TileLang's cache")


@contextmanager
def _to_ptx() -> Iterator[None]:
    mine = threading.get_ident()

    def compile_cuda(original: Callable[..., Any], code: str, format: str = "ptx", arch: Any = None, *rest: Any,
                     **named: Any) -> Any:  # fmt: skip
        if threading.get_ident() != mine:
            return original(code, format, arch, *rest, **named)
        text = bytes(original(code, "ptx", _virtual(arch), *rest, **named))
        raise _Compiled(text.partition(b"\0")[0].decode(errors="replace"))

    restore = wrap(nvcc, "compile_cuda", compile_cuda)
    try:
        yield
    finally:
        restore()


def _virtual(arch: Any) -> Any:
    """Options for PTX from options that name machine code: nvcc writes PTX of one architecture at a time."""
    if isinstance(arch, list) and arch[:1] == ["-gencode"]:
        return [f"-arch={str(arch[1]).partition('arch=')[2].partition(',')[0]}"]
    return arch
