"""A Warp program on a driver that is not there: Warp compiles, loads and launches for real, and the interpreter runs
its kernels."""

from __future__ import annotations

import json
import sys
import tempfile
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import warp as wp

import warplens as wl
from tests.support.cpp_launches.scenarios import Machine, told
from tests.support.fake_driver import fake_driver
from warplens.frontends import nvidia_warp

N = 100


@wp.kernel
def axpy(x: wp.array(dtype=float), y: wp.array(dtype=float), a: int):
    i = wp.tid()
    y[i] = float(a) * x[i] + y[i]


class WarpMachine(Machine):
    """Kernels by the PTX that Warp's compiler gives for their module."""

    def _load(self, image: int | None, home: int, name: bytes | None) -> int:
        if name is None:
            self.text = nvidia_warp.ptx_of_module(wp.get_module(__name__), wp.get_device("cuda:0"), 256)
        return super()._load(image, home, name)


def launches(machine: WarpMachine) -> dict[str, Any]:
    space = machine.gpu.space
    places = [space.alloc(np.arange(N, dtype=np.float32)), space.alloc(np.zeros(N, np.float32))]
    results = []

    def launch() -> None:
        x, y = (wp.array(ptr=place, dtype=float, shape=N, device="cuda:0") for place in places)
        wp.launch(axpy, N, inputs=[x, y, 2], device="cuda:0")
        results.append(space.read(places[1], np.float32, N).tolist())
        space.write(places[1], np.zeros(N, np.float32))

    before = sys.argv[3] == "before"
    if before:
        launch()
    prof = wl.profile(auto="all")
    with suppress(wl.WarplensError), prof:
        launch()
        launch()
    launch()
    expected = (2 * np.arange(N, dtype=np.float32)).tolist()
    fired = [woven for _, woven, _ in machine.gpu.fired]
    return {**told(prof), "fired": fired, "right": all(result == expected for result in results)}


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as cache:
        machine = WarpMachine(fake_driver(patch), sys.argv[2])
        wp.config.kernel_cache_dir, wp.config.quiet = cache, True
        wp.config.cuda_output = "ptx"
        print(json.dumps(globals()[sys.argv[1]](machine)))
