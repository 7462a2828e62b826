"""Random CUDA kernels with marks: woven in any way, they compute the same and record exactly what they pass."""

from __future__ import annotations

import functools
import random
import struct
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz.cuda_source import CudaKernel, random_source
from tests.fuzz.mark_log import Passed, kept_of, log_marks, nesting, read_log
from tests.support.cuda_compilers import compile_with_nvrtc, nvrtc_libraries
from tests.support.golden_ptx import ptxas
from warplens.auto.ptx import mark_ptx
from warplens.auto.rules import Auto
from warplens.decode import decode
from warplens.ptx.syntax import PtxError
from warplens.ptx.tree import parse
from warplens.record.aggregate_rows import AGGREGATE
from warplens.record.capture import BETWEEN, Capture, Launch
from warplens.record.layout import (
    HEADER,
    HEADER_BYTES,
    WIDE_KINDS,
    Kind,
    ValueType,
    split_word0,
    track_stride,
)
from warplens.simulate import GlobalMemory, LoadedModule
from warplens.simulate.loaded_module import symbol_values
from warplens.trace.model import Trace
from warplens.weave.weaver import weave
from warplens.weave.weaving import POLICIES, ParamBuffer, Selection, SymbolBuffer, Weaving, capacity_of, shift_for
from warplens.weave.woven_ptx import Woven

LIMIT = 300
"""Seconds that a case may take: it runs a compiler, an assembler and an interpreter."""
BLOCKS = 3
_GUARD = 0xAB


@dataclass(frozen=True)
class Ran:
    """What a kernel left: its results, and the memory and module that it ran in."""

    results: bytes
    memory: GlobalMemory
    module: LoadedModule


def run_kernel(
    text: str, kernel: CudaKernel, n: int, last: Any, symbols: dict[str, int] | None = None, setup: Any = None
) -> Ran:
    """Run a kernel in the interpreter; `setup(memory)` gives the last argument."""
    memory = GlobalMemory(48 << 20)
    out, sums = memory.alloc(4 * 1024), memory.alloc(4 * 2048)
    numbers = np.random.default_rng(n).integers(-40, 90, 256).astype(np.int32)
    into = memory.alloc(1024)
    memory.write(into, numbers)
    if setup is not None:
        last, symbols = setup(memory)
    module = LoadedModule(text, memory)
    symbol_values(module, symbols or {})
    module.run(kernel.name, (BLOCKS, 1, 1), kernel.block, [out, into, sums, n, last], max_steps=400_000)
    results = memory.read(out, np.uint8, 4096).tobytes() + memory.read(sums, np.uint8, 8192).tobytes()
    return Ran(results, memory, module)


@dataclass(frozen=True)
class Tracks:
    """The tracks of a launch as they lie in memory."""

    rows: np.ndarray
    capacity: int
    launch: Launch

    def header(self, track: int) -> Any:
        return self.rows[track][:HEADER_BYTES].view(HEADER)[0]


