"""What automatic marks cost a launch: the records it wrote, at what one record costs on the GPU in use.

A record costs its warp some cycles where nothing hides them, and its SM some cycles however many warps share it: few
warps pay the former, many the latter. Both are measured on the device. What they cannot tell: a memory-bound kernel may
hide its records behind its loads, and a mark that waits for a value takes away what the kernel overlapped there.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from warplens.calibrate.known_lengths import LONG, ROUNDS, SHORT, SLOTS, solve
from warplens.decode import decode
from warplens.driver.libcuda import Driver, driver
from warplens.errors import WarplensError
from warplens.launch.block_sampler import headers_of
from warplens.launch.record_load import by_sm, estimate_slowdown
from warplens.record.aggregate_rows import AGGREGATE
from warplens.record.capture import AUTOMATIC, Capture, Launch
from warplens.record.cost_keys import ALONE_CYCLES, SLOWDOWN, SLOWDOWN_MEASURED
from warplens.record.layout import HEADER, HEADER_BYTES, SLOT_BYTES, track_stride
from warplens.weave.mark_comments import mark_text
from warplens.weave.weaver import Woven, weave
from warplens.weave.weaving import ParamBuffer, shift_for

CROWDED = "record_crowded_cycles"
"""Key of a launch's cost: the cycles in which a full SM takes one record."""
WORTH_SAYING = 1.05
CROWD = 32
"""Warps that share an SM when a crowded record is measured."""
AFTER = 6
"""Slots that the values behind the regions take in a round, beside those of `SLOTS`."""
_KERNEL = "warplens_calibrate"


def with_estimates(launches: Sequence[Launch], note: Callable[[str, str], None]) -> list[Launch]:
    """Add the estimated slowdown to launches with automatic marks; note it once per kernel if it was not measured."""
    noted: set[str] = set()
    estimated = []
    for launch in launches:
        if launch.extra.get(AUTOMATIC) and AGGREGATE not in launch.extra:
            headers = headers_of(launch)
            spent = {**launch.cost, **estimate(headers)}
            told = launch.kernel in noted or SLOWDOWN_MEASURED in spent
            if not told and spent.get(SLOWDOWN, 1.0) > WORTH_SAYING:
                note(launch.kernel, describe(spent, headers))
            noted.add(launch.kernel)
            launch = launch.noting(cost=spent)
        estimated.append(launch)
    return estimated


def estimate(headers: npt.NDArray[np.void]) -> dict[str, float]:
    """What a record costs here, and how much slower that made the launch; empty where it cannot be measured."""
    costs = constants()
    if not costs:
        return {}
    slowdown = estimate_slowdown(headers, costs[ALONE_CYCLES], costs.get(CROWDED, 0.0))
    return dict(costs) if slowdown is None else {**costs, SLOWDOWN: slowdown}


def describe(spent: Mapping[str, float], headers: npt.NDArray[np.void]) -> str:
    """The estimate in words, with what makes it smaller."""
    records = float(headers["written"].mean())
    crowded = f", {spent[CROWDED]:.1f} cycles of its SM's" if CROWDED in spent else ""
    return (
        f"marks slow it down by an estimated {spent[SLOWDOWN]:.2f}x: {records:,.0f} records per warp at "
        f"{spent[ALONE_CYCLES]:.0f} cycles of the warp's time each{crowded}; fewer classes cost less, launches= bounds "
        "how often"
    )


@functools.cache
def constants() -> Mapping[str, float]:
    """The cost of a woven region and of a woven record on this GPU, measured once; empty without a GPU."""
    try:
        return _measure(driver())
    except WarplensError:
        return {}


def _measure(lib: Driver) -> dict[str, float]:
    device = lib.device()
    woven, tracks = _run(lib, source(), (SLOTS + AFTER) * ROUNDS, 1)
    trace = decode(Capture([_launch(woven, tracks[0].tobytes())], device=device))
    _, crowd = _run(lib, source(("empty",)), 2 * ROUNDS, CROWD * device.sm_count, HEADER_BYTES)
    return {**solve(trace, device.name).cost, CROWDED: crowded(crowd.view(HEADER).reshape(-1))}


def crowded(headers: npt.NDArray[np.void]) -> float:
    """Cycles of an SM per record, where each has many warps that do nothing but record."""
    lasted, _, records = by_sm(headers)
    return float(np.median(lasted / np.maximum(records, 1)))


