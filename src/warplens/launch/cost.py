"""What automatic marks cost a launch: the records it wrote, at what one record costs on the GPU in use.

An estimate from below: marks also keep what stands on either side of them from overlapping, every warp has a header to
write, and the memory takes these bytes beside the kernel's own.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from warplens._cuda.driver import Driver, driver
from warplens.capture import Capture, Launch
from warplens.decode import decode
from warplens.errors import WarplensError
from warplens.launch.calibration import LONG, ROUNDS, SHORT, SLOTS, solve
from warplens.record.layout import HEADER, HEADER_BYTES, SLOT_BYTES, track_stride
from warplens.trace.shift import ALONE_CYCLES
from warplens.weave.marks import mark_text
from warplens.weave.options import ParamBuffer, shift_for
from warplens.weave.weaver import Woven, weave

SLOWDOWN = "slowdown"
"""Key of a launch's cost: the estimate."""
WORTH_SAYING = 1.05
_KERNEL = "warplens_calibrate"


def estimate(headers: npt.NDArray[np.void]) -> dict[str, float]:
    """What a record costs here, and how much slower that made the launch; empty where it cannot be measured."""
    costs = constants()
    exited = headers[headers["state"] != 0]
    lived = float((exited["exit_clock"].astype(np.int64) - exited["start_clock"].astype(np.int64)).sum())
    if not costs or lived <= 0:
        return dict(costs)
    spent = min(float(exited["written"].sum()) * costs[ALONE_CYCLES], 0.9 * lived)
    return {**costs, SLOWDOWN: lived / (lived - spent)}


def describe(spent: Mapping[str, float], headers: npt.NDArray[np.void]) -> str:
    """The estimate in words, with what makes it smaller."""
    records = float(headers["written"].mean())
    return (
        f"marks slow it down by an estimated {spent[SLOWDOWN]:.2f}x or more: {records:,.0f} records per warp at "
        f"{spent[ALONE_CYCLES]:.0f} cycles each; fewer classes cost less, launches= bounds how often"
    )


@functools.cache
def constants() -> Mapping[str, float]:
    """The cost of a woven region and of a woven record on this GPU, measured once; empty without a GPU."""
    try:
        return _measure(driver())
    except WarplensError:
        return {}


def _measure(lib: Driver) -> dict[str, float]:
    woven = weave(source(), buffer=ParamBuffer(-1))
    shift = shift_for(SLOTS * ROUNDS, "stop", woven.slack)
    size = 1 << shift
    allocation = lib.allocate(2 * size + SLOT_BYTES)
    try:
        address = -(-allocation // size) * size
        lib.clear(allocation, 2 * size, 0)
        function = lib.function(lib.load(woven.text.encode() + b"\0"), _KERNEL)
        if function is None:
            raise WarplensError("the calibration kernel cannot be found")
        # The kernel's own result goes behind the buffer, wherever the track lies in it.
        arguments = [struct.pack("<Q", allocation + 2 * size), struct.pack("<Q", address | shift)]
        lib.launch(function, (1, 1, 1), (32, 1, 1), arguments, 0, 0)
        lib.synchronize()
        launch = _launch(woven, lib.download(address, size))
    finally:
        lib.free(allocation)
    trace = decode(Capture([launch], device=lib.device()))
    return solve(trace, lib.device().name).cost


def _launch(woven: Woven, track: bytes) -> Launch:
    written = int(np.frombuffer(track, HEADER, 1)["written"][0])
    raw = np.zeros(track_stride(written), np.uint8)
    used = HEADER_BYTES + written * SLOT_BYTES
    raw[:used] = np.frombuffer(track, np.uint8, used)
    return Launch(_KERNEL, (1, 1, 1), (32, 1, 1), woven.regions, written, raw)


def source() -> str:
    """Chains of dependent fmas of known length in regions, as PTX with marks."""

    def mark(letter: str, name: str) -> str:
        return f"\t// {mark_text(letter, name)}"

    def work(count: int) -> list[str]:
        return ["\tfma.rn.f32 %f1, %f1, %f1, 0f3F000000;"] * count

    bodies = {
        "short": [mark("B", "short"), *work(SHORT), mark("E", "short")],
        "long": [mark("B", "long"), *work(LONG), mark("E", "long")],
        "outer": [
            mark("B", "outer"), *work(SHORT), mark("B", "inner"), *work(SHORT), mark("E", "inner"), *work(SHORT),
            mark("E", "outer"),
        ],
        "empty": [mark("B", "empty"), mark("E", "empty")],
    }  # fmt: skip
    lines = []
    for name, body in bodies.items():
        # Unrolled, the loops would not fit the instruction cache.
        lines += ["\tmov.u32 %r1, 0;", f"$L_{name}:", '\t.pragma "nounroll";', *body, "\tadd.u32 %r1, %r1, 1;"]
        lines += [f"\tsetp.lt.u32 %p1, %r1, {ROUNDS};", f"\t@%p1 bra $L_{name};"]
    return "\n".join(
        [
            ".version 7.0\n.target sm_70\n.address_size 64",
            f".visible .entry {_KERNEL}(.param .u64 out, .param .u64 prof)\n.reqntid 32\n{{",
            "\t.reg .pred %p<2>; .reg .b32 %r<2>; .reg .f32 %f<2>; .reg .b64 %rd<2>;",
            "\tld.param.u64 %rd1, [out];\n\tmov.f32 %f1, 0f3F800000;",
            *lines,
            "\tst.global.f32 [%rd1], %f1;\n\tret;\n}\n",
        ]
    )
