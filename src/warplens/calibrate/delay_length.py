"""How long a woven delay really takes on the GPU in use: the loop ends with a whole turn, so it takes a little more."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from warplens.driver import libcuda
from warplens.errors import WarplensError
from warplens.weave.delay import REGISTERS, probe

REPEATS = 64
"""Delays of each length that are measured, one after the other in one warp."""


def measured_delays(delays: Iterable[int]) -> dict[int, float]:
    """The mean length in cycles of each delay; what was asked for where it cannot be measured."""
    asked = sorted({delay for delay in delays if delay})
    nominal = {delay: float(delay) for delay in asked}
    try:
        lengths = _measure([0, *asked])
    except WarplensError:
        return nominal
    if lengths is None:
        return nominal
    # A delay that a clock change or a broken measurement made much shorter or longer says nothing.
    found = {delay: lengths[delay] - lengths[0] for delay in asked}
    return {delay: one if delay <= one <= 2 * delay + 200 else nominal[delay] for delay, one in found.items()}


def _measure(delays: list[int]) -> dict[int, float] | None:
    lib = libcuda.driver()
    module = lib.load(PROBED.encode() + b"\0")
    function = lib.function(module, "warplens_delay")
    if function is None:
        return None
    out, stream = lib.allocate(8), lib.stream()
    try:
        lengths = {}
        for delay in [delays[-1], *delays]:  # the first launch loads the code
            arguments = [out.to_bytes(8, "little"), delay.to_bytes(8, "little")]
            lib.launch(function, (1, 1, 1), (32, 1, 1), arguments, 0, stream)
            lib.synchronize_stream(stream)
            lengths[delay] = float(np.frombuffer(lib.download(out, 8), np.uint64)[0]) / REPEATS
        return lengths
    finally:
        lib.free(out)
        lib.destroy_stream(stream)
        lib.unload(module)


PROBED = f"""\
.version 7.0
.target sm_70
.address_size 64
.visible .entry warplens_delay(.param .u64 out, .param .u64 delay) {{
	.reg .pred %p<3>; .reg .b32 %r<4>; .reg .b64 %rd<9>;
{REGISTERS}
	ld.param.u64 %rd1, [out];
	mov.u64 %rd2, 0; mov.u32 %r1, 0;
$L_again:
	mov.u64 %rd3, %clock64;
{probe("ld.param.b64 %wl_b, [delay];", "probed")}
	mov.u64 %rd4, %clock64;
	sub.u64 %rd5, %rd4, %rd3; add.u64 %rd2, %rd2, %rd5;
	add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, {REPEATS};
	@%p1 bra $L_again;
	mov.u32 %r2, %tid.x; setp.eq.u32 %p2, %r2, 0;
	@%p2 st.global.u64 [%rd1], %rd2;
	ret;
}}
"""
