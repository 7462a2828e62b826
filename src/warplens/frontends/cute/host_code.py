"""The host code of a CuTe DSL function, built a second time so that its launches come here.

The DSL compiles the host part of a function to machine code, which launches by `_cudaLaunchKernelEx` of the DSL's
runtime library. The same code in an engine of its own, where that symbol is ours, does all that the plain one does, on
the kernels that the plain one loaded. The plain one is left as it is.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from warplens.driver.kernel_arguments import Shape
from warplens.frontends.intercept.woven_module import Unavailable

_SYMBOL = "_cudaLaunchKernelEx"
LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
"""Takes the addresses of a launch's configuration, kernel and array of argument addresses; gives a CUDA error."""
_LOAD = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)


class _Config(ctypes.Structure):
    """cudaLaunchConfig_t, which is a CUlaunchConfig too: the size of shared memory has zeros where that has a gap."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared", ctypes.c_uint64),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint32),
    )


def shape_of(config: int) -> Shape:
    """The shape in a launch's configuration."""
    given = _Config.from_address(config)
    (x, y, z), (u, v, w) = given.grid, given.block
    return Shape((x, y, z), (u, v, w), int(given.shared), int(given.stream or 0))


class Host:
    """A second engine of a compiled function; `executor` runs it as the DSL's own executor runs the plain one."""

    def __init__(self, function: Any, library: Any, launch: int) -> None:
        """`launch` is the address of the function that its launches call."""
        from cutlass._mlir import execution_engine
        from cutlass.base_dsl.jit_executor import JitExecutor
        from cutlass.cutlass_dsl import CuTeDSL
        from cutlass.cutlass_dsl.cuda_jit_executor import CudaDialectJitModule

        libraries = CuTeDSL._get_dsl().get_shared_libs()
        try:
            engine = execution_engine.ExecutionEngine(function.ir_module, opt_level=2, shared_libs=libraries)
            engine.raw_register_runtime(_SYMBOL, ctypes.c_void_p(launch))
            entry = engine.lookup(function.function_name)
            load = engine.raw_lookup("cuda_load_to_device")
        except (RuntimeError, TypeError) as error:
            raise Unavailable(f"its host code cannot be built a second time: {error}") from None
        if not load:
            raise Unavailable("its host code does not load kernels the way that is known of this DSL")
        entry.restype = ctypes.c_int32
        _share_kernels(_LOAD(load), int(library), function.num_devices)
        self.executor = JitExecutor(CudaDialectJitModule(engine, entry, function.execution_args, []), None, False)


def _share_kernels(load: Any, library: int, devices: int) -> None:
    """Let the second engine find its kernels in the library that the first one loaded."""
    handle = ctypes.c_void_p(library)
    cell = ctypes.pointer(handle)
    device, status = ctypes.c_int32(), ctypes.c_int32()
    places = (ctypes.addressof(cell), ctypes.addressof(device), ctypes.addressof(status))
    packed = (ctypes.c_void_p * len(places))(*places)
    for number in range(devices):
        device.value = number
        load(packed)
        if status.value:
            raise Unavailable(f"its kernels cannot be found a second time (CUDA error {status.value})")


@functools.cache
def plain_launch() -> Any:
    """What the plain host code launches by: a function of the DSL's runtime library."""
    from cutlass.cutlass_dsl import CuTeDSL

    for path in CuTeDSL._get_dsl().get_shared_libs():
        found = getattr(ctypes.CDLL(path), _SYMBOL, None)
        if found is not None:
            found.argtypes, found.restype = [ctypes.c_void_p] * 3, ctypes.c_int32
            return found
    raise Unavailable("the DSL's runtime library does not launch the way that is known of it")
