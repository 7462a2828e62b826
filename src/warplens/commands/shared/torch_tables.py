"""Tables of what PyTorch's profiler measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.markup import escape

from warplens.analyse.torch.operators import TorchSummary
from warplens.commands.shared.console import table
from warplens.wording import byte_size, duration

_MAX_ROWS = 20
_MAX_NAME = 60


def torch_tables(summary: TorchSummary) -> list[Any]:
    """Return a table of operators, one of kernels, and a line with the peak memory."""
    tables = [_operators(summary), *([_kernels(summary)] if summary.kernels else [])]
    if summary.peak_bytes:
        peaks = ", ".join(f"{_device(device)} {byte_size(peak)}" for device, peak in sorted(summary.peak_bytes.items()))
        tables.append(f"peak memory: {peaks}")
    return tables


def _operators(summary: TorchSummary) -> Any:
    columns = [
        ("operator", lambda one: escape(_short(one.name))),
        ("calls", lambda one: f"{one.calls:,}"),
        ("self CPU", lambda one: _unless_zero(duration, one.self_cpu_ns)),
        ("CPU", lambda one: _unless_zero(duration, one.cpu_ns)),
        ("self CUDA", lambda one: _unless_zero(duration, one.self_cuda_ns)),
        ("CUDA", lambda one: _unless_zero(duration, one.cuda_ns)),
        ("CPU memory", lambda one: _unless_zero(byte_size, one.cpu_bytes)),
        ("CUDA memory", lambda one: _unless_zero(byte_size, one.cuda_bytes)),
    ]
    return table(_title("PyTorch operators", summary.operators), columns, summary.operators[:_MAX_ROWS])


def _kernels(summary: TorchSummary) -> Any:
    columns = [
        ("kernel", lambda one: escape(_short(one.name))),
        ("launches", lambda one: f"{one.calls:,}"),
        ("mean", lambda one: duration(one.mean_ns)),
        ("total", lambda one: duration(one.cuda_ns)),
        ("recorded by warplens", lambda one: f"{one.recorded:,}" if one.recorded else "-"),
    ]
    return table(_title("GPU kernels", summary.kernels), columns, summary.kernels[:_MAX_ROWS])


def _title(what: str, rows: Sequence[Any]) -> str:
    return f"{what}: the first {_MAX_ROWS} of {len(rows):,}" if len(rows) > _MAX_ROWS else what


def _unless_zero(render: Callable[[float], str], value: float) -> str:
    return render(value) if value else "-"


def _device(number: int) -> str:
    return "CPU" if number < 0 else f"GPU {number}"


def _short(name: str) -> str:
    return name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…"