def run_woven(woven: Woven, kernel: CudaKernel, n: int, how: Weaving, slots: int, buffer: Any) -> tuple[Ran, Tracks]:
    layout = woven.aggregates.get(kernel.name)
    slots = layout.slots if layout else slots
    full = "stop" if layout else woven.full
    shift = shift_for(slots, full, woven.slack)
    stride = 1 << shift
    warps = -(-kernel.block[0] * kernel.block[1] * kernel.block[2] // 32)
    tracks = how.select.blocks_of(BLOCKS) * how.select.tracks_per_block(warps)
    base = 0

    def setup(memory: GlobalMemory) -> tuple[int, dict[str, int]]:
        nonlocal base
        base = memory.alloc((tracks + 2) * stride, align=stride) + stride
        guard = np.full(stride, _GUARD, np.uint8)
        memory.write(base - stride, guard)
        memory.write(base + tracks * stride, guard)
        pointer = base | shift
        if isinstance(buffer, SymbolBuffer):
            return 0, {buffer.name: pointer}
        return memory.alloc(np.array([pointer], np.uint64)) if buffer.indirect else pointer, {}

    ran = run_kernel(woven.text, kernel, n, 0, setup=setup)
    for at in (base - stride, base + tracks * stride):
        assert (ran.memory.read(at, np.uint8, stride) == _GUARD).all(), "wrote outside the tracks"
    rows = ran.memory.read(base, np.uint8, tracks * stride).reshape(tracks, stride)
    capacity = capacity_of(shift, full, woven.slack)
    if layout:
        capacity = min(capacity, layout.slots)
    first = stride // 2 if full == "ring" else HEADER_BYTES
    raw = np.zeros((tracks, track_stride(capacity)), np.uint8)
    raw[:, :HEADER_BYTES] = rows[:, :HEADER_BYTES]
    raw[:, HEADER_BYTES : HEADER_BYTES + 8 * capacity] = rows[:, first : first + 8 * capacity]
    extra: dict[str, Any] = {AGGREGATE: layout.describe()} if layout else {BETWEEN: woven.between.get(kernel.name, [])}
    launch = Launch(
        kernel.name, (BLOCKS, 1, 1), kernel.block, woven.regions, capacity, raw.reshape(-1), full, "simulated",
        extra=extra, locations=woven.locations,
    )  # fmt: skip
    return ran, Tracks(raw, capacity, launch)


def records_of(tracks: Tracks, track: int, regions: dict[int, str], whole: int) -> tuple[int, list[Passed]]:
    """The slots written and the records of a track, walked back from the newest; `whole` slots hold whole records."""
    slots = tracks.rows[track][HEADER_BYTES:].view(np.uint64)
    written = int(tracks.header(track)["written"])
    ring = tracks.launch.full == "ring"
    oldest = max(0, written - tracks.capacity) if ring else 0
    newest = written if ring else min(written, tracks.capacity)
    if not ring and written > tracks.capacity:
        newest = whole
    word = lambda i: int(slots[i % tracks.capacity if ring else i])  # noqa: E731
    found: list[Passed] = []
    at = newest - 1
    while at >= oldest:
        kind, region, tag = split_word0(word(at) & 0xFFFFFFFF)
        if kind in (Kind.VALUE, Kind.ANCHOR):
            if at - 1 < oldest:
                break
            payload = word(at - 1)
            at -= 1
            if kind is Kind.VALUE:
                form = {ValueType.I64: "<q", ValueType.U64: "<Q", ValueType.F64: "<d"}.get(ValueType(tag))
                value = float(struct.unpack(form, payload.to_bytes(8, "little"))[0]) if form else None
                found.append(Passed(kind, regions[region], value=value))
            elif tag in WIDE_KINDS:
                found.append(Passed(Kind(tag), regions[region]))
            elif tag == 0:
                found.append(Passed(kind, ""))
        else:
            found.append(Passed(kind, regions.get(region, "?"), tag=tag))
        at -= 1
    return written, found[::-1]


def _same(one: Passed, other: Passed) -> bool:
    alike = (one.kind, one.name, one.tag) == (other.kind, other.name, other.tag)
    return alike and (one.value is None or other.value is None or one.value == other.value or one.value != one.value)


def _wide(one: Passed) -> Passed:
    """The same mark with a 64-bit clock: as its payload, or in a pair of slots before it."""
    whole = one.kind in WIDE_KINDS
    return replace(one, slots=one.slots + (1 if whole else 2), before=0 if whole else 2)


def check_records(tracks: Tracks, track: int, passed: list[Passed], woven: Woven, how: Weaving) -> None:
    """The records of a track are those that its leader passed."""
    fixed = woven.stores.get(tracks.launch.kernel) == "fixed"
    if not fixed and how.clock == "64":
        passed = [_wide(one) for one in passed]
    expected = passed if fixed else kept_of(passed, tracks.capacity, tracks.launch.full)
    written, found = records_of(tracks, track, woven.regions, sum(one.slots for one in expected))
    total = sum(one.slots for one in passed)
    if fixed:
        found = [one for one in found if one.kind is not Kind.EMPTY]
    else:
        assert written == total, f"{written} slots are written, {total} are right"
    short = len(expected) != len(found)
    wrong = next((i for i, (a, b) in enumerate(zip(expected, found, strict=False)) if not _same(a, b)), None)
    if short or wrong is not None:
        at = max((wrong or 0) - 2, 0)
        raise AssertionError(
            f"record {wrong} of {len(found)} (expected {len(expected)}):\n"
            f"expected {expected[at : at + 5]}\nfound {found[at : at + 5]}"
        )


def own_regions(woven: Woven, kernel: str) -> set[str]:
    """The names of regions that have marks, and not those of the code between them."""
    between = {number for *_, number in woven.between.get(kernel, [])}
    layout = woven.aggregates.get(kernel)
    between |= {layout.work} if layout else set()
    return {name for number, name in woven.regions.items() if number not in between}


def check_spans(trace: Trace, passed: dict[tuple[int, int], list[Passed]], own: set[str]) -> None:
    """The decoded spans are those of the marks: order, names, nesting; nothing is lost or malformed."""
    losses = trace.meta.losses
    problems = {
        name: getattr(losses, name)
        for name in ("records_lost", "tracks_invalid", "tracks_without_exit", "open_spans", "orphan_ends",
                     "mismatched_ends", "torn_payloads", "unknown_regions", "clock_backward", "clock_ambiguous",
                     "damaged_records")
    }  # fmt: skip
    kinds = [one.kind for marks in passed.values() for one in marks]
    if kinds.count(Kind.ASYNC_BEGIN) != kinds.count(Kind.ASYNC_END):
        del problems["open_spans"]  # a return or a jump left an async span open
    assert not any(problems.values()), f"losses: {problems}"
    rows = [row for row in trace.spans.to_pylist() if row["region"] in own]
    for (block, warp), marks in passed.items():
        mine = [row for row in rows if (row["block"], row["warp"]) == (block, warp)]
        begun = [one for one in marks if one.kind not in (Kind.END, Kind.ASYNC_END, Kind.ANCHOR)]
        told = [(row["region"], row["value"]) for row in mine]
        right = [(one.name, one.value) for one in begun]
        assert [name for name, _ in told] == [name for name, _ in right], f"rows of {block, warp}:\n{told}\n{right}"
        for (name, value), (_, wanted) in zip(told, right, strict=True):
            assert wanted is None or value == wanted or wanted != wanted, f"value {name}: {value}, not {wanted}"
        assert all(row["dur_cycles"] >= 0 for row in mine if row["kind"] == "span")


def check_aggregate(trace: Trace, passed: dict[tuple[int, int], list[Passed]], own: set[str]) -> None:
    """The counts of each path of regions are those of the marks."""
    rows = trace.spans.to_pylist()

    def path(row: dict[str, Any]) -> tuple[str, ...]:
        return (*(path(rows[row["parent"]]) if row["parent"] >= 0 else ()), row["region"])

    for (block, warp), marks in passed.items():
        mine = [row for row in rows if (row["block"], row["warp"]) == (block, warp) and row["kind"] == "span"]
        told = {path(row): row["count"] for row in mine if row["region"] in own}
        assert told == nesting(marks), f"counts of {block, warp}:\n{told}\n{nesting(marks)}"


def leaders(logs: list[list[Passed]], kernel: CudaKernel, select: Selection) -> dict[tuple[int, int], list[Passed]]:
    """What the leader of each recorded warp passed, in the order of the tracks."""
    threads = kernel.block[0] * kernel.block[1] * kernel.block[2]
    warps = range(-(-threads // 32))
    chosen = [
        block for block in range(BLOCKS)
        if (select.blocks is None or block in range(*select.blocks))
        and (select.listed is None or block in select.listed)
    ]  # fmt: skip
    step = {"warp": 1, "warpgroup": 4, "block": 64}[select.granularity]
    mine = [warp for warp in warps if warp % step == 0] if select.warps is None else list(select.warps)
    return {
        (block, warp): logs[block * threads + warp * 32] for block in chosen for warp in mine if warp in warps
    }  # fmt: skip


def random_weaving(draw: random.Random, kernel: CudaKernel) -> Weaving:
    select = draw.choice(
        [
            Selection(),
            Selection(),
            Selection(),
            Selection(blocks=(0, 3, 2)),
            Selection(listed=(1,)),
            Selection("block"),
            Selection(warps=(0,)),
        ]
    )
    mode, clock = "aggregate" if draw.random() < 0.2 else "trace", draw.choice(("32", "32", "32", "64"))
    return Weaving(
        full=draw.choice(("stop", "stop", "ring")) if mode == "trace" else "stop", clock=clock,
        store=draw.choice(POLICIES), keep=draw.choice((0, 4)), fuse=draw.random() < 0.7, pair=draw.random() < 0.7,
        pin=draw.random() < 0.7, constants=draw.random() < 0.7, early=draw.random() < 0.7, join=draw.random() < 0.7,
        aligned=draw.random() < 0.5 and kernel.block[0] % 32 == 0, lean=draw.random() < 0.25,
        fixed=draw.random() < 0.15, plain_copy=draw.random() < 0.3, between=draw.random() < 0.3, mode=mode,
        ring=draw.choice((0, 0, 4)) if clock == "32" else 0, select=select,
    )  # fmt: skip


def random_auto(draw: random.Random) -> Auto:
    if draw.random() < 0.2:
        return Auto(coarse=draw.choice(("body", "loops")))
    return Auto.of(draw.choice(("all", True, "loads,stores", "loops", "loops,barriers", "lines", "stores,loops,work")))


@functools.cache
def _nvrtc() -> Path:
    found = nvrtc_libraries()
    return found.get("libnvrtc.so.12") or next(iter(found.values()))


def compile_source(draw: random.Random, source: str) -> str:
    options = ["-default-device", *draw.choice([[], [], ["-lineinfo"], ["-G"], ["--dopt=on", "-lineinfo"]])]
    log, made = compile_with_nvrtc(_nvrtc(), draw.choice(["compute_80", "compute_90a"]), options, source, "PTX")
    assert made, log
    return made.rstrip(b"\0").decode()


def assemble(text: str, folder: Path) -> None:
    path = folder / "k.ptx"
    path.write_text(text)
    arch = "sm_80" if ".target sm_80" in text else "sm_90a"
    done = subprocess.run([ptxas(), f"-arch={arch}", path, "-o", folder / "k.cubin"], capture_output=True, text=True)
    assert done.returncode == 0, f"ptxas:\n{done.stderr[:1500]}"


@dataclass
class MarkedCase:
    """One marked module, what its kernels compute and what they pass."""

    text: str
    plain: str
    kernels: list[CudaKernel]
    n: int


def make_case(draw: random.Random, kernels: int = 2) -> MarkedCase:
    by_hand = draw.random() < 0.65
    source, made = random_source(draw, kernels, marked=by_hand)
    plain = compile_source(draw, source)
    assert parse(plain).text() == plain, "the parsed text does not print back"
    text = plain
    if not by_hand or draw.random() < 0.15:
        text = mark_ptx(plain, random_auto(draw)).text
    return MarkedCase(text, plain, made, draw.randrange(1, 12))


def check_kernel(draw: random.Random, one: MarkedCase, kernel: CudaKernel, folder: Path, weavings: int = 4) -> None:
    try:
        plain = run_kernel(one.plain, kernel, one.n, 0)
    except PtxError as error:
        raise RuntimeError(f"the interpreter cannot run {kernel.name}: {error}") from error
    threads = BLOCKS * kernel.block[0] * kernel.block[1] * kernel.block[2]
    logged, marks = log_marks(one.text, threads)
    ran = run_kernel(logged, kernel, one.n, 0)
    assert ran.results == plain.results, "the log of marks changed the results"
    logs = read_log(ran.module, marks, threads)
    if logs is None:
        return
    for _ in range(weavings):
        how = random_weaving(draw, kernel)
        try:
            check_weaving(draw, one, kernel, folder, how, logs, plain)
        except Exception as error:
            raise RuntimeError(f"{kernel} n={one.n} {how}: {error}") from error


def check_weaving(
    draw: random.Random,
    one: MarkedCase,
    kernel: CudaKernel,
    folder: Path,
    how: Weaving,
    logs: list[list[Passed]],
    plain: Ran,
) -> None:
    buffer = draw.choice(
        [ParamBuffer(-1), ParamBuffer(-1), ParamBuffer(-1, indirect=True), SymbolBuffer(), SymbolBuffer(space="global")]
    )
    try:
        woven = weave(one.text, buffer=buffer, how=how, plain=one.plain if one.plain != one.text else "")
    except PtxError:
        return
    if draw.random() < 0.3:
        assemble(woven.text, folder)
    if kernel.name not in woven.entries:
        assert not any(logs), "a kernel that passes marks is not woven"
        return
    slots = draw.choice([4000, 4000, 4000, 1, 7, 40])
    ran, tracks = run_woven(woven, kernel, one.n, how, slots, buffer)
    assert ran.results == plain.results, "weaving changed the results"
    passed = leaders(logs, kernel, how.select)
    trace, own = decode(Capture([tracks.launch])), own_regions(woven, kernel.name)
    for marks in passed.values():
        nesting(marks)
    if how.mode == "aggregate":
        check_aggregate(trace, passed, own)
        return
    for track, marks in enumerate(passed.values()):
        check_records(tracks, track, marks, woven, how)
    if slots == 4000:
        check_spans(trace, passed, own)


def case(draw: random.Random, folder: Path) -> None:
    """Compile a random source, weave it in several ways, and compare what it computes and records."""
    one = make_case(draw)
    for kernel in one.kernels:
        check_kernel(draw, one, kernel, folder, weavings=3)
