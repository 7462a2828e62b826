"""CUDA source that warplens compiles itself: marks stay comments until the compiler is done, then they are woven in.

Woven marks disturb a kernel less than marks that the compiler sees, and support more options. Source that cannot be
woven (another leader than lane 0, the header of another tool) is compiled with direct marks instead.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from warplens.driver.kernel_arguments import Shape
from warplens.driver.libcuda import Driver
from warplens.frontends.cuda.measured_cost import calibrations
from warplens.launch.assembled_code import assembled
from warplens.launch.weaving_options import weaving
from warplens.launch.woven import WovenKernel
from warplens.options import Options
from warplens.ptx.tree import Declaration, PtxModule, parse
from warplens.record.capture import Dim3
from warplens.record.name_table import Names, scan
from warplens.weave.direct_only import why_direct
from warplens.weave.fit.module_fit import fit_module
from warplens.weave.fit.resources import Resources
from warplens.weave.weaver import Woven
from warplens.weave.weaving import AnyBuffer, ParamBuffer, Weaving

FLAGS = ("-DWARPLENS=1", "-DWARPLENS_WOVEN=1")


@dataclass(frozen=True)
class WovenBuild:
    """A woven module, loaded on the device."""

    handle: int
    woven: Woven
    regions: Mapping[int, str]
    locations: Mapping[int, str]
    plain: Mapping[str, int] = field(default_factory=dict)
    """Registers of its kernels without marks, if they were measured."""


def weavable(text: str) -> bool:
    """Return whether this PTX has marks, all of which can be woven."""
    return "@warplens " in text and not why_direct(parse(text))


def how_for(options: Options, block: Dim3) -> Weaving:
    """Return the weaving for a launch: in blocks of whole warps, the lanes of a warp share its stores."""
    how = weaving(options)
    aligned = block[0] % 32 == 0
    return replace(how, store="spread", aligned=True) if aligned and how.store == "auto" else how


@dataclass(frozen=True)
class DriverJit:
    """The driver's compiler, which assembles PTX when a module is linked or loaded."""

    lib: Driver

    def assemble(self, text: str) -> int:
        return self.lib.load(assembled(self.lib, text))

    def resources(self, build: int, kernels: Collection[str]) -> Mapping[str, Resources]:
        functions = {entry: self.lib.function(build, entry) for entry in kernels}
        return {
            name: Resources.from_driver(self.lib.resources(function))
            for name, function in functions.items()
            if function is not None
        }

    def discard(self, build: int) -> None:
        self.lib.unload(build)


def load(lib: Driver, text: str, how: Weaving, buffer: AnyBuffer | None = None) -> WovenBuild:
    """Weave the PTX and load it. The buffer is the kernels' last parameter unless it is named."""
    names = names_in(text)
    if how.delay is not None:
        # In this text, regions go by their numbers.
        number = next((key for key, name in names.regions.items() if name == how.delay), how.delay)
        how = replace(how, delay=f"#{number}")
    made = fit_module(DriverJit(lib), parse(text), buffer or ParamBuffer(-1), how)
    ids = {number: int(name.lstrip("#")) for number, name in made.woven.regions.items()}
    return WovenBuild(
        made.build,
        made.woven,
        {number: names.regions[key] for number, key in ids.items()},
        {number: names.locations[key] for number, key in ids.items() if key in names.locations},
        made.plain,
    )


@dataclass(frozen=True)
class LoadedKernel:
    """A loaded kernel of a woven module: its names, the sizes of its parameters, and the resources it takes."""

    name: str
    symbol: str
    function: int
    sizes: list[int]
    resources: Mapping[str, int]


def find_loaded(lib: Driver, build: WovenBuild, name: str, symbol: str) -> LoadedKernel | None:
    """Return the kernel `symbol` of a module; None if it has none."""
    function = lib.function(build.handle, symbol)
    if function is None:
        return None
    return LoadedKernel(name, symbol, function, lib.parameter_sizes(function), lib.resources(function))


def woven_kernel(build: WovenBuild, how: Weaving, kernel: LoadedKernel, shape: Shape, device: str) -> WovenKernel:
    """Return what a launch must know of a kernel; `device` is the name of the GPU, which calibrations go by."""
    store = build.woven.stores[kernel.symbol]
    return WovenKernel.of(
        build.woven,
        kernel.symbol,
        threads=math.prod(shape.block),
        name=kernel.name,
        regions=build.regions,
        locations=build.locations,
        select=how.select,
        block=shape.block,
        cost=calibrations.get((device, store, how.full), {}) if how.clock == "32" else {},
        resources={
            "registers": kernel.resources["registers"],
            "local_bytes": kernel.resources["local_bytes"],
            **({"registers_plain": build.plain[kernel.symbol]} if kernel.symbol in build.plain else {}),
            "shared_bytes_kernel": kernel.resources["shared_bytes"] + shape.shared,
        },
    )


@functools.lru_cache(maxsize=16)
def names_in(text: str) -> Names:
    """Read the names of the marks, which are bytes in the module's constants."""
    return scan(b"".join(_constants(parse(text))))


def _constants(module: PtxModule) -> list[bytes]:
    found = []
    for item in module.items:
        if isinstance(item, Declaration) and item.space == "const" and item.type in ("b8", "u8"):
            for variable in item.variables:
                numbers = [int(n) for n in re.findall(r"\d+", variable.initialiser or "")]
                found.append(bytes(numbers).ljust(item.size(variable), b"\0"))
    return found
