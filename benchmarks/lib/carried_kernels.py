"""Kernels that a library compiled and launched elsewhere, as PTX with the bytes of their arguments: launched here by
cuda.bindings, on a GPU whose machine does not have the library."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.lib.stub_driver import SeenLaunch

Row = dict[str, Any]


@dataclass(frozen=True)
class CarriedKernel:
    """One launch of a kernel. `pointers` are places in arguments that take the address of an array: the number of the
    argument, the offset in it, and the number of the array."""

    name: str
    symbol: str
    text: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    arguments: tuple[str, ...]
    pointers: tuple[tuple[int, int, int], ...]
    floats: tuple[int, ...]
    """How many numbers each array has."""


class LoadedKernel:
    """A carried kernel in this GPU's context. Load it inside the profile that records it."""

    def __init__(self, carried: CarriedKernel) -> None:
        from cuda.bindings import driver

        from warplens.driver import libcuda
        from warplens.ptx.isa_version import lowered_for

        self._driver, self._carried = driver, carried
        text = lowered_for(carried.text, libcuda.driver().device().driver)
        self._module = _checked(driver.cuModuleLoadData(text.encode() + b"\0"))
        self._function = _checked(driver.cuModuleGetFunction(self._module, carried.symbol.encode()))

    def launch(self, addresses: Sequence[int]) -> None:
        """Launch it on the default stream, with arrays at these addresses."""
        one = self._carried
        cells = [bytearray.fromhex(argument) for argument in one.arguments]
        for argument, offset, array in one.pointers:
            cells[argument][offset : offset + 8] = addresses[array].to_bytes(8, "little")
        kept = [(ctypes.c_char * len(cell)).from_buffer(cell) for cell in cells]
        places = (ctypes.c_void_p * len(kept))(*map(ctypes.addressof, kept))
        given = ctypes.addressof(places)
        _checked(self._driver.cuLaunchKernel(self._function, *one.grid, *one.block, one.shared, 0, given, 0))


def _checked(made: tuple[Any, ...]) -> Any:
    status, *rest = made
    if int(status):
        raise RuntimeError(f"the driver says {status!r}")
    return rest[0] if rest else None


def carried(name: str, seen: SeenLaunch, text: str, floats: Sequence[int], bases: Sequence[int]) -> CarriedKernel:
    """A launch that a stub of the driver saw, with arrays at made-up addresses."""
    pointers = [
        (number, offset, bases.index(found))
        for number, raw in enumerate(seen.arguments)
        for offset in range(0, len(raw) - 7, 8)
        if (found := int.from_bytes(raw[offset : offset + 8], "little")) in bases
    ]
    arguments = tuple(raw.hex() for raw in seen.arguments)
    return CarriedKernel(
        name, seen.symbol, text, seen.grid, seen.block, seen.shared, arguments, tuple(pointers), tuple(floats)
    )


def write(path: Path, version: str, kernels: Sequence[CarriedKernel]) -> None:
    path.write_text(json.dumps({"version": version, "kernels": [asdict(one) for one in kernels]}))


def read(path: Path) -> tuple[str, list[CarriedKernel]]:
    """The version of the library, and its kernels."""
    document = json.loads(path.read_text())
    return document["version"], [CarriedKernel(**one) for one in document["kernels"]]


def run(path: Path, described: Callable[..., Row], recorded: int, times: int) -> Row:
    """Launch each kernel with automatic marks, and without."""
    import numpy as np
    import torch

    import warplens as wl

    version, kernels = read(path)
    torch.zeros(1, device="cuda")  # makes the context
    numbers = np.random.default_rng(0)
    first = [[torch.from_numpy(numbers.random(count, np.float32)).cuda() for count in one.floats] for one in kernels]

    def results() -> list[bytes]:
        made = []
        for one, given in zip(kernels, first, strict=True):
            kernel = LoadedKernel(one)
            arrays = [array.clone() for array in given]
            torch.cuda.synchronize()
            for _ in range(times):
                kernel.launch([array.data_ptr() for array in arrays])
            torch.cuda.synchronize()
            made.append(b"".join(array.cpu().numpy().tobytes() for array in arrays))
        return made

    plain = results()
    with wl.profile(auto=True, launches=recorded) as profile:
        marked = results()
    unchanged = [
        one.name
        for one, given, made in zip(kernels, first, plain, strict=True)
        if b"".join(array.cpu().numpy().tobytes() for array in given) == made
    ]
    if unchanged:
        raise RuntimeError(f"these kernels wrote nothing: {', '.join(unchanged)}")
    row = described(profile.trace, profile)
    return {**row, "identical": plain == marked, "version": version}
