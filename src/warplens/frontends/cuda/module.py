"""A CUDA source that is compiled on demand: with marks inside a profile, without marks outside."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from warplens import session
from warplens.driver.kernel_arguments import Shape, dim3, pack, stream_handle
from warplens.driver.libcuda import Driver, driver
from warplens.errors import UsageError, WarplensError, check_name, did_you_mean
from warplens.frontends.cuda import woven_build
from warplens.frontends.cuda.measured_cost import calibrations
from warplens.frontends.cuda.nvrtc import compile_cubin, compile_ptx, cuda_includes
from warplens.frontends.cuda.woven_build import LoadedKernel, WovenBuild
from warplens.launch.captured_graphs import CapturedCode
from warplens.launch.direct import DeviceBuffer
from warplens.launch.lent_launch import LentLaunch
from warplens.launch.woven import WovenKernel
from warplens.ptx.symbols import plain_name
from warplens.record.capture import Dim3
from warplens.record.launch_buffer import DIRECT_SPARE, SPARE, plan
from warplens.record.name_table import Names, scan
from warplens.sass.machine_code import MachineCode
from warplens.weave.weaving import ParamBuffer, Weaving

_VARIANTS = {"off": ("-DWARPLENS=0",), "stop": ("-DWARPLENS=1",), "ring": ("-DWARPLENS=1", "-DWARPLENS_RING=1")}

_LINE_INFO = {"-lineinfo", "--generate-line-info", "-G", "--device-debug"}

CAPTURED = "it is captured into a CUDA graph, and direct marks are not recorded at replays"
"""Why a kernel whose marks cannot be woven runs unmarked in a graph."""
_WOVEN_OPTIONS = ("clock", "buffer", "bytes_per_block", "store", "mode", "warps", "blocks", "sms", "granularity")
"""Options that only woven kernels support. A kernel with direct marks chooses its recording warps and lanes itself: see
wl::Kernel."""


def wanted_by(kernel: str, front_end: str = "CUDA kernels") -> session.Session | None:
    """Return the profile that records this launch, if any."""
    running = session.active()
    if running is None:
        return None
    running.options.refuse(front_end, *_WOVEN_OPTIONS)
    return running if running.wants(kernel) else None


def new_buffer(
    running: session.Session,
    kernel: str,
    grid: Dim3,
    block: Dim3,
    *,
    every_thread: bool,
    stream: int,
    names: Names | None,
    resources: Mapping[str, int] | None = None,
    code: MachineCode | None = None,
) -> int:
    """Allocate a buffer for one launch and hand it to the profile; its address is the kernel's last argument."""
    lib = driver()
    other = running.run.other_device(lib.device_index(), lib.device)
    if running.run.stalls is not None:
        running.run.stalls.enter(lib.context())
    options = running.options
    # A track per thread is never woven, and there are many of them.
    spare = DIRECT_SPARE if every_thread else SPARE
    sizes = plan(
        grid, block, records=options.records_per_warp, full=options.full, every_thread=every_thread, spare=spare
    )
    here = (other or running.device).name
    costs = {store: cost for (name, store, full), cost in calibrations.items() if (name, full) == (here, options.full)}
    buffer = DeviceBuffer(
        lib,
        kernel,
        grid,
        block,
        sizes,
        full=options.full,
        stream=stream,
        names=names,
        costs=costs,
        resources=resources,
        device=other,
        code=code,
    )
    running.add(buffer)
    return buffer.address


@dataclass
class _LoadedVariant:
    """One variant of a module, loaded on the device."""

    handle: int
    names: Names
    kernels: list[str]


