"""A CUDA driver without a GPU, and libraries on top of it: kernels are PTX, and the interpreter runs them."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.contexts import Contexts
from warplens import simulate
from warplens.driver import libcuda
from warplens.errors import WarplensError
from warplens.frontends import cuda_bindings, cuda_core
from warplens.frontends.driver_calls import frontend as driver_calls
from warplens.frontends.intercept import interceptor, woven_module
from warplens.record.capture import Device


@dataclass
class FakeDriver(Contexts):
    """What ran, what a plain and a woven kernel take, and the memory they share."""

    space: simulate.GlobalMemory = field(default_factory=lambda: simulate.GlobalMemory(256 << 20))
    kernels: dict[int, tuple[str, str]] = field(default_factory=dict)
    fired: list[tuple[str, bool, int]] = field(default_factory=list)
    """Symbol, whether it was woven, stream."""
    registers: dict[bool, int] = field(default_factory=lambda: {False: 32, True: 40})
    local: dict[bool, int] = field(default_factory=lambda: {False: 0, True: 0})
    blocks: dict[bool, int] = field(default_factory=lambda: {False: 4, True: 4})
    squeezes: bool = False
    """Whether a limit on registers brings a woven kernel's blocks back."""
    broken: bool = False
    settings: list[tuple[int, int]] = field(default_factory=list)
    shared: list[str] = field(default_factory=list)
    events: dict[int, int] = field(default_factory=dict)
    now: int = 0
    handles: Iterator[int] = field(default_factory=lambda: itertools.count(1000))
    cells: dict[str, tuple[str, int]] = field(default_factory=dict)
    """By text of a woven module, the variable that holds its buffer pointer, and where that is."""

    def plain(self, text: str, symbol: str) -> int:
        """A kernel that a library loaded by itself."""
        handle = next(self.handles)
        self.kernels[handle] = text, symbol
        return handle

    def woven(self, handle: int) -> bool:
        return "_wl_buffer" in self.kernels[handle][0]

    def launch(self, handle: int, grid: Any, block: Any, arguments: list[Any], shared: int, stream: int) -> None:
        given = list(arguments)

        def run(handle: int) -> None:
            text, symbol = self.kernels[handle]
            self.fired.append((symbol, self.woven(handle), stream))
            values = given[: len(self.parameter_sizes(handle))]
            if text in self.cells:
                name, place = self.cells[text]
                pointer = int(self.space.read(place, np.uint64, 1)[0])
                text = text.replace(f".b64 {name};", f".b64 {name} = {pointer};")
            simulate.run(text, symbol, tuple(grid), tuple(block), values, memory=self.space, shared=shared)

        self.graphs.run(stream, handle, run)

    def event(self, stream: int) -> int:
        """Its time: a woven launch takes 3 us, a plain one 2, and everything beside them half a one."""
        handle, self.now = next(self.handles), self.now + 500
        self.events[handle] = self.now + sum(3000 if woven else 2000 for _, woven, _ in self.fired)
        return handle

    def reached(self, event: int) -> bool:
        return event not in self.events

    def elapsed_ns(self, first: int, second: int) -> float:
        return float(self.events.pop(second) - self.events.pop(first))

    def load(self, image: bytes) -> int:
        return next(self.handles)

    def function(self, module: int, name: str) -> int | None:
        return None

    def load_library(self, image: bytes) -> int:
        self.check_safe("cuLibraryLoadData")
        if self.broken:
            raise WarplensError("cuLibraryLoadData failed: a PTX JIT compilation failed (CUDA error 218)")
        assert image.endswith(b"\0")
        return self.plain(image[:-1].decode(), "")

    def kernel(self, library: int, name: str) -> int:
        return self.plain(self.kernels[library][0], name)

    def library_variable(self, library: int, name: str) -> int:
        text = self.kernels[library][0]
        assert f" {name};" in text
        return self.cells.setdefault(text, (name, int(self.space.alloc(8))))[1]

    def copy_on_device(self, target: int, source: int, size: int, stream: int) -> None:
        def run(_: Any) -> None:
            self.space.write(target, self.space.read(source, np.uint8, size))

        self.graphs.run(stream, None, run)

    def kernel_function(self, kernel: int) -> int:
        return kernel

    def kernel_library(self, kernel: int) -> int:
        return kernel // 10

    def name_of(self, handle: int, kind: str) -> str:
        return self.kernels[handle][1]

    def resources(self, function: int) -> dict[str, int]:
        woven = self.woven(function)
        return {"registers": self.registers[woven], "local_bytes": self.local[woven], "shared_bytes": 2176}

    def active_blocks(self, function: int, threads: int, shared: int) -> int:
        lean = "maxnreg" in self.kernels[function][0] and self.squeezes
        return self.blocks[self.woven(function) and not lean]

    def copy_settings(self, source: int, target: int) -> None:
        self.settings.append((source, target))

    def share_variable(self, name: str, plain: int, library: int, stream: int) -> None:
        self.shared.append(name)

    def parameter_sizes(self, function: int) -> list[int]:
        text, symbol = self.kernels[function]
        from warplens.ptx.tree import parse

        return [param.size for entry in parse(text).entries if entry.name == symbol for param in entry.params]

    def device_index(self) -> int:
        return 0

    def device(self) -> Device:
        return Device("fake", 0, 132, "9.0", 1980.0, "CUDA 13.0")

    def synchronize(self) -> None:
        pass

    def download_rows(self, address: int, pitch: int, width: int, rows: int, out_pitch: int) -> np.ndarray:
        out = np.zeros((rows, out_pitch), np.uint8)
        for row in range(rows):
            out[row, :width] = self.space.read(address + row * pitch, np.uint8, width)
        return out.reshape(-1)


