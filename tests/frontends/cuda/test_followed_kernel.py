"""A woven kernel that is followed while it is on its stream: what is copied then is what comes home in the end."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import warplens.cuda as wlcu
from tests.support.cuda_compilers import needs_nvrtc
from tests.support.simulated_driver import SimulatedDriver, in_place
from warplens.decode import decode
from warplens.launch.followed_launch import FollowedLaunch
from warplens.launch.woven import WovenLaunch
from warplens.profiling.profile import Profile
from warplens.record.capture import Capture
from warplens.record.layout import HEADER, HEADER_BYTES
from warplens.trace.model import Trace

pytestmark = needs_nvrtc

SOURCE = """
#include <warplens.cuh>
extern "C" __global__ void work(int* out, int n, wl::Buffer prof) {
  wl::Kernel k(prof);
  int v = threadIdx.x;
  WL_REGION("loop");
  for (int i = 0; i < n; ++i) {
    { WL_REGION("step"); v = v * 3 + i; }
    WL_VALUE("i", i * (blockIdx.x + 1));
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = v;
}
"""


class SlowDriver(SimulatedDriver):
    """Says that launches have not ended before `released` is set, although they have done all their work."""

    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()
        self._streams: dict[int, int] = {}

    def mark(self, event: int, stream: int) -> None:
        self._streams[event] = stream

    def reached(self, event: int) -> bool:
        return self._streams.get(event) != 0 or self.released.is_set()

    def wait(self, event: int) -> None:
        if self._streams.get(event) == 0:
            self.released.wait()


def rows(trace: Trace) -> list[tuple[object, ...]]:
    names = ("block", "warp", "region", "kind", "depth", "start_cycle", "dur_cycles", "value")
    return sorted(zip(*(trace.spans.column(name).to_pylist() for name in names), strict=True), key=repr)


@pytest.mark.parametrize("full", ["stop", "ring"])
def test_what_is_copied_from_a_woven_kernel_is_what_comes_home(monkeypatch: pytest.MonkeyPatch, full: str) -> None:
    fake = in_place(monkeypatch, SlowDriver())
    module = wlcu.compile(SOURCE, arch="sm_90", name="k.cu")
    out = fake.allocate(4 * 2 * 64)
    with Profile(watch=600, full=full, records_per_warp=64 if full == "ring" else 512) as profile:
        try:
            module["work"].launch(2, 64, np.uint64(out), np.int32(50))
            launch = profile.run.launches_so_far()[0][0]
            assert isinstance(launch, WovenLaunch)
            header = fake.space.read(launch.address, np.uint8, HEADER_BYTES).view(HEADER)[0]
            copied = FollowedLaunch(launch).update(lambda: int(header["exit_ns"]))
            assert copied is not None
        finally:
            fake.released.set()
    found, whole = rows(decode(Capture([copied], profile.device))), rows(profile.trace)
    assert found == whole
    assert len(whole) >= (4 * 64 / 4 if full == "ring" else 4 * 101)
