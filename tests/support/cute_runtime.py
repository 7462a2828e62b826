"""The CUDA runtime that the DSL's host code calls, without a GPU: that code runs for real, its kernels in the
interpreter."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import pytest

# The DSL reads the architecture that this sets when it is imported.
from tests.support import cute_gpu

# isort: split
from cutlass._mlir import execution_engine
from cutlass.base_dsl import dsl
from cutlass.cutlass_dsl.cuda_jit_executor import CudaDialectJitCompiledFunction

from tests.support.fake_driver import FakeDriver, fake_driver
from warplens.frontends.cute import automatic, host_code
from warplens.frontends.cute import buffer_argument as buffer_file
from warplens.ptx import tree

_INT, _AT = ctypes.c_int32, ctypes.c_void_p


class Runtime:
    """Kernels by the PTX that `know` was told of, loaded and launched by the names the DSL's host code uses."""

    def __init__(self, gpu: FakeDriver) -> None:
        self.gpu, self.texts, self.handles = gpu, dict[str, str](), dict[tuple[int, str], int]()
        self.loaded = 0
        self.cached: list[Any] = []
        """What the DSL would have written to its cache on disk."""
        kinds = {
            "_cudaLibraryLoadData": (self.load, (_AT, _AT, _AT, _AT, _INT, _AT, _AT, _INT)),
            "_cudaLibraryGetKernel": (self.kernel, (_AT, _AT, _AT)),
            "_cudaDeviceGetAttribute": (lambda out, *_: _put(out, 232448), (_AT, _INT, _INT)),
            "_cuKernelGetAttribute": (lambda out, *_: _put(out, 0), (_AT, _INT, _AT, _INT)),
            "_cudaKernelSetAttributeForDevice": (lambda *_: 0, (_AT, _INT, _INT, _INT)),
            "_cudaLaunchKernelEx": (self.launch, (_AT, _AT, _AT)),
        }
        self.symbols = {name: ctypes.CFUNCTYPE(_INT, *kinds)(call) for name, (call, kinds) in kinds.items()}

    def know(self, compiled: Any) -> Any:
        self.texts |= {entry.name: compiled.__ptx__ for entry in tree.parse(compiled.__ptx__).entries}
        return compiled

    def load(self, out: int, *_: Any) -> int:
        self.loaded += 1
        ctypes.c_uint64.from_address(out).value = self.loaded
        return 0

    def kernel(self, out: int, library: int, name: int) -> int:
        key = library, ctypes.string_at(name).decode()
        if key not in self.handles:
            self.handles[key] = self.gpu.plain(self.texts[key[1]], key[1])
        ctypes.c_uint64.from_address(out).value = self.handles[key]
        return 0

    def launch(self, config: int, kernel: int, arguments: int) -> int:
        sizes = self.gpu.parameter_sizes(kernel)
        places = (ctypes.c_void_p * len(sizes)).from_address(arguments)
        values = [int.from_bytes(ctypes.string_at(at, size), "little") for at, size in zip(places, sizes, strict=True)]
        shape = host_code.shape_of(config)
        self.gpu.launch(kernel, shape.grid, shape.block, values, shape.shared, shape.stream)
        return 0


def _put(out: int, value: int) -> int:
    ctypes.c_int32.from_address(out).value = value
    return 0


def install(monkeypatch: pytest.MonkeyPatch) -> Runtime:
    """The runtime in the place of the real one, for functions that are compiled from now on."""
    gpu = fake_driver(monkeypatch)
    runtime = Runtime(gpu)

    class Engine(execution_engine.ExecutionEngine):
        """Has the runtime's functions unless somebody registers others before the first look-up."""

        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            self.symbols = {name: ctypes.cast(call, _AT) for name, call in runtime.symbols.items()}

        def raw_register_runtime(self, name: str, call: Any) -> None:
            self.symbols[name] = call

        def raw_lookup(self, name: str) -> Any:
            while self.symbols:
                super().raw_register_runtime(*self.symbols.popitem())
            return super().raw_lookup(name)

    monkeypatch.setattr(execution_engine, "ExecutionEngine", Engine)
    for module in (dsl, sys.modules.get("cutlass.base_dsl.compile_backend")):
        if hasattr(module, "dump_cache_to_path"):
            monkeypatch.setattr(module, "dump_cache_to_path", lambda *given, **named: runtime.cached.append(given))
            monkeypatch.setattr(module, "load_cache_from_path", lambda *given, **named: None)
    monkeypatch.setattr(CudaDialectJitCompiledFunction, "num_devices", 1)
    for module in (host_code, automatic):
        monkeypatch.setattr(module, "plain_launch", lambda: runtime.symbols["_cudaLaunchKernelEx"])
    # The driver's function takes one more argument, which is not used.
    launch_ex, calls = ctypes.cast(runtime.symbols["_cudaLaunchKernelEx"], _AT).value or 0, gpu.launch_calls
    monkeypatch.setattr(gpu, "launch_calls", lambda: (*calls()[:3], launch_ex))
    monkeypatch.setattr(automatic, "driver", lambda: gpu)
    simulated = cute_gpu.CuteDriver(gpu.space)
    monkeypatch.setattr(buffer_file, "driver", lambda: simulated)
    monkeypatch.setattr(
        gpu, "launch_config", lambda config, function, at: runtime.launch(config, function, at), raising=False
    )
    return runtime
