"""A TileLang program on a driver that is not there: TileLang compiles, loads and launches for real, and the interpreter
runs its kernels."""

from __future__ import annotations

import ctypes
import json
import sys
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import tilelang
import tilelang.language as T

import warplens as wl
import warplens.tilelang as wlt
from tests.support.cpp_launches.scenarios import Machine, told
from tests.support.fake_driver import fake_driver
from warplens.frontends.tilelang.generated_source import ptx_of_kernel

N = 256


def axpy(factor: float, *, marked: bool) -> Any:
    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(N // 64, threads=64) as bx:
            with wlt.region("compute") if marked else wlt.region("other"):
                for i in T.Parallel(64):
                    Y[bx * 64 + i] = factor * X[bx * 64 + i] + Y[bx * 64 + i]

    return main


class _Tensor(ctypes.Structure):
    """DLManagedTensor of one dimension of floats, on the first GPU."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("dimensions", ctypes.c_int32),
        ("dtype", ctypes.c_uint32), ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.c_void_p),
        ("offset", ctypes.c_uint64), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
    )  # fmt: skip


class Floats:
    """An array at an address of the fake GPU, as libraries exchange arrays."""

    def __init__(self, address: int) -> None:
        self.shape = (ctypes.c_int64 * 1)(N)
        self.tensor = _Tensor(address, (2, 0), 1, 2 | 32 << 8 | 1 << 16, self.shape, None, 0, None, None)

    def __dlpack__(self, **_: Any) -> Any:
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return make(ctypes.addressof(self.tensor), b"dltensor", None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


class TileMachine(Machine):
    """Kernels by the PTX that TileLang's compiler gives for the kernel that is called."""

    current: Any = None

    def _load(self, image: int | None, home: int, name: bytes | None) -> int:
        if name is None:
            self.text = ptx_of_kernel(self.current, lambda text: None)
        return super()._load(image, home, name)


def compiled(factor: float, *, marked: bool = True) -> Any:
    return tilelang.compile(axpy(factor, marked=marked), target={"kind": "cuda", "arch": "sm_90"})


class Program:
    """Calls kernels, and checks what they compute."""

    def __init__(self, machine: TileMachine) -> None:
        self.machine, self.space, self.right = machine, machine.gpu.space, True
        self.places = [self.space.alloc(np.arange(N, dtype=np.float32)), self.space.alloc(np.zeros(N, np.float32))]

    def call(self, kernel: Any, factor: float) -> None:
        self.machine.current = kernel
        kernel(*map(Floats, self.places))
        result = self.space.read(self.places[1], np.float32, N)
        self.right &= np.array_equal(result, np.float32(factor) * np.arange(N, dtype=np.float32))
        self.space.write(self.places[1], np.zeros(N, np.float32))

    def told(self, prof: Any) -> dict[str, Any]:
        return {**told(prof), "fired": [woven for _, woven, _ in self.machine.gpu.fired], "right": bool(self.right)}


def launches(machine: TileMachine) -> dict[str, Any]:
    """Two kernels of one name, one of them launched before the profile begins; with rules, or marked by hand alone."""
    program, first = Program(machine), compiled(2.0)
    if sys.argv[3] == "before":
        program.call(first, 2.0)
    prof = wl.profile(auto="all") if sys.argv[4] == "auto" else wl.profile()
    with suppress(wl.WarplensError), prof:
        program.call(first, 2.0)
        program.call(compiled(3.0), 3.0)
    program.call(first, 2.0)
    return program.told(prof)


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        print(json.dumps(globals()[sys.argv[1]](TileMachine(fake_driver(patch), sys.argv[2]))))
