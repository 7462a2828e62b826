"""A cuTile program on a driver that is not there: cuTile compiles, loads and launches for real, and the interpreter
runs its kernels."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from typing import Any

import cuda.tile as ct
import numpy as np
import pytest

import warplens as wl
import warplens.cutile as wlt
from tests.support.cpp_launches.scenarios import Machine, told
from tests.support.fake_driver import fake_driver
from warplens.frontends.cutile.frontend import module_of
from warplens.frontends.cutile.shadow_toolkit import TileModule

N, TILE = 512, 128


@ct.kernel
def axpy(x, y, TILE: ct.Constant[int]):
    i = ct.bid(0)
    a = ct.load(x, index=(i,), shape=(TILE,))
    b = ct.load(y, index=(i,), shape=(TILE,))
    ct.store(y, index=(i,), tile=2 * a + b)


@ct.kernel
def axpy_regions(x, y, TILE: ct.Constant[int]):
    i = ct.bid(0)
    with wlt.region("load"):
        a = ct.load(x, index=(i,), shape=(TILE,))
        b = loaded(y, i, TILE)
    with wlt.region("nothing"):
        i = i + 0
    with wlt.region(TILE):
        ct.store(y, index=(i,), tile=2 * a + b)


def loaded(y, i, TILE):
    with wlt.region("load y"):
        return ct.load(y, index=(i,), shape=(TILE,))


class Floats:
    """An array at an address of the fake GPU, as libraries exchange arrays."""

    def __init__(self, address: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (N,), "typestr": "<f4", "data": (address, False), "version": 3, "strides": None,
        }  # fmt: skip


class CutileMachine(Machine):
    """Kernels by the PTX that cuTile's compiler gives for them; their code says how many threads a block has."""

    def _load(self, image: int | None, home: int, name: bytes | None) -> int:
        for kernel in (axpy, axpy_regions):
            if name is not None and name.startswith(kernel._pyfunc.__name__.encode() + b"_K"):
                self.text = module_of(kernel, name.decode(), "sm_90").ptx
        return super()._load(image, home, name)

    def _run(self, function: int, sizes: Any, stream: int, given: int, packed: int) -> int:
        assert sizes[3:6] == [1, 1, 1], "cuTile leaves the number of threads to the code"
        return super()._run(function, [*sizes[:3], 128, 1, 1, sizes[6]], stream, given, packed)


def launches(machine: CutileMachine) -> dict[str, Any]:
    space = machine.gpu.space
    places = [space.alloc(np.arange(N, dtype=np.float32)), space.alloc(np.zeros(N, np.float32))]
    results = []

    kernel, options = (axpy, {"auto": "all"}) if sys.argv[3] != "regions" else (axpy_regions, {})

    def launch() -> None:
        ct.launch(7, (N // TILE,), kernel, (*map(Floats, places), TILE))
        results.append(space.read(places[1], np.float32, N).tolist())
        space.write(places[1], np.zeros(N, np.float32))

    if sys.argv[3] == "before":
        launch()
    prof = wl.profile(**options)
    with suppress(wl.WarplensError), prof:
        launch()
        launch()
    launch()
    expected = (2 * np.arange(N, dtype=np.float32)).tolist()
    fired = [woven for _, woven, _ in machine.gpu.fired]
    return {**told(prof), "fired": fired, "right": all(result == expected for result in results)}


def assemble(module: TileModule, text: str) -> bytes:
    """The interpreter runs PTX; that it assembles with the host code of the kernel is checked."""
    machine_code = _ASSEMBLE(module, text)
    assert machine_code.startswith(b"\x7fELF")
    assert b".nv.host" in machine_code
    return text.encode() + b"\0"


_ASSEMBLE = TileModule.assemble
if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TileModule, "assemble", assemble)
        print(json.dumps(globals()[sys.argv[1]](CutileMachine(fake_driver(patch), sys.argv[2]))))
