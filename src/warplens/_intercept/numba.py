"""numba-cuda: its kernels are launched through cuda.core; their PTX is asked of their code library."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from warplens._intercept import core, frontend
from warplens._intercept.launches import Launches
from warplens._intercept.twins import Unavailable


def attach() -> None:
    core.attach()
    frontend.attach("numba-cuda", install)


def install(launches: Launches) -> list[Callable[[], None]]:
    """Each launch asks its library for the function: that tells which library a kernel handle is of."""
    from numba.cuda.codegen import CUDACodeLibrary
    from numba.cuda.dispatcher import _Kernel

    get_cufunc, init = CUDACodeLibrary.get_cufunc, _Kernel.__init__

    @functools.wraps(get_cufunc)
    def watched(self: Any) -> Any:
        function = get_cufunc(self)
        core.givers[int(function.handle)] = functools.partial(_ptx, self)
        return function

    @functools.wraps(init)
    def with_lines(self: Any, *arguments: Any, **options: Any) -> None:
        # Line information names the regions, and changes no instruction.
        init(self, *arguments, **(options if options.get("debug") else {**options, "lineinfo": True}))

    CUDACodeLibrary.get_cufunc, _Kernel.__init__ = watched, with_lines

    def restore() -> None:
        CUDACodeLibrary.get_cufunc, _Kernel.__init__ = get_cufunc, init
        core.givers.clear()

    return [restore]


def _ptx(library: Any) -> str:
    texts = library.get_asm_strs()
    if len(texts) != 1 or library._linking_files or library.needs_cudadevrt:
        raise Unavailable("it is linked from several pieces")
    return str(texts[0])
