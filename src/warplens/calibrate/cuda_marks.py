"""What a mark costs on the GPU in use, measured by a small kernel of known work."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from warplens.calibrate.known_lengths import LONG, ROUNDS, SHORT, SLOTS, Calibration, solve
from warplens.decode import decode
from warplens.driver.kernel_arguments import Shape, pack
from warplens.driver.libcuda import Driver
from warplens.errors import WarplensError
from warplens.frontends.cuda import woven_build
from warplens.frontends.cuda.module import Module
from warplens.launch.direct import DeviceBuffer
from warplens.options import Options
from warplens.record.capture import Capture
from warplens.record.launch_buffer import plan
from warplens.session import Session

SHAPE = Shape((1, 1, 1), (32, 1, 1))
STORES = {"spread": "spread", "mixed": "end", "defer": "defer", "now": "now"}
"""Where the weaver may put a kernel's stores, and how to ask for that: of loops alone, as here, `mixed` is `end`."""

SOURCE = r"""
#include <warplens.cuh>
// No constant in a register: ptxas would rebuild it inside the region.
#define FMA asm volatile("fma.rn.f32 %0, %0, %0, 0f3F000000;" : "+f"(v))
#define WORK(n) _Pragma("unroll") for (int j = 0; j < n; ++j) FMA
extern "C" __global__ void calibrate(float* out, int rounds, wl::Buffer prof) {
  wl::Kernel k(prof);
  float v = 1.0f;
#pragma unroll 1
  for (int i = 0; i < rounds; ++i) { WL_REGION("short"); WORK(SHORT); }
#pragma unroll 1
  for (int i = 0; i < rounds; ++i) { WL_REGION("long"); WORK(LONG); }
#pragma unroll 1
  for (int i = 0; i < rounds; ++i) {
    WL_REGION("outer");
    WORK(SHORT);
    { WL_REGION("inner"); WORK(SHORT); }
    WORK(SHORT);
  }
#pragma unroll 1
  for (int i = 0; i < rounds; ++i) { WL_REGION("empty"); }
#pragma unroll 1
  for (int i = 0; i < rounds; ++i) {
    WL_REGION("packed");
    { WL_REGION("packed"); { WL_REGION("packed"); } }
    { WL_REGION("packed"); }
  }
#pragma unroll 1
  for (int i = 0; i < rounds; ++i) { WL_REGION("noted"); WL_VALUE("noted", i); }
#pragma unroll 1
  for (int i = 0; i < rounds; ++i) {
    unsigned long long from, to;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(from) :: "memory");
    WORK(SHORT);
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(to) :: "memory");
    WL_VALUE("bare", to - from);
  }
  out[threadIdx.x] = v;
}
"""


def measure(lib: Driver, arch: str, full: str) -> Calibration:
    """Run the calibration kernel in one warp, compiled as kernels are whose marks the compiler sees."""
    build = _module(arch, woven=False).build(full)
    sizes = plan(SHAPE.grid, SHAPE.block, records=SLOTS * ROUNDS, full=full)
    lent = DeviceBuffer(lib, "calibrate", SHAPE.grid, SHAPE.block, sizes, full=full, stream=0, names=build.names)
    _launch(lib, build.handle, lent.address)
    return solve(decode(Capture([lent.collect()], device=lib.device())), lib.device().name)


def measure_woven(lib: Driver, arch: str, full: str) -> dict[str, Calibration]:
    """The same with its marks woven in, by where their stores are; empty where that cannot be."""
    options = Options(full=full, records_per_warp=2 * SLOTS * ROUNDS)
    module = _module(arch, woven=True)
    found: dict[str, Calibration] = {}
    for name, store in STORES.items():
        how = replace(woven_build.how_for(options, SHAPE.block), store=store)
        build = module.woven(how)
        kernel = woven_build.find_loaded(lib, build, "calibrate", "calibrate") if build is not None else None
        if build is None or kernel is None:
            return {}
        got = build.woven.stores["calibrate"]
        if got not in (name, store):
            continue  # a ring, say, holds no record back
        alone = Session(options)
        described = woven_build.woven_kernel(build, how, kernel, SHAPE, "")
        record = alone.buffers.lend(described, alone.variant("calibrate", how, SHAPE.grid), SHAPE.grid, SHAPE.stream)
        if record is None:
            return {}
        with record as pointer:
            _launch(lib, build.handle, pointer)
        launches, _ = alone.collect()
        found[name] = solve(decode(Capture(launches, device=lib.device())), lib.device().name)
    return found


def _module(arch: str, *, woven: bool) -> Module:
    return Module(SOURCE, "calibrate.cu", arch, (f"-DSHORT={SHORT}", f"-DLONG={LONG}"), woven=woven)


def _launch(lib: Driver, module: int, address: int) -> None:
    function = lib.function(module, "calibrate")
    if function is None:
        raise WarplensError("the calibration kernel was compiled but cannot be found")
    out = lib.allocate(128)
    try:
        arguments = pack("calibrate", (np.uint64(out), ROUNDS, np.uint64(address)), lib.parameter_sizes(function))
        lib.launch(function, SHAPE.grid, SHAPE.block, arguments, 0, 0)
        lib.synchronize()
    finally:
        lib.free(out)
