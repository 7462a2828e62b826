"""CuPy's RawKernel and RawModule.

They are compiled C classes, so nothing of theirs can be replaced. But a RawKernel asks `_get_raw_module`, a name of its
module, for its code, keeps the `Function` it gets in a list, and calls that: a subclass of `Function` sees each launch.
"""

from __future__ import annotations

import functools
import gc
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from warplens.driver.kernel_arguments import Shape
from warplens.frontends.intercept.frontend import intercepted
from warplens.frontends.intercept.interceptor import Interceptor, KnownLaunch, PlainKernel
from warplens.frontends.intercept.name_swap import instances
from warplens.frontends.intercept.woven_module import Twin, Unavailable, source_name
from warplens.ptx.symbols import plain_name

_ARGUMENTS = (
    "code", "file_path", "options", "backend", "translate_cucomplex", "enable_cooperative_groups", "jitify",
    "name_expressions",
)  # fmt: skip
"""What `_get_raw_module` takes, by the names a pickled RawKernel has for it."""
_compiling = threading.Lock()


def install(launches: Interceptor) -> list[Callable[[], None]]:
    """New kernels get a watched function from `_get_raw_module`, kernels that were compiled before in their list."""
    from cupy._core import raw

    function_class, module_class = _classes()
    original = raw._get_raw_module

    @functools.wraps(original)
    def get_raw_module(*arguments: Any) -> Any:
        return module_class(launches, original(*arguments), dict(zip(_ARGUMENTS, arguments, strict=False)))

    raw._get_raw_module = get_raw_module
    for kernel, kept in _kernels():
        for device, function in enumerate(kept):
            if function is not None and not isinstance(function, function_class):
                kept[device] = function_class(launches, function, kernel.name, kernel.__getstate__())

    def restore() -> None:
        raw._get_raw_module = original
        for _, kept in _kernels():
            for device, function in enumerate(kept):
                if isinstance(function, function_class):
                    kept[device] = function.plain

    return [restore]


def _kernels() -> list[tuple[Any, list[Any]]]:
    """Every RawKernel of the process with the list, one entry per device, of the functions it has compiled."""
    from cupy._core.raw import RawKernel

    return [(item, part) for item in instances(RawKernel) for part in gc.get_referents(item) if isinstance(part, list)]


@functools.cache
def _classes() -> tuple[Any, Any]:
    from cupy.cuda import get_current_stream
    from cupy.cuda.function import Function, Module

    class Watched(Function):  # type: ignore[misc]
        """A plain function whose launches are looked at."""

        __slots__ = ("done", "done_block", "done_grid", "done_shared", "kernel", "known", "launches", "plain")

        def __init__(self, launches: Interceptor, plain: Any, symbol: str, made: Mapping[str, Any]) -> None:
            self.plain, self.ptr, self.module = plain, plain.ptr, plain.module  # type: ignore[misc]
            self.launches = launches
            self.kernel = PlainKernel(symbol, plain.ptr, functools.partial(_ptx, symbol, made))
            self.known: dict[Any, KnownLaunch] = {}
            # The variant and the shape of the latest launch of which nothing more is recorded.
            self.done: Any = None
            self.done_grid: Any = None
            self.done_block: Any = None
            self.done_shared: Any = None

        def __call__(
            self,
            grid: Any,
            block: Any,
            args: Any,
            shared_mem: int = 0,
            stream: Any = None,
            enable_cooperative_groups: bool = False,
        ) -> None:
            # The names of these parameters are CuPy's, which gives some by keyword.
            if grid == self.done_grid and block == self.done_block and shared_mem == self.done_shared:
                # Most launches take this path: one comparison and one count.
                self.done.launches += 1
                self.plain(grid, block, args, shared_mem, stream, enable_cooperative_groups)
                return
            form: Any = (grid, block, shared_mem)
            try:
                known = self.known.get(form)
            except TypeError:  # sizes in a list
                known, form = None, None
            if known is not None:
                if known.variant.closed:
                    self.done, (self.done_grid, self.done_block, self.done_shared) = known.variant, form
                    known.variant.launches += 1
                    self.plain(grid, block, args, shared_mem, stream, enable_cooperative_groups)
                    return
                if known.variant.ready is not None:
                    launch = known.ready((get_current_stream() if stream is None else stream).ptr)
                    if launch is not None:
                        if known.woven is None:
                            known.woven = self.function_of(known.twin)
                        try:
                            arguments = (*args, np.uint64(launch.pointer))
                            known.woven(grid, block, arguments, shared_mem, stream, enable_cooperative_groups)
                        except BaseException:
                            launch.failed()
                            raise
                        launch.launched()
                        return
            self.decide(form, known, grid, block, args, shared_mem, stream, enable_cooperative_groups)

        def function_of(self, twin: Any) -> Any:
            function = Function.__new__(Function)
            function.module, function.ptr = self.module, twin.function
            return function

        def decide(
            self, form: Any, known: Any, grid: Any, block: Any, args: Any, shared_mem: int, stream: Any, together: bool
        ) -> None:
            handle = (get_current_stream() if stream is None else stream).ptr
            shape = Shape(_three(grid), _three(block), int(shared_mem), int(handle))

            def plain() -> None:
                self.plain(grid, block, args, shared_mem, stream, together)

            def woven(twin: Twin, pointer: int) -> None:
                self.function_of(twin)(grid, block, (*args, np.uint64(pointer)), shared_mem, stream, together)

            if form is not None and known is None:
                self.known[form] = self.launches.known(self.kernel, shape)
            self.launches.launch(self.kernel, shape, plain, woven)

    class WatchedModule(Module):  # type: ignore[misc]
        """A plain module whose functions are watched; it owns nothing."""

        def __init__(self, launches: Interceptor, plain: Any, made: Mapping[str, Any]) -> None:
            super().__init__()
            self.plain, self.launches, self.made = plain, launches, made
            if plain.mapping is not None:
                self._set_mapping(plain.mapping)

        def get_function(self, name: Any) -> Any:
            symbol = name.decode() if isinstance(name, bytes) else name
            return Watched(self.launches, self.plain.get_function(name), symbol, self.made)

        def get_global_var(self, name: Any) -> Any:
            return self.plain.get_global_var(name)

    return Watched, WatchedModule


