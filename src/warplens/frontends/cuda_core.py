"""cuda.core: programs compiled and kernels launched through it, numba-cuda's included."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from typing import Any

from warplens.driver.kernel_arguments import Shape, stream_handle
from warplens.driver.libcuda import driver
from warplens.errors import UsageError
from warplens.frontends.intercept.frontend import intercepted
from warplens.frontends.intercept.interceptor import Interceptor, KnownLaunch, PlainKernel
from warplens.frontends.intercept.name_swap import instances, swap_all
from warplens.frontends.intercept.woven_module import Twin, Unavailable, source_name
from warplens.ptx.symbols import plain_name
from warplens.record.capture import Dim3

Text = Callable[[], str]
Made = list[tuple[Any, Callable[[str], str]]]
"""Object code, and how to get the PTX of it under the name of a source file."""

givers: dict[int, Text] = {}
"""By kernel handle, how to get the PTX of kernels that another library compiled and launches through cuda.core."""


def install(launches: Interceptor) -> list[Callable[[], None]]:
    import cuda.core

    launch, program = cuda.core.launch, cuda.core.Program
    made: Made = []

    seen: dict[Any, tuple[KnownLaunch, Any]] = {}
    """By kernel and shape; the kernel is kept, so that no other gets its id."""
    clusters = ("cluster",) if hasattr(getattr(cuda.core, "LaunchConfig", None), "cluster") else ()
    shape_of = attrgetter("grid", "block", "shmem_size", *clusters)
    done_kernel: Any = None
    done_shape: Any = None
    done: Any = None
    """The kernel, shape and variant of the latest launch of which nothing more is recorded."""

    @functools.wraps(launch)
    def watched_launch(stream: Any, config: Any, kernel: Any, *arguments: Any) -> None:
        # The names of these parameters are cuda.core's: a program may give them by keyword.
        nonlocal done_kernel, done_shape, done
        shape = shape_of(config)
        if kernel is done_kernel and shape == done_shape:
            # Most launches take this path: one comparison and one count.
            done.launches += 1
            launch(stream, config, kernel, *arguments)
            return
        form = (id(kernel), shape)
        found = seen.get(form)
        if found is None:
            decide(form, stream, config, kernel, arguments)
            return
        known = found[0]
        if known.variant.closed:
            done_kernel, done_shape, done = kernel, shape, known.variant
            done.launches += 1
            launch(stream, config, kernel, *arguments)
            return
        ready = None if known.variant.ready is None else known.ready(stream_handle(stream))
        if ready is None:
            decide(form, stream, config, kernel, arguments)
            return
        if known.woven is None and known.twin is not None:
            known.woven = type(kernel).from_handle(known.twin.kernel)
        try:
            launch(stream, config, known.woven, *arguments, ready.pointer)
        except BaseException:
            ready.failed()
            raise
        ready.launched()

    def decide(form: Any, stream: Any, config: Any, kernel: Any, arguments: tuple[Any, ...]) -> None:
        def plain() -> None:
            launch(stream, config, kernel, *arguments)

        def woven(twin: Twin, pointer: int) -> None:
            launch(stream, config, type(kernel).from_handle(twin.kernel), *arguments, pointer)

        known = _known(made, stream, config, kernel)
        if known is None:
            plain()
        else:
            if form not in seen:
                seen[form] = launches.known(*known), kernel
            launches.launch(*known, plain, woven)

    class Program(program):  # type: ignore[misc, valid-type]
        """Remembers what it was made of, for the PTX of what it compiles."""

        def __init__(self, code: Any, code_type: Any, options: Any = None) -> None:
            super().__init__(code, code_type, options)
            self._made = code, code_type, options

        def compile(self, target_type: Any, name_expressions: Any = (), *rest: Any, **named: Any) -> Any:
            result = super().compile(target_type, name_expressions, *rest, **named)
            made.append((result, lambda title: _ptx(program, *self._made, name_expressions, title)))
            return result

    Program.__name__ = Program.__qualname__ = "Program"
    return [swap_all([(launch, watched_launch), (program, Program)])]


def _known(made: Made, stream: Any, config: Any, kernel: Any) -> tuple[PlainKernel, Shape] | None:
    """The kernel of a launch and its shape; None where cuda.core must say what is wrong with them."""
    try:
        handle, lib = int(kernel.handle), driver()
        symbol = lib.name_of(handle, "Kernel")
        shape = Shape(blocks_of(config), tuple(config.block), int(config.shmem_size or 0), stream_handle(stream))
    except UsageError:
        return None
    text = givers.get(handle) or (lambda: _find(made, lib.kernel_library(handle), plain_name(symbol)))
    return PlainKernel(symbol, lib.kernel_function(handle), text), shape


def blocks_of(config: Any) -> Dim3:
    """The grid in blocks; with clusters, cuda.core counts it in clusters."""
    cluster = getattr(config, "cluster", None) or (1, 1, 1)
    x, y, z = (size * per for size, per in zip(config.grid, cluster, strict=True))
    return x, y, z


def _find(made: Made, library: int, name: str) -> str:
    """The PTX of the object code that was loaded as `library`."""
    from cuda.core import ObjectCode

    for code, text in made:
        if int(code.handle) == library:
            return text(f"{name}.cu")
    for code in instances(ObjectCode):
        # Only PTX: asking for a handle loads the code.
        if code.code_type == "ptx" and int(code.handle) == library:
            return source_name(_text(code.code), f"{name}.cu")
    raise Unavailable(
        "it was loaded as machine code, or compiled before the profile began: its PTX is not available; "
        "compile it inside the profile, or to PTX"
    )


def _ptx(program: Any, code: Any, code_type: Any, options: Any, names: Any, title: str) -> str:
    """What a program is in PTX, with line information; a program without a name is called `title`."""
    if str(code_type).lower().endswith("ptx"):
        return _text(code)
    from cuda.core import ProgramOptions

    given = ProgramOptions(**options) if isinstance(options, dict) else options or ProgramOptions()
    # Without a name of its own, cuda.core writes the source to a file of a random one.
    name = title if given.name in (None, "default_program") else given.name
    try:
        wanted = replace(given, name=name, lineinfo=given.lineinfo if given.debug else True)
        return _text(program(code, code_type, wanted).compile("ptx", names).code)
    except (RuntimeError, ValueError) as error:
        raise Unavailable(f"it cannot be compiled to PTX: {error}") from None


def _text(code: Any) -> str:
    data = code.encode() if isinstance(code, str) else bytes(code)
    return data.decode(errors="replace")


start = intercepted("cuda.core", install)