class Module:
    """Compiled CUDA source. `module["gemm"]` is a kernel; a C++ kernel is found by its plain name too."""

    def __init__(self, source: str, name: str, arch: str, options: Sequence[str], *, woven: bool = False) -> None:
        self._source, self.name, self.arch, self._options = source, name, arch, tuple(options)
        self._weave = woven
        self._cubins: dict[str, bytes] = {}
        # A module is loaded into a context, and each GPU has its own.
        self._builds: dict[tuple[int, str], _LoadedVariant] = {}
        self._woven: dict[tuple[int, Weaving, bool], WovenBuild] = {}
        self._kernels: dict[str, Kernel] = {}
        self.problem = ""
        """Why the marks are not woven, if that is not what was asked for."""

    def cubin(self, variant: str = "stop") -> bytes:
        """The machine code: `stop` or `ring` with marks, `off` without."""
        check_name(f"variant {variant!r}", variant, _VARIANTS)
        if variant not in self._cubins:
            flags = self._flags((*_VARIANTS[variant], *self._line_info(variant)))
            # Of the options, an error names those that the user gave.
            shown = filter(None, ("" if variant == "off" else "marks", " ".join(self._options)))
            self._cubins[variant] = compile_cubin(self._source, self.name, self.arch, flags, " and ".join(shown))
        return self._cubins[variant]

    @functools.cached_property
    def ptx(self) -> str | None:
        """The PTX with marks for the weaver; None if the source must be compiled with direct marks."""
        if not self._weave:
            return None
        try:
            text = compile_ptx(self._source, self.name, self.arch, self._flags(woven_build.FLAGS))
        except WarplensError:
            return None  # direct marks may compile, or else the error says what is wrong with the source
        try:
            return text if woven_build.weavable(text) else None
        except Exception as problem:  # direct marks do not need the weaver
            self.problem = f"its marks are compiled, not woven: {problem}"
            return None

    def woven(self, how: Weaving, *, indirect: bool = False) -> WovenBuild | None:
        """Return the module with its marks woven in; None if that is not possible. `indirect` is for CUDA graphs."""
        lib = driver()
        key = lib.context(), how, indirect
        if self.ptx is not None and key not in self._woven:
            try:
                self._woven[key] = woven_build.load(lib, self.ptx, how, ParamBuffer(-1, indirect))
            except WarplensError as problem:
                # A driver older than NVRTC cannot load its PTX, only its machine code.
                if how.delay is not None or "PTX" not in str(problem):
                    raise
                self.ptx, self.problem = None, f"its marks are compiled, not woven: {problem}"
            except Exception as problem:  # direct marks do not need the weaver
                if how.delay is not None:
                    raise
                self.ptx, self.problem = None, f"its marks are compiled, not woven: the weaver failed: {problem!r}"
        return self._woven.get(key)

    def _line_info(self, variant: str) -> tuple[str, ...]:
        """Marked code gets a line table, by which its regions are verified; it does not change the machine code."""
        return () if variant == "off" or _LINE_INFO.intersection(self._options) else ("-lineinfo",)

    def _flags(self, variant: Sequence[str]) -> tuple[str, ...]:
        return (*variant, *cuda_includes(), *self._options)

    def regions(self) -> dict[int, str]:
        """The names of the marks in the source, by id."""
        # The cubin may not even compile where weaving works: the weaver needs no wl::Link to reach functions.
        return dict((scan(self.cubin()) if self.ptx is None else woven_build.names_in(self.ptx)).regions)

    def __getitem__(self, name: str) -> Kernel:
        if name not in self._kernels:
            compiled = self._cubins.get("off")
            if compiled is not None:
                _known_kernel(self, name, kernel_names(compiled))
            self._kernels[name] = Kernel(self, name)
        return self._kernels[name]

    def build(self, variant: str) -> _LoadedVariant:
        lib = driver()
        key = lib.context(), variant
        if key not in self._builds:
            cubin = self.cubin(variant)
            self._builds[key] = _LoadedVariant(lib.load(cubin), scan(cubin), kernel_names(cubin))
        return self._builds[key]


