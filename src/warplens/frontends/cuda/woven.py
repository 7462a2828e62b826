"""CUDA source that warplens compiles itself: marks stay comments until the compiler is done, then they are woven in.

That disturbs a kernel less than marks the compiler sees, and takes the options that only woven kernels know. What the
weaver cannot do (another leader than lane 0, a header of another tool) is compiled the direct way instead.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from warplens.driver.kernel_arguments import Shape
from warplens.driver.libcuda import Driver
from warplens.frontends.cuda.module import calibrations
from warplens.launch.buffers import Buffers
from warplens.launch.memory import DriverMemory
from warplens.launch.recording import weaving
from warplens.launch.woven import WovenKernel
from warplens.options import Options
from warplens.ptx.tree import Declaration, PtxModule, parse
from warplens.record.capture import Dim3
from warplens.record.name_table import Names, scan
from warplens.session import Profile
from warplens.weave.direct_only import why_direct
from warplens.weave.fit.module_fit import Taken, fitted
from warplens.weave.weaver import Woven
from warplens.weave.weaving import AnyBuffer, ParamBuffer, Weaving

FLAGS = ("-DWARPLENS=1", "-DWARPLENS_WOVEN=1")


@dataclass(frozen=True)
class WovenBuild:
    """A woven module on the device."""

    handle: int
    woven: Woven
    regions: Mapping[int, str]
    locations: Mapping[int, str]
    plain: Mapping[str, int] = field(default_factory=dict)
    """Registers of its kernels without marks, where they were looked at."""


def weavable(text: str) -> bool:
    """Whether the weaver can do all that this PTX asks for."""
    return "@warplens " in text and not why_direct(text)


def how_for(options: Options, block: Dim3) -> Weaving:
    """The weaving for a launch: where warps are whole, their lanes share the stores."""
    how = weaving(options)
    aligned = block[0] % 32 == 0
    return replace(how, store="spread", aligned=True) if aligned and how.store == "auto" else how


@dataclass(frozen=True)
class _InDriver:
    """The driver as what assembles a module: it compiles PTX when that is loaded."""

    lib: Driver

    def assemble(self, text: str) -> int:
        return self.lib.load(text.encode() + b"\0")

    def taken(self, build: int, kernels: Mapping[str, int]) -> Taken:
        functions = {entry: self.lib.function(build, entry) for entry in kernels}
        return {name: self.lib.resources(function) for name, function in functions.items() if function is not None}

    def drop(self, build: int) -> None:
        self.lib.unload(build)


def load(lib: Driver, text: str, how: Weaving, buffer: AnyBuffer | None = None) -> WovenBuild:
    """Weave the PTX and let the driver assemble it. The buffer is the kernels' last parameter unless it is named."""
    made = fitted(_InDriver(lib), text, buffer or ParamBuffer(-1), how)
    names = names_in(text)
    ids = {number: int(name.lstrip("#")) for number, name in made.woven.regions.items()}
    return WovenBuild(
        made.build,
        made.woven,
        {number: names.regions[key] for number, key in ids.items()},
        {number: names.locations[key] for number, key in ids.items() if key in names.locations},
        made.plain,
    )


@dataclass(frozen=True)
class Loaded:
    """A kernel of a woven module on the device: its names, its parameters' sizes, and what the driver says it takes."""

    name: str
    symbol: str
    function: int
    sizes: list[int]
    taken: Mapping[str, int]


def loaded(lib: Driver, build: WovenBuild, name: str, symbol: str) -> Loaded | None:
    """The kernel `symbol` of the module; None where it has none."""
    function = lib.function(build.handle, symbol)
    if function is None:
        return None
    return Loaded(name, symbol, function, lib.parameter_sizes(function), lib.resources(function))


def lend(profile: Profile, build: WovenBuild, how: Weaving, kernel: Loaded, shape: Shape) -> int:
    """A buffer for one launch, as the kernel takes it; 0 where nothing of it is to be recorded."""
    buffers = _buffers(profile)
    device = buffers.memory.describe(profile) or profile.device
    threads = build.woven.threads.get(kernel.symbol, math.prod(shape.block))
    store = build.woven.stores[kernel.symbol]
    woven = WovenKernel(
        kernel.name, -(-threads // 32), 1, dict(build.regions), dict(build.locations), build.woven.slack,
        build.woven.full, store, how.select, block=shape.block,
        cost=calibrations.get((device.name, store, how.full), {}) if how.clock == "32" else {},
        resources={
            "registers": kernel.taken["registers"],
            **({"registers_plain": build.plain[kernel.symbol]} if kernel.symbol in build.plain else {}),
            "shared_bytes_kernel": kernel.taken["shared_bytes"] + shape.shared,
        },
    )  # fmt: skip
    return buffers.lend(woven, shape.grid, shape.stream)


def _buffers(profile: Profile) -> Buffers:
    found: Buffers = profile.kept.setdefault("cuda", Buffers(profile, DriverMemory()))
    return found


@functools.lru_cache(maxsize=16)
def names_in(text: str) -> Names:
    """The names of the marks, which lie in the module's constants as bytes."""
    return scan(b"".join(_constants(parse(text))))


def _constants(module: PtxModule) -> list[bytes]:
    found = []
    for item in module.items:
        if isinstance(item, Declaration) and item.space == "const" and item.type in ("b8", "u8"):
            for variable in item.variables:
                numbers = [int(n) for n in re.findall(r"\d+", variable.initialiser or "")]
                found.append(bytes(numbers).ljust(item.size(variable), b"\0"))
    return found
