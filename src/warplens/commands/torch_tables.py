"""What torch.profiler saw, as tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.markup import escape

from warplens.analyse.torch.operators import TorchSummary
from warplens.commands.common import table
from warplens.wording import byte_size, duration

_MOST = 20
_LONGEST = 60


def torch_tables(summary: TorchSummary) -> list[Any]:
    """The operators, the kernels, and the most memory held."""
    tables = [_operators(summary), *([_kernels(summary)] if summary.kernels else [])]
    if summary.peak_bytes:
        held = ", ".join(f"{_device(device)} {byte_size(peak)}" for device, peak in sorted(summary.peak_bytes.items()))
        tables.append(f"most memory held: {held}")
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
    return table(_title("PyTorch operators", summary.operators), columns, summary.operators[:_MOST])


def _kernels(summary: TorchSummary) -> Any:
    columns = [
        ("kernel", lambda one: escape(_short(one.name))),
        ("launches", lambda one: f"{one.calls:,}"),
        ("mean", lambda one: duration(one.mean_ns)),
        ("total", lambda one: duration(one.cuda_ns)),
        ("recorded inside", lambda one: f"{one.recorded:,}" if one.recorded else "-"),
    ]
    return table(_title("on the GPU", summary.kernels), columns, summary.kernels[:_MOST])


def _title(what: str, rows: Sequence[Any]) -> str:
    return f"{what}: the first {_MOST} of {len(rows):,}" if len(rows) > _MOST else what


def _unless_zero(render: Callable[[float], str], value: float) -> str:
    return render(value) if value else "-"


def _device(number: int) -> str:
    return "CPU" if number < 0 else f"GPU {number}"


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