class Kernel:
    """A kernel of a module whose last parameter is a wl::Buffer."""

    def __init__(self, module: Module, name: str) -> None:
        self._module, self.name = module, name
        self._functions: dict[tuple[int, str], tuple[int, list[int]]] = {}
        self._woven_functions: dict[tuple[int, Weaving, bool], LoadedKernel | None] = {}

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
        shape = Shape(dim3(grid, "grid"), dim3(block, "block"), shared, stream_handle(stream))
        running, lib = session.active(), driver()

        def launch(function: int, sizes: list[int], pointer: int) -> None:
            packed = pack(self.name, (*arguments, 0), sizes)
            packed[-1] = pointer.to_bytes(8, "little")
            if shared > 48 << 10:
                lib.allow_shared(function, shared)
            lib.launch(function, shape.grid, shape.block, packed, shared, shape.stream)

        def plain() -> None:
            launch(*self._function(lib, "off"), 0)

        if running is None:
            return plain()
        described = {"grid": list(shape.grid), "block": list(shape.block), "shared_bytes": shared}
        form = (shape.grid, shape.block, shared)
        variant = running.variant(self.name, id(self._module), form, lambda: described)

        def woven(captured: bool) -> Callable[[], None] | None:
            found = None if every_thread else self._find_woven(lib, running, shape, captured)
            if found is None and captured:
                running.note(self.name, f"runs unmarked: {CAPTURED}")
                return None
            if found is None and not running.records:
                return None  # only woven marks can be delayed
            if found is None:
                if self._module.problem and running.options.strict:
                    raise WarplensError(f"{self.name}: {self._module.problem}")
                if self._module.problem:
                    running.note(self.name, self._module.problem)
                return functools.partial(launch, *self._direct(lib, running, shape, every_thread))
            kernel, described_kernel = found
            code = CapturedCode(self._module) if captured else None
            record = running.lend(described_kernel, variant, shape.grid, shape.stream, code)
            return None if record is None else functools.partial(_launch_into, record, launch, kernel)

        return running.launch(variant, shape.stream, plain, woven)

    def _find_woven(
        self, lib: Driver, running: session.Session, shape: Shape, captured: bool
    ) -> tuple[LoadedKernel, WovenKernel] | None:
        """Return the woven kernel; None if its marks are not woven."""
        if self._module.ptx is None:
            return None
        running.options.refuse("CUDA kernels", "buffer")
        how = woven_build.how_for(running.options, shape.block)
        build = self._module.woven(how, indirect=captured)
        if build is None:
            return None
        key = lib.context(), how, captured
        if key not in self._woven_functions:
            symbol = find_kernel(self.name, list(build.woven.entries))
            self._woven_functions[key] = woven_build.find_loaded(lib, build, self.name, symbol) if symbol else None
        kernel = self._woven_functions[key]
        if kernel is None:
            return None
        device = running.run.other_device(lib.device_index(), lib.device) or running.device
        return kernel, woven_build.woven_kernel(build, how, kernel, shape, device.name)

    def _direct(
        self, lib: Driver, running: session.Session, shape: Shape, every_thread: bool
    ) -> tuple[int, list[int], int]:
        """Return the function with direct marks, the sizes of its parameters and its buffer."""
        running.options.refuse("CUDA kernels", *_WOVEN_OPTIONS)
        function, sizes = self._function(lib, running.options.full)
        taken = lib.resources(function)
        build = self._module.build(running.options.full)
        symbol = find_kernel(self.name, build.kernels)
        known = {f"#{number}": name for number, name in build.names.regions.items()}
        code = MachineCode(symbol or self.name, cubin=self._module.cubin(running.options.full), names=known)
        address = new_buffer(
            running,
            self.name,
            shape.grid,
            shape.block,
            every_thread=every_thread,
            stream=shape.stream,
            names=build.names,
            resources=taken | {"shared_bytes": taken["shared_bytes"] + shape.shared},
            code=code,
        )
        return function, sizes, address

    def __getitem__(self, shape: tuple[int | Sequence[int], int | Sequence[int]]) -> Any:
        """`kernel[grid, block](*arguments)`."""
        grid, block = shape
        return lambda *arguments, **options: self.launch(grid, block, *arguments, **options)

    def _function(self, lib: Driver, variant: str) -> tuple[int, list[int]]:
        key = lib.context(), variant
        if key not in self._functions:
            build = self._module.build(variant)
            symbol = _known_kernel(self._module, self.name, build.kernels)
            handle = lib.function(build.handle, symbol)
            if handle is None:
                raise WarplensError(f"{self._module.name}: the driver finds no kernel {symbol!r} in it")
            self._functions[key] = handle, lib.parameter_sizes(handle)
        return self._functions[key]


def _launch_into(record: LentLaunch, launch: Callable[[int, list[int], int], None], kernel: LoadedKernel) -> None:
    with record as pointer:
        launch(kernel.function, kernel.sizes, pointer)


def kernel_names(cubin: bytes) -> list[str]:
    """Return the symbols of a cubin's kernels: each has its own text section."""
    found = re.findall(rb"\0\.text\.([A-Za-z0-9_$]+)\0", cubin.replace(b"\0", b"\0\0"))
    return sorted({name.decode() for name in found})


def find_kernel(name: str, symbols: Sequence[str]) -> str | None:
    """Return the symbol called `name`, or the only C++ kernel of that unqualified name."""
    if name in symbols:
        return name
    matches = [symbol for symbol in symbols if plain_name(symbol) == name]
    if len(matches) > 1:
        raise UsageError(f"{len(matches)} kernels are called {name!r}; name one by its symbol: {', '.join(matches)}")
    return matches[0] if matches else None


def _known_kernel(module: Module, name: str, symbols: Sequence[str]) -> str:
    """Return the symbol called `name` among those of a build; there must be one."""
    found = find_kernel(name, symbols)
    if found is None:
        known = {plain_name(symbol) for symbol in symbols}
        raise UsageError(f"{module.name} has no kernel {name!r}{did_you_mean(name, known)}")
    return found
