"""What a mark costs on the GPU in use, measured by a small kernel of known work."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from warplens._cuda.arguments import pack
from warplens._cuda.driver import Driver
from warplens._cuda.module import Module
from warplens._cuda.pending import DeviceBuffer
from warplens.capture import Capture
from warplens.decode import decode
from warplens.errors import WarplensError
from warplens.record.buffer import plan
from warplens.trace.model import Trace
from warplens.trace.shift import RECORD_CYCLES, REGION_CYCLES

SHORT, LONG, ROUNDS, WARM_UP = 64, 128, 120, 20
SLOTS = 10
"""Records of one round."""

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
  out[threadIdx.x] = v;
}
"""


@dataclass(frozen=True)
class Calibration:
    """Cycles on one GPU: `region` is what a region measures beyond its work, `record` what each record inside a region
    adds to it, `empty` what a region without work measures."""

    device: str
    region: float
    record: float
    empty: float

    @property
    def cost(self) -> dict[str, float]:
        """As a launch keeps it."""
        return {REGION_CYCLES: self.region, RECORD_CYCLES: self.record}


def measure(lib: Driver, arch: str, full: str) -> Calibration:
    """Run the calibration kernel in one warp, compiled as the profiled kernels are."""
    module = Module(SOURCE, "calibrate.cu", arch, (f"-DSHORT={SHORT}", f"-DLONG={LONG}"))
    build = module.build(full)
    sizes = plan((1, 1, 1), (32, 1, 1), records=SLOTS * ROUNDS, full=full)
    lent = DeviceBuffer(lib, "calibrate", (1, 1, 1), (32, 1, 1), sizes, full=full, stream=0, names=build.names)
    out = lib.allocate(128)
    try:
        function = lib.function(build.handle, "calibrate")
        if function is None:
            raise WarplensError("the calibration kernel was compiled but cannot be found")
        arguments = pack("calibrate", (np.uint64(out), ROUNDS, np.uint64(lent.address)), lib.parameter_sizes(function))
        lib.launch(function, (1, 1, 1), (32, 1, 1), arguments, 0, 0)
        launch = lent.collect()
    finally:
        lib.free(out)
    return solve(decode(Capture([launch], device=lib.device())), lib.device().name)


def solve(trace: Trace, device: str) -> Calibration:
    """The constants that explain the medians of the calibration's regions."""
    codes, names = trace.codes("region")
    raw = {
        name: float(np.median(trace.numpy("dur_cycles")[codes == names.index(name)][WARM_UP:]))
        for name in ("short", "long", "outer", "empty")
    }
    unit = (raw["long"] - raw["short"]) / (LONG - SHORT)
    region = raw["short"] - SHORT * unit
    record = (raw["outer"] - 3 * SHORT * unit - region) / 2
    return Calibration(device, region, record, raw["empty"])
