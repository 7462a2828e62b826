"""Read the Chrome JSON that torch.profiler (Kineto) exports, as slices in Unix nanoseconds."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from warplens.errors import CaptureError

KERNEL = "kernel"
GPU_CATEGORIES = frozenset({KERNEL, "gpu_memcpy", "gpu_memset", "gpu_user_annotation"})
RUNTIME_CATEGORIES = frozenset({"cuda_runtime", "cuda_driver"})
_IGNORED = frozenset({"Trace", "overhead", "ac2g"})
_MEMORY = "[memory]"
_FORWARD_BACKWARD = "fwdbwd"
_REEXPORT = "export it again with prof.export_chrome_trace(...) of torch.profiler"

Thread = tuple[int, int]
"""Process and thread; for what ran on a GPU, device and stream."""


class Slice(NamedTuple):
    """An interval on the CPU or GPU. `place` is process and thread or, where `on_gpu`, device and stream."""

    name: str
    category: str
    place: Thread
    start: int
    end: int
    args: Mapping[str, Any]

    @property
    def on_gpu(self) -> bool:
        return self.category in GPU_CATEGORIES

    @property
    def correlation(self) -> int | None:
        """The number that a launch call shares with the kernel that it launched."""
        value = self.args.get("correlation")
        return value if isinstance(value, int) and value > 0 else None

    @property
    def grid(self) -> tuple[int, ...]:
        """The blocks of a kernel along each axis; empty where the trace does not have them."""
        value = self.args.get("grid")
        return tuple(value) if isinstance(value, list) and all(isinstance(size, int) for size in value) else ()


class MemoryEvent(NamedTuple):
    """An allocation (a release if negative) with the totals after it; device -1 is the CPU."""

    place: Thread
    time: int
    device: int
    size: int
    allocated: int
    reserved: int
    address: int = 0


class FlowEnd(NamedTuple):
    """One end of an arrow from a forward to its backward operator."""

    flow: int
    place: Thread
    time: int
    is_start: bool


@dataclass(frozen=True)
class TorchTrace:
    """A trace of torch.profiler; slices are ordered by start, longer ones first."""

    path: str
    slices: Sequence[Slice]
    memory: Sequence[MemoryEvent] = ()
    flows: Sequence[FlowEnd] = ()
    processes: Mapping[int, str] = field(default_factory=dict)
    threads: Mapping[Thread, str] = field(default_factory=dict)
    devices: Mapping[int, str] = field(default_factory=dict)
    rank: int | None = None

    @cached_property
    def kernels(self) -> list[Slice]:
        """The kernels that ran, in order of start."""
        return [one for one in self.slices if one.category == KERNEL]

    @cached_property
    def calls(self) -> dict[int, Slice]:
        """The launching runtime or driver call on the CPU, by correlation."""
        found = (one for one in self.slices if one.category in RUNTIME_CATEGORIES)
        return {one.correlation: one for one in found if one.correlation is not None}


_LATEST_NS = 1 << 61
"""Times beyond this would overflow when two of them are added."""


def read_torch(path: str | os.PathLike[str]) -> TorchTrace:
    """Read a `.json` or `.json.gz` of torch.profiler."""
    source = Path(path)
    if not source.is_file():
        raise CaptureError(source, "file", "does not exist or is a folder", "check the path")
    try:
        raw = source.read_bytes()
        text = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
        document = json.loads(text, parse_float=_number, strict=False)
    except (ValueError, EOFError, OSError, RecursionError, zlib.error) as error:
        raise CaptureError(source, "file", f"is not readable JSON ({str(error)[:120]})", _REEXPORT) from None
    events = document.get("traceEvents") if isinstance(document, dict) else None
    if not isinstance(events, list):
        raise CaptureError(source, "traceEvents", "is missing: not a trace of torch.profiler", _REEXPORT)
    try:
        return _trace(str(source), document, events)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise CaptureError(
            source, "traceEvents", f"holds an event that cannot be read ({error!r})", _REEXPORT
        ) from None


def _trace(path: str, document: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> TorchTrace:
    base = int(document.get("baseTimeNanoseconds", 0))
    slices: list[Slice] = []
    memory: list[MemoryEvent] = []
    flows: list[FlowEnd] = []
    processes: dict[int, str] = {}
    threads: dict[Thread, str] = {}
    for event in events:
        phase, category, name = event.get("ph"), event.get("cat", ""), str(event.get("name", ""))
        pid, tid = event.get("pid"), event.get("tid", 0)
        if not isinstance(pid, int) or not isinstance(tid, int):
            continue
        if phase == "X":
            if category not in _IGNORED:
                slices.append(_slice(event, category, name, (pid, tid), base))
        elif phase == "M":
            if name == "process_name":
                processes[pid] = str(event["args"]["name"])
            elif name == "thread_name":
                threads[pid, tid] = str(event["args"]["name"])
        elif phase == "i" and name == _MEMORY:
            memory.append(_memory(event["args"], (pid, tid), _time(base, event["ts"])))
        elif phase in ("s", "f") and category == _FORWARD_BACKWARD:
            flows.append(FlowEnd(int(event["id"]), (pid, tid), _time(base, event["ts"]), phase == "s"))
    slices.sort(key=lambda one: (one.start, -one.end))
    memory.sort(key=lambda one: one.time)
    devices = {int(one["id"]): str(one.get("name", "GPU")) for one in document.get("deviceProperties") or ()}
    rank = (document.get("distributedInfo") or {}).get("rank")
    known_rank = rank if isinstance(rank, int) else None
    return TorchTrace(path, slices, memory, flows, processes, threads, devices, known_rank)


def _slice(event: Mapping[str, Any], category: str, name: str, place: Thread, base: int) -> Slice:
    args = event.get("args") or {}
    if not isinstance(args, dict):
        raise TypeError(f"the args of {name!r} are no object")
    if category in GPU_CATEGORIES:
        place = int(args.get("device", place[0])), int(args.get("stream", place[1]))
    start = _time(base, event["ts"])
    return Slice(name, category, place, start, start + max(_ns(event.get("dur", 0)), 0), args)


def _memory(args: Mapping[str, Any], place: Thread, time: int) -> MemoryEvent:
    device = int(args.get("Device Id", -1)) if int(args.get("Device Type", 0)) == 1 else -1
    sizes = (int(args.get(name, 0)) for name in ("Bytes", "Total Allocated", "Total Reserved", "Addr"))
    return MemoryEvent(place, time, device, *sizes)


def _number(text: str) -> Decimal | float:
    """Parse a number with a point or an exponent.

    A Decimal keeps the nanoseconds: a double is too short for microseconds since the epoch with decimals. A number that
    no time can be stays a double: a Decimal with an exponent of 999,999,999 becomes an integer of as many digits.
    """
    number = float(text)
    return Decimal(text) if 1e-9 < abs(number) < _LATEST_NS else number


def _ns(microseconds: Decimal | float | str) -> int:
    exact = Decimal(microseconds)
    if not abs(exact) * 1000 <= _LATEST_NS:
        raise ValueError(f"a time of {exact:.3e} microseconds")
    return round(exact * 1000)


def _time(base: int, microseconds: Decimal | float | str) -> int:
    found = base + _ns(microseconds)
    if not 0 <= found <= _LATEST_NS:
        raise ValueError(f"a time of {found} ns since 1970")
    return found