def fake_driver(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    """The fake in place of the driver, wherever interception asks for one."""
    fake = FakeDriver()
    woven_module.twin_of.cache_clear()
    for module in (libcuda, interceptor, woven_module, cuda_core, cuda_bindings, driver_calls):
        monkeypatch.setattr(module, "driver", lambda: fake)
    from warplens.calibrate import record_cost

    monkeypatch.setattr(record_cost, "constants", dict)
    return fake


@contextmanager
def modules(monkeypatch: pytest.MonkeyPatch, **parts: dict[str, Any]) -> Iterator[dict[str, ModuleType]]:
    """Modules by dotted name (`_` for the dots) with what is in them, for the block."""
    made = {}
    for name, content in parts.items():
        dotted = name.replace("__", ".")
        made[dotted] = ModuleType(dotted)
        made[dotted].__dict__.update(content)
        monkeypatch.setitem(sys.modules, dotted, made[dotted])
    for dotted, module in made.items():
        parent, _, last = dotted.rpartition(".")
        if parent in made:
            setattr(made[parent], last, module)
    yield made


def fake_cupy(gpu: FakeDriver, text: str) -> dict[str, dict[str, Any]]:
    """The parts of CuPy that RawKernel is made of, with slots where CuPy's compiled classes keep C fields."""

    class Function:
        def __init__(self, module: Any, name: str) -> None:
            self.module, self.ptr = module, gpu.plain(text, name)

        def __call__(
            self,
            grid: Any,
            block: Any,
            args: Any,
            shared_mem: int = 0,
            stream: Any = None,
            enable_cooperative_groups: bool = False,
        ) -> None:
            gpu.launch(self.ptr, grid, block, [_plain(a) for a in args], shared_mem, stream.ptr if stream else 0)

    class Module:
        def __init__(self) -> None:
            self.mapping: dict[str, str] | None = None

        def _set_mapping(self, mapping: dict[str, str]) -> None:
            self.mapping = mapping

        def get_function(self, name: str) -> Function:
            return Function(self, name)

        def get_global_var(self, name: str) -> str:
            return f"plain {name}"

    class RawKernel:
        __slots__ = ("_kernel_cache", "code", "file_path", "name")

        def __init__(self, code: str | None, name: str, file_path: str | None = None) -> None:
            self.code, self.name, self.file_path, self._kernel_cache = code, name, file_path, [None]

        @property
        def kernel(self) -> Any:
            if self._kernel_cache[0] is None:
                get = sys.modules["cupy._core.raw"]._get_raw_module
                module = get(self.code, self.file_path, (), "nvrtc", False, False, False, None, None)
                self._kernel_cache[0] = module.get_function(self.name)
            return self._kernel_cache[0]

        def __call__(self, grid: Any, block: Any, args: Any, **options: Any) -> None:
            self.kernel(grid, block, args, enable_cooperative_groups=False, **options)

        def __getstate__(self) -> dict[str, Any]:
            own = {"code": self.code, "name": self.name, "file_path": self.file_path}
            flags = dict.fromkeys(("translate_cucomplex", "enable_cooperative_groups", "jitify"), False)
            return {**own, **flags, "options": (), "backend": "nvrtc", "name_expressions": None}

    def nvrtc(source: str, options: tuple[str, ...]) -> tuple[bytes, None]:
        arch = sys.modules["cupy.cuda.compiler"]._get_arch_for_options_for_nvrtc("80")
        compiled.append((source, options, arch))
        return (text.encode() if arch[1] == "ptx" else b"\x7fELF"), None

    def compile_with_cache(source: str, options: tuple[str, ...], **named: Any) -> Module:
        compiler = sys.modules["cupy.cuda.compiler"]
        image = compiler._kernel_cache_backend.load("key")
        if image is None:
            image = compiler._compile_using_nvrtc_no_warning(source, options)[0]
            compiler._kernel_cache_backend.save("key", image, source)
        return Module()

    cache: dict[str, bytes] = {}
    compiled: list[Any] = []
    backend = SimpleNamespace(load=cache.get, save=lambda key, image, source: cache.__setitem__(key, image))

    def get_raw_module(code: str | None, path: str | None, options: tuple[str, ...], *rest: Any) -> Module:
        return compile_with_cache(code, options) if code is not None else Module()

    raw = {"RawKernel": RawKernel, "_get_raw_module": get_raw_module}
    return {
        "cupy": {"RawKernel": RawKernel, "cache": cache, "compiled": compiled},
        "cupy___core": {}, "cupy___core__raw": raw, "cupy___core__core": {"compile_with_cache": compile_with_cache},
        "cupy__cuda": {"get_current_stream": lambda: SimpleNamespace(ptr=7)},
        "cupy__cuda__device": {"get_device_id": lambda: 0},
        "cupy__cuda__function": {"Function": Function, "Module": Module},
        "cupy__cuda__compiler": {
            "_kernel_cache_backend": backend, "_compile_using_nvrtc_no_warning": nvrtc, "_rdc_flags": ("-dc",),
            "compile_using_nvcc": None, "_get_arch_for_options_for_nvrtc": lambda arch: (f"-arch=sm_{arch}", "cubin"),
        },
    }  # fmt: skip


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, np.integer) else value
