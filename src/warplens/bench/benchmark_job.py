"""Run benchmarks case by case and collect the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from warplens.analyse.devices import DTYPES, find_peak
from warplens.analyse.roofline import Ceilings, ceilings
from warplens.bench.backend import Backend
from warplens.bench.benchmark_decorator import DEVICES, Benchmark
from warplens.bench.case_measurement import CaseMeasurement
from warplens.bench.cpu_backend import CpuBackend
from warplens.bench.cuda_backend import CudaBackend
from warplens.bench.machine_facts import machine_facts
from warplens.bench.measurement_method import Method
from warplens.bench.results import ResultRow, Results, with_speedups
from warplens.errors import UsageError, did_you_mean

MeasuredCeilings = Mapping[str, float]


class BenchmarkJob:
    """A run in progress: iterating measures the cases, and `results()` returns the rows measured so far. `measured` are
    peaks from `warplens roofline --measure`."""

    def __init__(
        self,
        benchmarks: Sequence[Benchmark],
        *,
        device: str | None = None,
        measured: MeasuredCeilings | None = None,
        backend: Backend | None = None,
        **method: Any,
    ) -> None:
        names = [one.name for one in benchmarks]
        twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
        if twice:
            raise UsageError(f"two benchmarks are called {twice!r}; give their functions different names")
        self.backend = backend or open_backend(device or _device_of(benchmarks))
        self.benchmarks, self._measured = tuple(benchmarks), measured
        self.methods = {
            one.name: self.backend.resolve(Method.named(**{**one.settings, **method})) for one in benchmarks
        }
        self.rows: list[ResultRow] = []
        self.roofs: dict[str, Ceilings] = {}
        self._facts = machine_facts(self.backend)

    @property
    def total(self) -> int:
        return sum(1 for one in self.benchmarks for _ in one.cases())

    def __iter__(self) -> Iterator[ResultRow]:
        dead = ""
        for one in self.benchmarks:
            measure = CaseMeasurement(self.backend, self.methods[one.name], self._roof)
            for params in one.cases():
                line = str(params[one.line.name]) if one.line else one.name
                empty = ResultRow(one.name, params, params[one.x.name], line)
                if dead:
                    row = replace(empty, status="failed", note=f"not run: {dead}")
                else:
                    row = measure.row(one.make, empty)
                    dead = self.backend.recover() if row.status in ("oom", "failed") else ""
                self.rows.append(row)
                yield row

    def results(self) -> Results:
        """Return the rows measured so far, with speed-ups."""
        sweeps = tuple(replace(one.sweep, method=asdict(self.methods[one.name])) for one in self.benchmarks)
        complete = len(self.rows) == self.total
        return with_speedups(Results(sweeps, tuple(self.rows), self._facts, self.roofs, complete))

    def _roof(self, dtype: str) -> Ceilings | None:
        known = dtype if dtype in DTYPES else "fp32"
        device, peak = self.backend.device, find_peak(self.backend.device)
        measured = self._measured and {"bandwidth", known} <= set(self._measured)
        if measured or (peak is not None and known in peak.tflops):
            self.roofs.setdefault(known, ceilings(device, known, self._measured))
        return self.roofs.get(known)


def open_backend(name: str) -> Backend:
    """Return the backend `cuda` or `cpu`; raise an error with a remedy if it is not available."""
    if name == "cpu":
        return CpuBackend()
    if name == "cuda":
        return CudaBackend()
    raise UsageError(f"unknown device {name!r}{did_you_mean(name, DEVICES)}")


def _device_of(benchmarks: Sequence[Benchmark]) -> str:
    named = {one.device for one in benchmarks}
    if len(named) > 1:
        cpu = next(one.name for one in benchmarks if one.device == "cpu")
        raise UsageError(
            f"{cpu!r} is declared for the CPU, other benchmarks for the GPU; select one with --only, or give --device"
        )
    return named.pop() if named else "cuda"
