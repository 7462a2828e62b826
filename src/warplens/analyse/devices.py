"""The listed peaks of GPUs, with their sources."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from warplens.errors import UsageError, did_you_mean

DTYPES = ("fp64", "fp64_tensor", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4")


@dataclass(frozen=True)
class Peak:
    """A GPU's listed peaks: GB/s of its memory, TFLOP/s (10^12) per type, dense, at boost clock. 16-bit and smaller
    types and tf32 are those of the matrix units; fp32 and fp64 those of the ordinary ones."""

    name: str
    pattern: str
    capability: str
    sms: int
    bandwidth: float
    tflops: Mapping[str, float]
    source: str


def _halves(tf32: float, fp16: float, eight: float, **rest: float) -> dict[str, float]:
    return {"tf32": tf32, "fp16": fp16, "bf16": fp16, "fp8": eight, "int8": eight, **rest}


_HOPPER_SXM = _halves(494.7, 989.4, 1978.9, fp64=33.5, fp64_tensor=66.9, fp32=66.9)
_HOPPER_NVL = _halves(417.5, 835.5, 1670.5, fp64=30.0, fp64_tensor=60.0, fp32=60.0)
_A100 = {"fp64": 9.7, "fp64_tensor": 19.5, "fp32": 19.5, "tf32": 156.0, "fp16": 312.0, "bf16": 312.0, "int8": 624.0}
_H100_PAPER = "NVIDIA H100 architecture white paper"
_A100_SHEET = "NVIDIA A100 datasheet"
_V100_SHEET = "NVIDIA V100 datasheet"

PEAKS = (
    Peak("V100 SXM2", r"V100-SXM2", "7.0", 80, 900, {"fp64": 7.8, "fp32": 15.7, "fp16": 125.0}, _V100_SHEET),
    Peak("V100S PCIe", r"V100S", "7.0", 80, 1134, {"fp64": 8.2, "fp32": 16.4, "fp16": 130.0}, _V100_SHEET),
    Peak("V100 PCIe", r"V100", "7.0", 80, 900, {"fp64": 7.0, "fp32": 14.0, "fp16": 112.0}, _V100_SHEET),
    Peak("T4", r"\bT4\b", "7.5", 40, 320, {"fp32": 8.1, "fp16": 65.0, "int8": 130.0}, "NVIDIA T4 datasheet"),
    Peak("A100 SXM4 80GB", r"A100-SXM4-80GB|A100-SXM-80GB", "8.0", 108, 2039, _A100, _A100_SHEET),
    Peak("A100 PCIe 80GB", r"A100.*PCIe?.*80GB|A100 80GB PCIe", "8.0", 108, 1935, _A100, _A100_SHEET),
    Peak("A100 40GB", r"A100", "8.0", 108, 1555, _A100, _A100_SHEET),
    Peak(
        "A30", r"\bA30\b", "8.0", 56, 933,
        {"fp64": 5.2, "fp64_tensor": 10.3, "fp32": 10.3, "tf32": 82.0, "fp16": 165.0, "bf16": 165.0, "int8": 330.0},
        "NVIDIA A30 datasheet",
    ),
    Peak(
        "A10", r"\bA10G?\b", "8.6", 72, 600,
        {"fp32": 31.2, "tf32": 62.5, "fp16": 125.0, "bf16": 125.0, "int8": 250.0}, "NVIDIA A10 datasheet",
    ),
    Peak(
        "A40", r"\bA40\b", "8.6", 84, 696,
        {"fp32": 37.4, "tf32": 74.8, "fp16": 149.7, "bf16": 149.7, "int8": 299.3}, "NVIDIA A40 datasheet",
    ),
    Peak("L4", r"\bL4\b", "8.9", 58, 300, _halves(60.0, 121.0, 242.5, fp32=30.3), "NVIDIA L4 datasheet"),
    Peak("L40S", r"L40S", "8.9", 142, 864, _halves(183.0, 362.05, 733.0, fp32=91.6), "NVIDIA L40S datasheet"),
    Peak("L40", r"\bL40\b", "8.9", 142, 864, _halves(90.5, 181.05, 362.0, fp32=90.5), "NVIDIA L40 datasheet"),
    Peak(
        "RTX 4090", r"RTX 4090", "8.9", 128, 1008, _halves(82.6, 165.2, 330.3, fp32=82.6),
        "NVIDIA Ada architecture white paper",
    ),
    Peak("GH200", r"GH200", "9.0", 132, 4000, _HOPPER_SXM, "NVIDIA GH200 datasheet (HBM3)"),
    Peak("H200 NVL", r"H200.*NVL", "9.0", 132, 4800, _HOPPER_NVL, "NVIDIA H200 datasheet"),
    Peak("H200 SXM", r"H200", "9.0", 132, 4800, _HOPPER_SXM, "NVIDIA H200 datasheet"),
    Peak("H100 NVL", r"H100.*NVL", "9.0", 132, 3900, _HOPPER_NVL, "NVIDIA H100 datasheet"),
    Peak(
        "H100 PCIe", r"H100.*PCIe", "9.0", 114, 2000,
        _halves(378.0, 756.0, 1513.0, fp64=25.6, fp64_tensor=51.2, fp32=51.2), _H100_PAPER,
    ),
    Peak("H100 SXM5", r"H100", "9.0", 132, 3350, _HOPPER_SXM, _H100_PAPER),
    Peak(
        "B200", r"B200", "10.0", 148, 8000, _halves(1100.0, 2250.0, 4500.0, fp64=40.0, fp32=80.0, fp4=9000.0),
        "NVIDIA Blackwell technical brief (HGX B200)",
    ),
)  # fmt: skip
"""More particular patterns come first."""


def find_peak(name: str) -> Peak | None:
    """The listed peaks of a device by the name its driver gives it."""
    # A name goes on with letters (V100S), never with digits: an RTX A1000 is no A100.
    return next((peak for peak in PEAKS if re.search(rf"(?:{peak.pattern})(?!\d)", name, re.IGNORECASE)), None)


def peak_of(name: str) -> Peak:
    """The same, for a name that a person gave."""
    found = find_peak(name)
    if found is None:
        known = did_you_mean(name, (peak.name for peak in PEAKS))
        raise UsageError(
            f"device {name!r} is not listed{known}; name another (--device), or give --ceilings measured on it"
        )
    return found
