"""A CUDA source compiled as it is needed: recording inside a profile, without marks outside."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from warplens import session
from warplens._cuda.arguments import dim3, pack, stream_handle
from warplens._cuda.driver import Driver, driver
from warplens._cuda.nvrtc import compile_cubin, cuda_include
from warplens._cuda.pending import DeviceBuffer
from warplens.capture import Dim3
from warplens.errors import UsageError, did_you_mean
from warplens.record.buffer import plan
from warplens.record.names import Names, scan
from warplens.weave.symbols import plain_name

_VARIANTS = {"off": ("-DWARPLENS=0",), "stop": ("-DWARPLENS=1",), "ring": ("-DWARPLENS=1", "-DWARPLENS_RING=1")}


calibrations: dict[tuple[str, str], dict[str, float]] = {}
"""What marks cost, by device and by what happens when a track is full; see `warplens.cuda.calibrate`."""


_ELSEWHERE = ("clock", "buffer", "bytes_per_block", "store", "warps", "blocks", "sms", "granularity")
"""Options of woven kernels. A CUDA kernel chooses its recording warps and lanes itself: see wl::Kernel."""


def wanted_by(kernel: str, front_end: str = "CUDA kernels") -> session.Profile | None:
    """The profile that wants records of this launch, if any."""
    profile = session.active()
    if profile is None:
        return None
    profile.options.refuse(front_end, *_ELSEWHERE)
    return profile if profile.wants(kernel) else None


def new_buffer(
    profile: session.Profile,
    kernel: str,
    grid: Dim3,
    block: Dim3,
    *,
    every_thread: bool,
    stream: int,
    names: Names | None,
    resources: Mapping[str, int] | None = None,
) -> int:
    """A buffer for one launch, handed to the profile; its address is the kernel's last argument."""
    lib = driver()
    if profile.device.name == "unknown":
        profile.device = lib.device()
    options = profile.options
    sizes = plan(grid, block, records=options.records_per_warp, full=options.full, every_thread=every_thread)
    known = calibrations.get((profile.device.name, options.full), {})
    buffer = DeviceBuffer(
        lib,
        kernel,
        grid,
        block,
        sizes,
        full=options.full,
        stream=stream,
        names=names,
        cost=known,
        resources=resources,
    )
    profile.add(buffer)
    return buffer.address


@dataclass
class _Build:
    handle: int
    names: Names
    kernels: list[str]


class Module:
    """Compiled CUDA source. `module["gemm"]` is a kernel; a C++ kernel is found by its plain name too."""

    def __init__(self, source: str, name: str, arch: str, options: Sequence[str]) -> None:
        self._source, self.name, self.arch, self._options = source, name, arch, tuple(options)
        self._cubins: dict[str, bytes] = {}
        self._builds: dict[str, _Build] = {}

    def cubin(self, variant: str = "stop") -> bytes:
        """The machine code: `stop` or `ring` with marks, `off` without."""
        if variant not in _VARIANTS:
            raise UsageError(f"variant {variant!r}{did_you_mean(variant, _VARIANTS)}")
        if variant not in self._cubins:
            toolkit = cuda_include()
            paths = [f"--include-path={toolkit}"] if toolkit else []
            options = (*_VARIANTS[variant], *paths, *self._options)
            self._cubins[variant] = compile_cubin(self._source, self.name, self.arch, options)
        return self._cubins[variant]

    def regions(self) -> dict[int, str]:
        """The names of the marks in the source, by id."""
        return dict(scan(self.cubin()).regions)

    def __getitem__(self, name: str) -> Kernel:
        return Kernel(self, name)

    def build(self, variant: str) -> _Build:
        if variant not in self._builds:
            cubin = self.cubin(variant)
            self._builds[variant] = _Build(driver().load(cubin), scan(cubin), kernel_names(cubin))
        return self._builds[variant]


class Kernel:
    """A kernel of a module whose last parameter is a wl::Buffer."""

    def __init__(self, module: Module, name: str) -> None:
        self._module, self.name = module, name
        self._functions: dict[str, tuple[int, list[int]]] = {}

    def launch(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        *arguments: Any,
        shared: int = 0,
        stream: Any = 0,
        every_thread: bool = False,
    ) -> None:
        """Launch with `arguments`; the buffer is added. Nothing waits for the GPU."""
        blocks, threads, handle = dim3(grid, "grid"), dim3(block, "block"), stream_handle(stream)
        profile = wanted_by(self.name)
        variant = profile.options.full if profile is not None else "off"
        lib = driver()
        function, sizes = self._function(lib, variant)
        packed = pack(self.name, (*arguments, 0), sizes)
        if profile is not None:
            names = self._module.build(variant).names
            taken = lib.resources(function)
            address = new_buffer(
                profile,
                self.name,
                blocks,
                threads,
                every_thread=every_thread,
                stream=handle,
                names=names,
                resources=taken | {"shared_bytes": taken["shared_bytes"] + shared},
            )
            packed[-1] = address.to_bytes(8, "little")
        if shared > 48 << 10:
            lib.allow_shared(function, shared)
        lib.launch(function, blocks, threads, packed, shared, handle)

    def __getitem__(self, shape: tuple[int | Sequence[int], int | Sequence[int]]) -> Any:
        """`kernel[grid, block](*arguments)`."""
        grid, block = shape
        return lambda *arguments, **options: self.launch(grid, block, *arguments, **options)

    def _function(self, lib: Driver, variant: str) -> tuple[int, list[int]]:
        if variant not in self._functions:
            build = self._module.build(variant)
            symbol = find_kernel(self.name, build.kernels)
            handle = lib.function(build.handle, symbol) if symbol else None
            if handle is None:
                known = sorted({plain_name(kernel) for kernel in build.kernels})
                raise UsageError(f"{self._module.name} has no kernel {self.name!r}{did_you_mean(self.name, known)}")
            self._functions[variant] = handle, lib.parameter_sizes(handle)
        return self._functions[variant]


def kernel_names(cubin: bytes) -> list[str]:
    """The symbols of a cubin's kernels: each has its own text section."""
    found = re.findall(rb"\0\.text\.([A-Za-z0-9_$]+)\0", cubin.replace(b"\0", b"\0\0"))
    return sorted({name.decode() for name in found})


def find_kernel(name: str, symbols: Sequence[str]) -> str | None:
    """The symbol called `name`, or the one C++ kernel of that unqualified name."""
    if name in symbols:
        return name
    matches = [symbol for symbol in symbols if plain_name(symbol) == name]
    if len(matches) > 1:
        raise UsageError(f"{len(matches)} kernels are called {name!r}; name one by its symbol: {', '.join(matches)}")
    return matches[0] if matches else None
