"""numba-cuda: its kernels are launched through cuda.core; their PTX is asked of their code library."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from warplens.frontends import cuda_core
from warplens.frontends.intercept.frontend import intercepted
from warplens.frontends.intercept.interceptor import Interceptor
from warplens.frontends.intercept.woven_module import Unavailable
from warplens.frontends.wrap import wrap_all


def install(launches: Interceptor) -> list[Callable[[], None]]:
    """Each launch asks its library for the function: that tells which library a kernel handle is of."""
    from numba.cuda.codegen import CUDACodeLibrary
    from numba.cuda.dispatcher import _Kernel

    def get_cufunc(original: Callable[..., Any], library: Any) -> Any:
        function = original(library)
        cuda_core.givers[int(function.handle)] = functools.partial(_ptx, library)
        return function

    def init(original: Callable[..., None], kernel: Any, *arguments: Any, **options: Any) -> None:
        # Line information names the regions, and changes no instruction.
        original(kernel, *arguments, **(options if options.get("debug") else {**options, "lineinfo": True}))

    wrappers = (CUDACodeLibrary, "get_cufunc", get_cufunc), (_Kernel, "__init__", init)
    return [cuda_core.givers.clear, *wrap_all(*wrappers)]


def _ptx(library: Any) -> str:
    texts = library.get_asm_strs()
    if len(texts) != 1 or library._linking_files or library.needs_cudadevrt:
        raise Unavailable("it is linked from several pieces")
    return str(texts[0])


start = intercepted("numba-cuda", install)
