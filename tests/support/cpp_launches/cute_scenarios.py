"""CuTe DSL functions that are called through TVM-FFI: the DSL and TVM-FFI are real, only its runtime library and the
driver are not."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

os.environ["CUTE_DSL_LIBS"] = str(Path(sys.argv[2]).parent / "cute_runtime.so")

# The DSL reads the architecture that this sets when it is imported.
from tests.support.cute_gpu import compile_cute

# isort: split
from cutlass import cute

import warplens as wl
from tests.support.cpp_launches.scenarios import Machine, told
from tests.support.cute_auto_kernels import N, Shift, pointer
from tests.support.cute_inert_kernels import Scale
from tests.support.fake_driver import fake_driver
from warplens.driver.call_hooks import call_hooks
from warplens.frontends.cute import automatic
from warplens.frontends.cute.ptx_keeper import keep_marked_ptx
from warplens.ptx import tree

COUNT = 200


class CuteMachine(Machine):
    """Kernels by the PTX that the DSL kept of them."""

    texts: dict[str, str]

    def _load(self, image: int | None, home: int, name: bytes | None) -> int:
        if name is None:
            return super()._load(image, home, name)
        return self.gpu.plain(self.texts[name.decode()], name.decode())


class Program:
    """A function with two kernels, its data, and what each call left."""

    def __init__(self, machine: CuteMachine) -> None:
        self.machine, self.space = machine, machine.gpu.space
        self.x = self.space.alloc(np.linspace(0, 1, N, dtype=np.float32))
        self.y = self.space.alloc(np.zeros(N, np.float32))
        self.given, self.results = (pointer(self.x), pointer(self.y), COUNT), list[bytes]()
        plain = compile_cute(Shift(3.0), *self.given)
        machine.texts = {entry.name: plain.__ptx__ for entry in tree.parse(plain.__ptx__).entries}

    def compile(self) -> Any:
        return cute.compile(Shift(3.0), *self.given, options="--enable-tvm-ffi")

    def call(self, function: Any) -> None:
        function(self.x, self.y, COUNT)
        self.results.append(self.space.read(self.y, np.uint8, 4 * N).tobytes())
        self.space.write(self.y, np.zeros(N, np.float32))
        expected = np.linspace(0, 1, N, dtype=np.float32) * 2 + 3
        assert np.array_equal(np.frombuffer(self.results[-1], np.float32)[:COUNT], expected[:COUNT])

    def told(self, prof: Any) -> dict[str, Any]:
        fired = [(symbol, woven) for symbol, woven, _ in self.machine.gpu.fired]
        return {**told(prof), "fired": fired, "identical": len(set(self.results)) == 1}


def tvm_ffi(machine: CuteMachine) -> dict[str, Any]:
    program = Program(machine)
    program.call(program.compile())
    with wl.profile(auto="all", launches=None) as prof:
        inside = program.compile()
        program.call(inside)
        program.call(inside)
    program.call(inside)
    return {**program.told(prof), "kind": type(inside).__name__}


def tvm_ffi_unseen(machine: CuteMachine) -> dict[str, Any]:
    program, prof = Program(machine), wl.profile(auto="all")
    with suppress(wl.WarplensError), prof:
        program.call(program.compile())
    return program.told(prof)


def tvm_ffi_before(machine: CuteMachine) -> dict[str, Any]:
    program, prof = Program(machine), wl.profile(auto="all")
    keep_marked_ptx()()  # as if the program had not imported `warplens.cute`, which gives machine code its lines
    call_hooks()
    function = program.compile()
    with suppress(wl.WarplensError), prof:
        program.call(function)
    return program.told(prof)


def tvm_ffi_by_hand(machine: CuteMachine) -> dict[str, Any]:
    """Marks by hand without automatic ones: compiled and called before the profile, or compiled inside it."""
    program = Program(machine)
    y = program.y
    texts = {}
    for marked in (True, False):
        kept = compile_cute(Scale(marked), pointer(y), 1)
        texts[marked] = {entry.name: kept.__ptx__ for entry in tree.parse(kept.__ptx__).entries}
    results = []

    def call(function: Any, marked: bool) -> None:
        machine.texts = texts[marked]
        program.space.write(y, np.ones(N, np.float32))
        function(y, 1)
        results.append(program.space.read(y, np.uint8, 4 * N).tobytes())

    def compile(marked: bool) -> Any:
        return cute.compile(Scale(marked), pointer(y), 1, options="--enable-tvm-ffi")

    before = compile(True)
    call(before, True)
    with wl.profile(launches=None) as prof:
        call(before, True)
        call(compile(True), True)
    call(before, True)
    program.results[:] = results
    return program.told(prof)


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        fake = fake_driver(patch)
        patch.setattr(automatic, "driver", lambda: fake)
        print(json.dumps(globals()[sys.argv[1]](CuteMachine(fake, sys.argv[2]))))