def _run(lib: Driver, text: str, records: int, warps: int, width: int = 0) -> tuple[Woven, npt.NDArray[np.uint8]]:
    """Run a calibration kernel in blocks of one warp; the first `width` bytes of each track, 0 for all."""
    woven = weave(text, buffer=ParamBuffer(-1))
    shift = shift_for(records, "stop", woven.slack)
    size = 1 << shift
    allocation = lib.allocate((warps + 1) * size + SLOT_BYTES)
    try:
        address = -(-allocation // size) * size
        lib.clear(allocation, (warps + 1) * size, 0)
        function = lib.function(lib.load(woven.text.encode() + b"\0"), _KERNEL)
        if function is None:
            raise WarplensError("the calibration kernel cannot be found")
        # The kernel's own result goes behind the buffer, wherever the tracks lie in it.
        arguments = [struct.pack("<Q", allocation + (warps + 1) * size), struct.pack("<Q", address | shift)]
        lib.launch(function, (warps, 1, 1), (32, 1, 1), arguments, 0, 0)
        lib.synchronize()
        width = width or size
        return woven, lib.download_rows(address, size, width, warps, width).reshape(warps, width)
    finally:
        lib.free(allocation)


def _launch(woven: Woven, track: bytes) -> Launch:
    written = int(np.frombuffer(track, HEADER, 1)["written"][0])
    raw = np.zeros(track_stride(written), np.uint8)
    used = HEADER_BYTES + written * SLOT_BYTES
    raw[:used] = np.frombuffer(track, np.uint8, used)
    return Launch(_KERNEL, (1, 1, 1), (32, 1, 1), woven.regions, written, raw)


def source(regions: Sequence[str] = ("short", "long", "outer", "empty", "packed", "noted", "bare")) -> str:
    """Chains of dependent fmas of known length in regions and between plain clock reads, as PTX with marks."""

    def mark(letter: str, name: str, *operands: str) -> str:
        return f"\t// {mark_text(letter, name, *operands)}"

    def work(count: int) -> list[str]:
        return ["\tfma.rn.f32 %f1, %f1, %f1, 0f3F000000;"] * count

    # Behind a value, as around plain reads, the stores of a round are not held until the region of the next one.
    after = mark("V", "after", "u32", "%r1")
    bodies = {
        "short": [mark("B", "short"), *work(SHORT), mark("E", "short"), after],
        "long": [mark("B", "long"), *work(LONG), mark("E", "long"), after],
        "outer": [
            mark("B", "outer"), *work(SHORT), mark("B", "inner"), *work(SHORT), mark("E", "inner"), *work(SHORT),
            mark("E", "outer"), after,
        ],
        "empty": [mark("B", "empty"), mark("E", "empty")],
        "packed": [mark(letter, "packed") for letter in "BBBEEBEE"],
        "noted": [mark("B", "noted"), mark("V", "noted", "u32", "%r1"), mark("E", "noted")],
        # With a predicate that varies between lanes, ptxas reads the clock by the instruction that marks read it by.
        "bare": [
            "\t@%p2 mov.u32 %r2, %clock;", *work(SHORT), "\t@%p2 mov.u32 %r3, %clock;", "\tsub.u32 %r3, %r3, %r2;",
            mark("V", "bare", "u32", "%r3"),
        ],
    }  # fmt: skip
    lines = []
    for name in regions:
        body = bodies[name]
        # Unrolled, the loops would not fit the instruction cache.
        lines += ["\tmov.u32 %r1, 0;", f"$L_{name}:", '\t.pragma "nounroll";', *body, "\tadd.u32 %r1, %r1, 1;"]
        lines += [f"\tsetp.lt.u32 %p1, %r1, {ROUNDS};", f"\t@%p1 bra $L_{name};"]
    return "\n".join(
        [
            ".version 7.0\n.target sm_70\n.address_size 64",
            f".visible .entry {_KERNEL}(.param .u64 out, .param .u64 prof)\n.reqntid 32\n{{",
            "\t.reg .pred %p<3>; .reg .b32 %r<4>; .reg .f32 %f<2>; .reg .b64 %rd<2>;",
            "\tld.param.u64 %rd1, [out];\n\tmov.f32 %f1, 0f3F800000;",
            "\tmov.u32 %r2, %tid.x;\n\tsetp.eq.u32 %p2, %r2, 0;\n\tmov.u32 %r2, 0;\n\tmov.u32 %r3, 0;",
            *lines,
            "\tst.global.f32 [%rd1], %f1;\n\tret;\n}\n",
        ]
    )
