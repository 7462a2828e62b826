"""cuda.bindings.nvrtc: remember what each cubin was compiled from, and compile it to PTX when that is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from warplens.frontends.assembled_ptx.ptx_store import digest
from warplens.frontends.intercept.name_swap import by_position, swap_all
from warplens.frontends.intercept.woven_module import Unavailable


@dataclass
class _NvrtcProgram:
    """A program as it was created, and the options it was compiled with."""

    arguments: tuple[Any, ...]
    options: list[bytes] = field(default_factory=list)
    expressions: list[bytes] = field(default_factory=list)


_programs: dict[int, _NvrtcProgram] = {}
_images: dict[str, _NvrtcProgram] = {}
_original: dict[str, Callable[..., Any]] = {}


def install() -> list[Callable[[], None]]:
    from cuda.bindings import nvrtc

    def create(*arguments: Any) -> Any:
        status, program = _original["nvrtcCreateProgram"](*arguments)
        if not int(status):
            _programs[int(program)] = _NvrtcProgram(arguments)
        return status, program

    def add(program: Any, expression: bytes) -> Any:
        known = _programs.get(int(program))
        if known is not None:
            known.expressions.append(expression)
        return _original["nvrtcAddNameExpression"](program, expression)

    def compile(program: Any, count: int, options: Any) -> Any:
        known = _programs.get(int(program))
        if known is not None:
            known.options = [bytes(option) for option in (options or [])[:count]]
        return _original["nvrtcCompileProgram"](program, count, options)

    def getter(name: str) -> Callable[..., Any]:
        def get(program: Any, out: Any) -> Any:
            result = _original[name](program, out)
            known = _programs.get(int(program))
            if known is not None and isinstance(out, bytes | bytearray | memoryview):
                _images[digest(bytes(out))] = known
            return result

        return get

    new = {
        "nvrtcCreateProgram": create, "nvrtcAddNameExpression": add, "nvrtcCompileProgram": compile,
        "nvrtcGetCUBIN": getter("nvrtcGetCUBIN"), "nvrtcGetPTX": getter("nvrtcGetPTX"),
    }  # fmt: skip
    _original.update({name: getattr(nvrtc, name) for name in new})
    undo = swap_all([(_original[name], by_position(_original[name], function)) for name, function in new.items()])

    def forget() -> None:
        _programs.clear()
        _images.clear()

    return [forget, undo]


def text_of(image: bytes) -> str | None:
    """PTX with line information of what `image` was compiled from; None where NVRTC did not make it here."""
    known = _images.get(digest(image))
    if known is None or not _original:
        return None
    options = list(known.options)
    if not {b"-G", b"--device-debug", b"-lineinfo", b"--generate-line-info"}.intersection(options):
        options.append(b"-lineinfo")
    program = _check(_original["nvrtcCreateProgram"](*known.arguments))
    from cuda.bindings import nvrtc

    try:
        for expression in known.expressions:
            _check(_original["nvrtcAddNameExpression"](program, expression))
        _check(_original["nvrtcCompileProgram"](program, len(options), options))
        text = b" " * int(_check(nvrtc.nvrtcGetPTXSize(program)))
        _check(_original["nvrtcGetPTX"](program, text))
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    return text.decode(errors="replace")


def _check(result: tuple[Any, ...]) -> Any:
    if int(result[0]):
        raise Unavailable(f"NVRTC does not give its PTX ({result[0]})")
    return result[1] if len(result) > 1 else None
