"""A run that both torch.profiler and warplens saw, made up: what each wrote, and the truth."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.builders import Span, make_trace
from warplens.trace.model import Trace
from warplens.trace.schema import ClockFit, LaunchInfo, Meta

EPOCH = 1_790_857_026_000_000_000
PID, TID = 26277, 26277


@dataclass
class Launched:
    """A kernel's execution: Kineto's slice around it, and the device's own clock inside."""

    name: str
    grid: tuple[int, int, int]
    called: int
    start: int
    end: int
    begin_gpu: int = 0
    end_gpu: int = 0
    announced: int | None = None


@dataclass
class Run:
    """`offset` and `drift` are what turns the device's clock into Kineto's."""

    seed: int
    offset: int = 400_000
    drift: float = 1.1e-5
    recorded: list[Launched] = field(default_factory=list)
    kernels: list[Launched] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.now = EPOCH + 3_862_308_813_301_251
        self.gpu_free = self.now
        self.first = self.now

    def to_kineto(self, device_ns: int) -> int:
        return device_ns + self.offset + round(self.drift * (device_ns - self.first))

    def launch(
        self, name: str = "add", ns: int = 20_000, *, record: bool = True, gap: int = 30_000, seen: bool = True,
        grid: tuple[int, int, int] = (4, 1, 1), jitter: float = 0.2,
    ) -> Launched:  # fmt: skip
        """One launch: announced, called, queued, run. `seen=False` is one that Kineto lost."""
        announced = self.now
        called = announced + self.random.randint(6_000, 30_000)
        self.now = called + self.random.randint(5_000, 9_000) + gap
        start = max(called + 3_000, self.gpu_free + self.random.randint(900, 1_400))
        before, after = self.random.randint(80, 500), self.random.randint(50, 450)
        inside = max(round(ns * (1 + jitter * (self.random.random() - 0.5))), 100)
        begin = start + before
        one = Launched(name, grid, called, start, begin + inside + after, announced=announced)
        one.begin_gpu = self._to_device(begin)
        one.end_gpu = self._to_device(begin + inside)
        self.gpu_free = one.end
        if seen:
            self.kernels.append(one)
        if record:
            self.recorded.append(one)
        return one

    def _to_device(self, kineto_ns: int) -> int:
        since = (kineto_ns - self.offset - self.first) / (1 + self.drift)
        return self.first + round(since)

    def trace(self, *, host: bool = True, warps: int = 2, residual: float = 0.0) -> Trace:
        """What warplens wrote: per launch four blocks with an outer region and two inside it."""
        zero = min(one.begin_gpu for one in self.recorded)
        spans, infos = [], []
        for number, one in enumerate(self.recorded):
            begin, end = one.begin_gpu - zero, one.end_gpu - zero
            third = (end - begin) // 3
            for block in range(4):
                for warp in range(warps):
                    place: dict[str, Any] = {"block": block, "warp": warp, "launch": number, "kernel": one.name}
                    spans.append(Span("all", begin, end - begin, **place))
                    spans.append(Span("load", begin, third, **place))
                    spans.append(Span("store", begin + 2 * third, end - begin - 2 * third, **place))
            extra = {"host_ns": one.announced} if host else {}
            infos.append(
                LaunchInfo(
                    number, one.name, grid=one.grid, block=(64, 1, 1), begin_ns=begin, end_ns=end,
                    tracks=4 * warps, extra=extra,
                )
            )  # fmt: skip
        clock = ClockFit(residual_p99_ns=residual, anchors=16, method="synthetic")
        return make_trace(spans, meta=Meta(launches=tuple(infos), clock=clock, origin_ns=zero))

    def document(self) -> dict[str, Any]:
        """What torch.profiler exported: each launch inside an operator, memory, names and things to leave out."""
        events: list[dict[str, Any]] = [
            {"ph": "M", "name": "process_name", "pid": PID, "tid": 0, "args": {"name": "python"}, "ts": 0},
            {"ph": "M", "name": "thread_name", "pid": PID, "tid": TID, "args": {"name": "thread 1 (python)"}, "ts": 0},
            {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "x", "ts": 0, "dur": 1},
        ]
        for number, one in enumerate(self.kernels, 1):
            on_cpu = {"ph": "X", "pid": PID, "tid": TID}
            op = {"External id": number, "Input Dims": [[64, 64], []]}
            events.append(
                on_cpu
                | _times(one.called - 2_000, one.called + 5_500)
                | {"cat": "cpu_op", "name": f"op::{one.name}", "args": op}
            )
            call = {"correlation": number, "cbid": 211}
            events.append(
                on_cpu
                | _times(one.called, one.called + 4_000)
                | {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "args": call}
            )
            held = {
                "Bytes": 512,
                "Total Allocated": 512 * number,
                "Total Reserved": 2_097_152,
                "Device Id": 0,
                "Device Type": 1,
            }
            memory = {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "pid": PID, "tid": TID}
            events.append(memory | {"ts": _micros(one.called - 1_000), "args": held})
            kernel = {"correlation": number, "device": 0, "stream": 7, "grid": list(one.grid), "block": [64, 1, 1]}
            events.append(
                {"ph": "X", "cat": "kernel", "name": one.name, "pid": 0, "tid": 7, "args": kernel}
                | _times(one.start, one.end)
            )
        return {
            "schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}], "displayTimeUnit": "ms",
            "baseTimeNanoseconds": EPOCH, "traceEvents": events,
        }  # fmt: skip

    def write_torch(self, path: Path) -> Path:
        # Times as Kineto writes them, with three decimals: marked while they are text, bare in the file.
        path.write_text(json.dumps(self.document()).replace('"\\u0000', "").replace('\\u0000"', ""))
        return path


def _micros(ns: int) -> str:
    whole, rest = divmod(ns - EPOCH, 1000)
    return f"\x00{whole}.{rest:03d}\x00"


def _times(start: int, end: int) -> dict[str, str]:
    return {"ts": _micros(start), "dur": f"\x00{(end - start) // 1000}.{(end - start) % 1000:03d}\x00"}