def _three(sizes: Any) -> tuple[int, int, int]:
    x, y, z = (max(1, int(size)) for size in (*sizes, 1, 1)[:3])
    return x, y, z


def _ptx(symbol: str, made: Mapping[str, Any]) -> str:
    """The PTX of a kernel from what it was made of."""
    if made["code"] is None:
        return text_of_file(made["file_path"])
    from cupy.cuda.device import get_device_id

    text = _compile(tuple(made[name] for name in _ARGUMENTS), get_device_id())
    return source_name(text, f"{plain_name(symbol)}.cu")


def text_of_file(path: str) -> str:
    """PTX from a file."""
    data = Path(path).read_bytes()
    if b".version" not in data[:4096]:
        raise Unavailable(f"it was loaded from {Path(path).name}, machine code without PTX")
    return data.decode(errors="replace")


@functools.lru_cache(maxsize=128)
def _compile(arguments: tuple[Any, ...], device: int) -> str:
    """CuPy's own compilation, its options included, stopped at PTX and kept out of CuPy's caches."""
    from cupy._core import core
    from cupy.cuda import compiler

    made = dict(zip(_ARGUMENTS, arguments, strict=True))

    if any(option in compiler._rdc_flags for option in made["options"]):
        raise Unavailable("it is linked with the device runtime")
    debug = {"-G", "--device-debug"}.intersection(made["options"])
    options = made["options"] if debug else (*made["options"], "-lineinfo")
    texts: list[bytes] = []
    nvrtc = "_compile_using_nvrtc_no_warning" if hasattr(compiler, "_compile_using_nvrtc_no_warning") else None
    nvrtc = nvrtc or "compile_using_nvrtc"
    before = {name: getattr(compiler, name) for name in (nvrtc, "compile_using_nvcc", "_kernel_cache_backend",
              "_get_arch_for_options_for_nvrtc")}  # fmt: skip

    def by_nvrtc(*arguments: Any, **named: Any) -> Any:
        made_of = before[nvrtc](*arguments, **named)
        texts.append(made_of[0])
        return made_of

    def by_nvcc(*arguments: Any, **named: Any) -> Any:
        texts.append(before["compile_using_nvcc"](*arguments, **{**named, "code_type": "ptx"}))
        return texts[-1]

    class Nowhere:
        """A cache that knows nothing and keeps nothing."""

        def load(self, name: str) -> None:
            return None

        def save(self, *arguments: Any) -> None:
            return None

    def to_ptx(arch: Any = None) -> tuple[str, str]:
        return f"-arch=compute_{arch or compiler._get_arch()}", "ptx"

    with _compiling:
        for name, new in zip(before, (by_nvrtc, by_nvcc, Nowhere(), to_ptx), strict=True):
            setattr(compiler, name, new)
        try:
            core.compile_with_cache(
                made["code"], tuple(options), prepend_cupy_headers=False, backend=made["backend"],
                translate_cucomplex=made["translate_cucomplex"],
                enable_cooperative_groups=made["enable_cooperative_groups"],
                name_expressions=made["name_expressions"], jitify=bool(made["jitify"]),
            )  # fmt: skip
        finally:
            for name, old in before.items():
                setattr(compiler, name, old)
    if not texts:
        raise Unavailable("CuPy did not give its PTX")
    return texts[-1].decode(errors="replace")


start = intercepted("cupy", install)
