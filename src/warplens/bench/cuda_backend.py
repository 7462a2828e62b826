"""Run cases on the GPU through torch, timed with CUDA events around calls or graph replays."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from warplens.bench.backend import Call
from warplens.bench.measurement_method import Method
from warplens.bench.nvml import Nvml
from warplens.bench.throttle import Reading
from warplens.driver.gpu_names import gpu_names
from warplens.errors import UsageError, WarplensError

_MIB = 1 << 20
_MAX_HOLD_SECONDS = 0.01
_HOLD_FACTOR = 2.0
"""Hold the device for this many times the fastest time the host needed to queue the calls."""
_MAX_QUEUED = 50
_SECONDS_BETWEEN_READINGS = 0.05
_MAX_INPUT_SETS = 64


class CudaBackend:
    """torch's current CUDA device."""

    name = "cuda"

    def __init__(self) -> None:
        self._torch = torch = _torch()
        self._index = int(torch.cuda.current_device())
        self._properties = torch.cuda.get_device_properties(self._index)
        self.device = str(self._properties.name)
        self._l2 = int(getattr(self._properties, "L2_cache_size", 0)) or 64 * _MIB
        self._nvml = Nvml(self._index)
        self._readings: list[Reading] = []
        self._read_at = -math.inf
        self._host = math.inf
        self._scratch: Any = None
        self._floor = self._empty_pair()

    def resolve(self, method: Method) -> Method:
        if method.timer == "clock":
            raise UsageError("timer 'clock' is only supported on the CPU; use 'events' or 'graph' on a GPU")
        return replace(
            method,
            timer="events" if method.timer == "auto" else method.timer,
            cache="flush" if method.cache == "auto" else method.cache,
        )

    def facts(self) -> dict[str, Any]:
        known = self._properties
        return {
            "device": self.device,
            "capability": f"{known.major}.{known.minor}",
            "sm_count": int(known.multi_processor_count),
            "memory_bytes": int(known.total_memory),
            "l2_bytes": self._l2,
            "driver": self._nvml.driver_version(),
            "cuda": str(self._torch.version.cuda),
            "empty_event_pair_ns": round(self._floor, 1),
        }

    def seconds(self) -> float:
        return time.perf_counter()

    def input_sets(self, arguments: tuple[Any, ...]) -> int:
        size = sum(int(getattr(one, "nbytes", 0)) for one in arguments)
        if not size:
            return 1
        fitting = int(self._torch.cuda.mem_get_info()[0]) // 4 // size
        return max(min(-(-3 * self._l2 // size), _MAX_INPUT_SETS, fitting), 2)

    def copy(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(one.clone() if hasattr(one, "clone") else one for one in arguments)

    def prepare(self, calls: Sequence[Call], method: Method) -> Sequence[Call]:
        self._host = math.inf
        if method.cache == "flush" and self._scratch is None:
            self._scratch = self._torch.empty(max(2 * self._l2, 64 * _MIB), dtype=self._torch.int8, device="cuda")
        return [self._graph(call) for call in calls] if method.timer == "graph" else calls

    def sample(self, calls: Sequence[Call], method: Method) -> list[float]:
        out: list[float] = []
        while len(out) < len(calls):
            # If the host queues more slowly than the device runs, an event pair also times the wait for the host.
            most = _MAX_QUEUED if math.isinf(self._host) else int(_MAX_HOLD_SECONDS / _HOLD_FACTOR / self._host)
            part = calls[len(out) : len(out) + max(min(most, _MAX_QUEUED), 1)]
            out += self._timed(part, method.cache == "flush")
        return out

    def memory(self) -> int | None:
        self._torch.cuda.synchronize()
        self._torch.cuda.reset_peak_memory_stats()
        return int(self._torch.cuda.memory_allocated())

    def peak(self) -> int | None:
        self._torch.cuda.synchronize()
        return int(self._torch.cuda.max_memory_allocated())

    def clocks(self) -> list[Reading]:
        readings, self._readings = self._readings, []
        self._read_at = -math.inf
        return readings

    def wide(self, result: Any) -> Any:
        return self._torch.as_tensor(result, device="cuda").to(self._torch.float64)

    def recover(self) -> str:
        gc.collect()
        try:
            self._torch.cuda.synchronize()
            self._torch.cuda.empty_cache()
        except RuntimeError as error:
            text = str(error).strip().splitlines()[0]
            return f"the CUDA context is no longer usable ({text}); run the other cases separately"
        return ""

    def _timed(self, calls: Sequence[Call], flush: bool) -> list[float]:
        torch = self._torch
        pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in calls]
        torch.cuda.synchronize()
        if math.isfinite(self._host):
            self._hold(len(calls) * self._host)
        began = time.perf_counter()
        for call, (begin, end) in zip(calls, pairs, strict=True):
            if flush:
                self._scratch.zero_()
            begin.record()
            call()
            end.record()
        # Keep the minimum: the time of a call that waits for the device would grow with every hold.
        self._host = min(self._host, (time.perf_counter() - began) / len(calls))
        self._read_clock()
        torch.cuda.synchronize()
        return [float(begin.elapsed_time(end)) * 1e6 for begin, end in pairs]

    def _hold(self, seconds: float) -> None:
        """Keep the device busy while the host queues the calls, so that it does not idle between them."""
        self._torch.cuda._sleep(int((min(_HOLD_FACTOR * seconds, _MAX_HOLD_SECONDS) + 2e-5) * 2e9))

    def _read_clock(self) -> None:
        """Read the clock while the device is busy; the clock of an idle device is meaningless."""
        now = time.perf_counter()
        if now - self._read_at < _SECONDS_BETWEEN_READINGS:
            return
        reading = self._nvml.reading()
        self._read_at = now
        if reading is not None:
            self._readings.append(reading)

    def _graph(self, call: Call) -> Call:
        graph = self._torch.cuda.CUDAGraph()
        with self._torch.cuda.graph(graph):
            result = call()
        return _replay(graph, result)

    def _empty_pair(self) -> float:
        """Return the time that events around an empty call measure: a lower bound of every result."""
        nothing: list[Call] = [lambda: None] * 20
        medians = []
        for _ in range(3):
            # Hold much longer than needed, because the host's first calls are slow.
            self._host = 1e-3
            medians.append(sorted(self._timed(nothing, flush=False))[len(nothing) // 2])
        self._host = math.inf
        return min(medians)


def _replay(graph: Any, result: Any) -> Callable[[], Any]:
    def run() -> Any:
        graph.replay()
        return result

    return run


def _torch() -> Any:
    names = gpu_names()
    if not names:
        what = "there is no NVIDIA driver on this machine" if names is None else "the NVIDIA driver found no GPU"
        raise WarplensError(f"no GPU: {what}; use a machine with a GPU, or --device cpu to time CPU functions")
    try:
        import torch
    except ImportError:
        raise WarplensError("benchmarks on the GPU need torch: pip install torch") from None
    if not torch.cuda.is_available():
        raise WarplensError(f"no GPU: the installed torch cannot use the {names[0]}; install a torch built for CUDA")
    return torch
