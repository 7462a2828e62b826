"""Measure the peaks of this GPU with torch: copy bandwidth and matrix multiplication rates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from warplens.errors import WarplensError

_GIB = 1 << 30
_SIZE = 8192
_REPEATS = 20


def measure_ceilings() -> tuple[str, dict[str, float]]:
    """Return the device name, its `bandwidth` in GB/s and its TFLOP/s by type, as medians at the current clocks."""
    torch = _torch()
    name = str(torch.cuda.get_device_name())
    found = {"bandwidth": _bandwidth(torch)}
    for dtype, kind in (("fp16", torch.float16), ("bf16", torch.bfloat16), ("fp32", torch.float32)):
        found[dtype] = _matmul(torch, kind)
    allowed = torch.backends.cuda.matmul.allow_tf32
    try:
        torch.backends.cuda.matmul.allow_tf32 = True
        found["tf32"] = _matmul(torch, torch.float32)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = allowed
    return name, found


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise WarplensError("--measure needs torch: pip install torch, or use listed peaks with --device") from None
    if not torch.cuda.is_available():
        raise WarplensError("--measure needs a GPU that torch can use; without one, use listed peaks with --device")
    return torch


def _bandwidth(torch: Any) -> float:
    """Return the bandwidth of a copy in GB/s, counting the bytes read and written."""
    source = torch.empty(2 * _GIB, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return float(2 * source.numel() / _median_ns(torch, lambda: target.copy_(source)))


def _matmul(torch: Any, kind: Any) -> float:
    size = _SIZE if kind != torch.float32 else _SIZE // 2
    a, b = (torch.randn(size, size, device="cuda", dtype=kind) for _ in range(2))
    out = torch.empty(size, size, device="cuda", dtype=kind)
    return float(2 * size**3 / _median_ns(torch, lambda: torch.matmul(a, b, out=out)) / 1000)


def _median_ns(torch: Any, work: Callable[[], Any]) -> float:
    for _ in range(3):
        work()
    times = []
    for _ in range(_REPEATS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e6)
    return float(sorted(times)[len(times) // 2])
