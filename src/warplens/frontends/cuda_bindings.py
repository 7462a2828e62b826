"""cuda.bindings: code given to the driver as PTX, or as a cubin that NVRTC made in this process."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from warplens.driver.kernel_arguments import Shape
from warplens.driver.libcuda import driver
from warplens.frontends import nvrtc_sources
from warplens.frontends.intercept.frontend import intercepted
from warplens.frontends.intercept.interceptor import Interceptor, PlainKernel
from warplens.frontends.intercept.name_swap import by_position, swap_all
from warplens.frontends.intercept.woven_module import Twin, Unavailable, source_name
from warplens.ptx.symbols import plain_name

_LOADERS = ("cuModuleLoadData", "cuModuleLoadDataEx", "cuModuleLoad", "cuLibraryLoadData", "cuLibraryLoadFromFile")
_FILES = ("cuModuleLoad", "cuLibraryLoadFromFile")
_GETTERS = {"cuModuleGetFunction": "Func", "cuLibraryGetKernel": "Kernel"}
_LAUNCHERS = ("cuLaunchKernel", "cuLaunchCooperativeKernel", "cuLaunchKernelEx")


class Bindings:
    """Follows handles from the code that was loaded to the kernel that is launched."""

    def __init__(self, launches: Interceptor) -> None:
        self.launches = launches
        self.images: dict[int, bytes] = {}
        self.kernels: dict[int, tuple[str, str, bytes]] = {}

    def install(self) -> list[Callable[[], None]]:
        from cuda.bindings import driver as bindings

        pairs = []
        for names, watch in ((_LOADERS, self._loader), (_GETTERS, self._getter), (_LAUNCHERS, self._launcher)):
            for name in names:
                original = getattr(bindings, name, None)
                if original is not None:
                    pairs.append((original, by_position(original, watch(name, original))))
        return [*nvrtc_sources.install(), swap_all(pairs)]

    def _loader(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def load(image: Any, *rest: Any) -> Any:
            status, *handles = original(image, *rest)
            if not int(status):
                self.images[int(handles[0])] = _bytes(image, from_file=name in _FILES)
            return (status, *handles)

        return load

    def _getter(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def get(holder: Any, symbol: bytes, *rest: Any) -> Any:
            status, *handles = original(holder, symbol, *rest)
            if not int(status) and int(holder) in self.images:
                self.kernels[int(handles[0])] = _GETTERS[name], symbol.decode(), self.images[int(holder)]
            return (status, *handles)

        return get

    def _launcher(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def launch(f: Any, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, shared: int, stream: Any,
                   params: Any = 0, *extra: Any) -> Any:  # fmt: skip
            shape = Shape((gx, gy, gz), (bx, by, bz), int(shared), int(stream or 0))

            def plain() -> Any:
                return original(f, gx, gy, gz, bx, by, bz, shared, stream, params, *extra)

            def woven(function: int, given: int) -> Any:
                return original(type(f)(function), gx, gy, gz, bx, by, bz, shared, stream, given, *extra)

            return self._launch(f, shape, params, extra, plain, woven)

        def launch_ex(config: Any, f: Any, params: Any = 0, *extra: Any) -> Any:
            shape = Shape(
                (config.gridDimX, config.gridDimY, config.gridDimZ),
                (config.blockDimX, config.blockDimY, config.blockDimZ),
                int(config.sharedMemBytes), int(config.hStream or 0),
            )  # fmt: skip

            def plain() -> Any:
                return original(config, f, params, *extra)

            def woven(function: int, given: int) -> Any:
                return original(config, type(f)(function), given, *extra)

            return self._launch(f, shape, params, extra, plain, woven)

        return launch_ex if name == "cuLaunchKernelEx" else launch

    def _launch(
        self,
        f: Any,
        shape: Shape,
        params: Any,
        extra: Sequence[Any],
        plain: Callable[[], Any],
        woven: Callable[[int, int], Any],
    ) -> Any:
        """Make one launch; `woven` takes the function to launch and the address of its arguments."""
        lib, handle = driver(), int(f)
        kind, symbol, image = self.kernels.get(handle, ("", "", b""))
        if not kind:
            kind = "Kernel" if type(f).__name__ == "CUkernel" else "Func"
            symbol = lib.name_of(handle, kind)
        function = lib.kernel_function(handle) if kind == "Kernel" else handle

        def text() -> str:
            if any(extra):
                raise Unavailable("its arguments are packed in one buffer")
            return source_name(_ptx(image), f"{plain_name(symbol)}.cu")

        def launch_twin(twin: Twin, pointer: int) -> Any:
            given = Arguments(params, len(lib.parameter_sizes(function)), pointer)
            return woven(twin.kernel if kind == "Kernel" else twin.function, given.address)

        return self.launches.launch(PlainKernel(symbol, function, text, image), shape, plain, launch_twin)


class Arguments:
    """Kernel arguments with one more, in the form of an address of addresses, which all launchers take."""

    def __init__(self, params: Any, count: int, buffer: int) -> None:
        if isinstance(params, tuple):
            values = [_cell(value, kind) for value, kind in zip(*params, strict=True)]
            self._cells: list[Any] = [*values, ctypes.c_uint64(buffer)]
            places = [ctypes.addressof(cell) for cell in self._cells]
        else:
            self._cells = [ctypes.c_uint64(buffer)]
            given = (ctypes.c_void_p * count).from_address(_address(params)) if count else ()
            places = [*given, ctypes.addressof(self._cells[0])]
        self._array = (ctypes.c_void_p * len(places))(*places)
        self.address = ctypes.addressof(self._array)


def _cell(value: Any, kind: Any) -> Any:
    """One argument of `((values), (types))`; without a type the value is an object with a pointer, or a struct."""
    if kind is None:
        return value if isinstance(value, ctypes._SimpleCData | ctypes.Structure) else ctypes.c_void_p(value.getPtr())
    return kind(int(value) if kind is ctypes.c_void_p else value)


def _address(params: Any) -> int:
    if hasattr(params, "ctypes"):
        return int(params.ctypes.data)
    return params if isinstance(params, int) else ctypes.addressof(params)


def _bytes(image: Any, from_file: bool) -> bytes:
    """The code as bytes: read from a file, given, or lying in memory where PTX ends with a NUL."""
    if from_file:
        with open(image, "rb") as file:
            return file.read()
    if isinstance(image, int):
        return b"" if ctypes.string_at(image, 4) == b"\x7fELF" else ctypes.string_at(image)
    try:
        return bytes(memoryview(image))
    except TypeError:
        return b""


def _ptx(image: bytes) -> str:
    again = nvrtc_sources.text_of(image)
    if again is not None:
        return again
    if b".version" in image[:4096]:
        return image.decode(errors="replace")
    if image:
        raise Unavailable("it was loaded as machine code that NVRTC did not make inside the profile: there is no PTX")
    raise Unavailable("it was loaded before the profile began, or from an address: its PTX is not available")


start = intercepted("cuda.bindings", lambda launches: Bindings(launches).install())
